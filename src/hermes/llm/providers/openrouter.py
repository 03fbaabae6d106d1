"""OpenRouter, an aggregator."""

from __future__ import annotations

from hermes.llm.profile import ProviderSpec, Quirks

PROVIDER = ProviderSpec(
    name="openrouter",
    wire="chat",
    base_url="https://openrouter.ai/api/v1",
    keys=("OPENROUTER_API_KEY",),
    headers={"X-Title": "Hermes"},
    quirks=Quirks(effort="object"),
    models={"*claude*": {"cache": "envelope"}},
    default_model="anthropic/claude-sonnet-4.5",
    small_model="google/gemini-2.5-flash",
)
