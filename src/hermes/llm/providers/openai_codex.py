"""ChatGPT's Codex backend."""

from __future__ import annotations

from hermes.llm.profile import ProviderSpec, Quirks

PROVIDER = ProviderSpec(
    name="openai-codex",
    wire="responses",
    base_url="https://chatgpt.com/backend-api/codex",
    quirks=Quirks(effort="object", drop=("temperature", "max_output_tokens")),
)
