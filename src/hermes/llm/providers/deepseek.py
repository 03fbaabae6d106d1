"""DeepSeek."""

from hermes.llm.provider_spec import ProviderSpec, Quirks

PROVIDER = ProviderSpec(
    name="deepseek",
    wire="chat",
    base_url="https://api.deepseek.com/v1",
    rank=30,
    hosts=("api.deepseek.com",),
    model_prefixes=("deepseek",),
    keys=("DEEPSEEK_API_KEY",),
    quirks=Quirks(thinking_field="reasoning_content"),
    default_model="deepseek-chat",
    docs="https://api-docs.deepseek.com",
)
