"""Kimi's coding plan."""

from hermes.llm.provider_spec import ProviderSpec
from hermes.llm.providers.kimi import KIMI

PROVIDER = ProviderSpec(
    name="kimi-coding",
    wire="chat",
    base_url="https://api.kimi.com/coding/v1",
    rank=45,
    hosts=("api.kimi.com",),
    keys=("KIMI_CODING_API_KEY",),
    models=KIMI,
    default_model="kimi-for-coding",
    docs="https://www.kimi.com/coding/docs",
)
