"""Kimi in China."""

from hermes.llm.provider_spec import ProviderSpec
from hermes.llm.providers.kimi import KIMI

PROVIDER = ProviderSpec(
    name="kimi-cn",
    wire="chat",
    base_url="https://api.moonshot.cn/v1",
    rank=50,
    hosts=("api.moonshot.cn",),
    keys=("KIMI_CN_API_KEY",),
    models=KIMI,
    docs="https://platform.moonshot.cn/docs",
)
