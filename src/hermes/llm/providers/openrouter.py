"""OpenRouter, an aggregator."""

from hermes.llm.provider_spec import ATTRIBUTION, ProviderSpec, Quirks

PROVIDER = ProviderSpec(
    name="openrouter",
    wire="chat",
    base_url="https://openrouter.ai/api/v1",
    rank=200,
    hosts=("openrouter.ai",),
    vendor_names=True,
    own_vendor_name=True,
    keys=("OPENROUTER_API_KEY",),
    headers=ATTRIBUTION,
    aggregator=True,
    quirks=Quirks(effort="object"),
    models={"*claude*": {"cache": "envelope"}},
    default_model="anthropic/claude-sonnet-4.5",
    small_model="google/gemini-2.5-flash",
    docs="https://openrouter.ai/docs",
)
