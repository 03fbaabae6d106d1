"""Azure OpenAI, version 1 of its API."""

from __future__ import annotations

from hermes.llm.profile import ProviderSpec, Quirks

PROVIDER = ProviderSpec(
    name="azure",
    wire="chat",
    base_url="{AZURE_OPENAI_ENDPOINT}/openai/v1",
    keys=("AZURE_OPENAI_API_KEY",),
    quirks=Quirks(max_tokens_field="max_completion_tokens"),
    models={
        "gpt-5*": {"effort": "effort", "drop": ("temperature",)},
        "o[0-9]*": {"effort": "effort", "drop": ("temperature",)},
    },
)
