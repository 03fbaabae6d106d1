"""ChatGPT's Codex backend."""

from __future__ import annotations

from hermes.llm.profile import ProviderSpec, Quirks
from hermes.llm.providers.openai import GPT

PROVIDER = ProviderSpec(
    name="openai-codex",
    wire="responses",
    base_url="https://chatgpt.com/backend-api/codex",
    quirks=Quirks(effort="effort", drop=("temperature", "max_output_tokens")),
    models=GPT,
    docs="https://developers.openai.com/codex",
)
