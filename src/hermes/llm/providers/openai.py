"""OpenAI."""

from __future__ import annotations

from hermes.llm.profile import ProviderSpec, Quirks

PROVIDER = ProviderSpec(
    name="openai",
    wire="responses",
    base_url="{OPENAI_BASE_URL|=https://api.openai.com/v1}",
    keys=("OPENAI_API_KEY",),
    quirks=Quirks(max_tokens_field="max_completion_tokens"),
    models={
        "gpt-5*": {"effort": "object", "drop": ("temperature",)},
        "o[0-9]*": {"effort": "object", "drop": ("temperature",)},
        "codex*": {"effort": "object", "drop": ("temperature",)},
        "*-chat-latest": {"effort": "omit"},
    },
    default_model="gpt-5",
    small_model="gpt-5-mini",
)
