"""llama.cpp's server on this machine."""

from hermes.llm.provider_spec import ProviderSpec, Quirks

PROVIDER = ProviderSpec(
    name="llamacpp",
    wire="chat",
    base_url="http://127.0.0.1:8080/v1",
    rank=310,
    auth="none",
    about=("props", "list"),
    quirks=Quirks(answer_schema="alone", calling="text", effort="think"),
    docs="https://github.com/ggml-org/llama.cpp/tree/master/tools/server",
)
