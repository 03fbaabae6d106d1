"""Xiaomi MiMo."""

from hermes.llm.provider_spec import ProviderSpec

PROVIDER = ProviderSpec(
    name="xiaomi",
    wire="chat",
    base_url="https://api.xiaomimimo.com/v1",
    rank=70,
    hosts=("api.xiaomimimo.com",),
    keys=("XIAOMI_API_KEY",),
    docs="https://platform.xiaomimimo.com",
)
