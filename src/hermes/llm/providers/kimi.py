"""Moonshot's Kimi."""

from __future__ import annotations

from hermes.llm.profile import ProviderSpec, Quirks

KIMI = Quirks(
    drop=("temperature",),
    max_tokens_default=32000,
    effort="effort",
    thinking_field="reasoning_content",
    body={"thinking": {"type": "enabled"}},
)
"""Reasoning shares the output budget, so a budget is always given; it must be sent back."""

PROVIDER = ProviderSpec(
    name="kimi",
    wire="chat",
    base_url="https://api.moonshot.ai/v1",
    keys=("KIMI_API_KEY", "MOONSHOT_API_KEY"),
    aliases=("moonshot",),
    quirks=KIMI,
    default_model="kimi-k2.5",
)
