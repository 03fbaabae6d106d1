"""OpenCode Go."""

from hermes.llm.provider_spec import ProviderSpec

PROVIDER = ProviderSpec(
    name="opencode-go",
    wire="chat",
    base_url="https://opencode.ai/zen/go/v1",
    rank=140,
    keys=("OPENCODE_GO_API_KEY",),
    models={"*qwen*": {"cache": "envelope", "cache_results": False}},
    docs="https://opencode.ai/docs/go",
)
