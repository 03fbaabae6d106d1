"""OpenCode Zen."""

from hermes.llm.provider_spec import ProviderSpec

PROVIDER = ProviderSpec(
    name="opencode-zen",
    wire="chat",
    base_url="https://opencode.ai/zen/v1",
    rank=135,
    hosts=("opencode.ai",),
    keys=("OPENCODE_ZEN_API_KEY",),
    models={"*qwen*": {"cache": "envelope", "cache_results": False}},
    docs="https://opencode.ai/docs/zen",
)
