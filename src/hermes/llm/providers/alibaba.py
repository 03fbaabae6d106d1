"""Alibaba's DashScope, the Qwen models."""

from hermes.llm.provider_spec import ProviderSpec

PROVIDER = ProviderSpec(
    name="alibaba",
    wire="chat",
    base_url="https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
    rank=65,
    hosts=(
        "dashscope-intl.aliyuncs.com",
        "coding-intl.dashscope.aliyuncs.com",
        "coding.dashscope.aliyuncs.com",
        "dashscope-us.aliyuncs.com",
        "dashscope.aliyuncs.com",
    ),
    model_prefixes=("qwen",),
    keys=("DASHSCOPE_API_KEY",),
    aliases=("dashscope",),
    models={"*qwen*": {"cache": "envelope", "cache_results": False}},
    docs="https://www.alibabacloud.com/help/en/model-studio",
)
