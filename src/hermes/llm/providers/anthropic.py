"""Anthropic."""

from typing import Any

from hermes.llm.provider_spec import OAuthSpec, ProviderSpec, Quirks

_BUDGET: dict[str, Any] = {"effort": "budget", "efforts": (), "max_tokens_default": None}
CLAUDE: dict[str, dict[str, Any]] = {
    "*claude*": {
        "effort": "adaptive",
        "efforts": ("none", "low", "medium", "high", "xhigh"),
        "thinking_display": "summarized",
    },
    "*claude-*-4[-.]6*": {"efforts": ("none", "low", "medium", "high"), "thinking_display": ""},
    "*claude-*-4": _BUDGET,
    "*claude-*-4[-.@:][0-5]*": _BUDGET,
    "*claude-[123]*": {**_BUDGET, "effort": "omit"},
    "*claude-instant*": {**_BUDGET, "effort": "omit"},
    "*claude-3[-.]7*": {"effort": "budget"},
}
"""How Claude models reason. Older models are listed; unknown ones are treated like the newest."""

PROVIDER = ProviderSpec(
    name="anthropic",
    wire="anthropic",
    base_url="https://api.anthropic.com",
    rank=5,
    hosts=("api.anthropic.com",),
    model_prefixes=("claude",),
    wire_reference=True,
    dashed_versions=True,
    keys=("ANTHROPIC_API_KEY",),
    auth="x-api-key",
    headers={"anthropic-version": "2023-06-01"},
    quirks=Quirks(call_id="word64"),
    # Reasoning without a budget of its own shares the answer's output limit.
    models={
        **CLAUDE,
        "*claude*": {"cache": "native", "max_tokens_default": 32000, **CLAUDE["*claude*"]},
    },
    oauth=OAuthSpec(
        flow="loopback",
        client_id="9d1c250a-e61b-44d9-88ed-5944d1962f5e",
        authorize_url="https://claude.ai/oauth/authorize",
        token_url="https://platform.claude.com/v1/oauth/token",
        scopes="user:profile user:inference",
        redirect_host="localhost",
        body="json",
        state_in_body=True,
        headers={"anthropic-beta": "oauth-2025-04-20"},
        models=("claude",),
    ),
    default_model="claude-sonnet-4-5",
    small_model="claude-haiku-4-5",
    docs="https://docs.anthropic.com/en/api/messages",
)
