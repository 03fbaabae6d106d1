"""Together."""

from hermes.llm.provider_spec import ProviderSpec

PROVIDER = ProviderSpec(
    name="together",
    wire="chat",
    base_url="https://api.together.xyz/v1",
    rank=120,
    hosts=("api.together.xyz",),
    keys=("TOGETHER_API_KEY",),
    docs="https://docs.together.ai",
)
