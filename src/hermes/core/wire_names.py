"""The names of the wire protocols, as configurations, provider rows and targets write them."""

from typing import Literal, TypeAlias, get_args

WireName: TypeAlias = Literal["chat", "responses", "anthropic", "gemini", "bedrock"]
WIRE_NAMES: tuple[WireName, ...] = get_args(WireName)
DEFAULT_WIRE: WireName = "chat"
"""Used for addresses about which nothing else is known."""
OLD_WIRE_NAMES: dict[str, str] = {
    "chat_completions": "chat",
    "codex_responses": "responses",
    "anthropic_messages": "anthropic",
    "bedrock_converse": "bedrock",
}
"""Earlier names that configurations still use."""
