"""xAI."""

from __future__ import annotations

from hermes.llm.profile import ProviderSpec

PROVIDER = ProviderSpec(
    name="xai",
    wire="chat",
    base_url="https://api.x.ai/v1",
    keys=("XAI_API_KEY",),
    models={"grok-3-mini*": {"effort": "effort"}},
    default_model="grok-4",
    small_model="grok-4-fast-non-reasoning",
)
