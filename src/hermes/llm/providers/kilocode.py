"""Kilo Code, an aggregator."""

from hermes.llm.provider_spec import ProviderSpec

PROVIDER = ProviderSpec(
    name="kilocode",
    wire="chat",
    base_url="https://api.kilo.ai/api/gateway",
    rank=215,
    hosts=("api.kilo.ai",),
    vendor_names=True,
    keys=("KILOCODE_API_KEY",),
    aggregator=True,
    docs="https://kilo.ai/docs",
)
