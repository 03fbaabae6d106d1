"""Moonshot's Kimi."""

from typing import Any

from hermes.llm.provider_spec import ProviderSpec

KIMI: dict[str, dict[str, Any]] = {
    "kimi-*": {
        "drop": ("temperature",),
        "max_tokens_default": 32000,
        "effort": "effort",
        "efforts": ("none", "low", "medium", "high"),
        "thinking_switch": "always",
        "thinking_field": "reasoning_content",
    }
}
"""Reasoning shares the output limit, so one is always set; it must be sent back."""

PROVIDER = ProviderSpec(
    name="kimi",
    wire="chat",
    base_url="https://api.moonshot.ai/v1",
    rank=40,
    hosts=("api.moonshot.ai",),
    model_prefixes=("kimi",),
    portable_models="kimi-*",
    keys=("KIMI_API_KEY", "MOONSHOT_API_KEY"),
    aliases=("moonshot",),
    models=KIMI,
    default_model="kimi-k2.5",
    docs="https://platform.moonshot.ai/docs",
)
