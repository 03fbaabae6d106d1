"""vLLM on this machine."""

from hermes.llm.provider_spec import ProviderSpec, Quirks

PROVIDER = ProviderSpec(
    name="vllm",
    wire="chat",
    base_url="http://127.0.0.1:8000/v1",
    rank=315,
    auth="none",
    quirks=Quirks(answer_schema="alone", calling="text", effort="think"),
    docs="https://docs.vllm.ai",
)
