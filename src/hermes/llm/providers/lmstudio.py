"""LM Studio on this machine."""

from hermes.llm.provider_spec import ProviderSpec, Quirks

PROVIDER = ProviderSpec(
    name="lmstudio",
    wire="chat",
    base_url="http://127.0.0.1:1234/v1",
    rank=305,
    auth="none",
    about=("studio", "list"),
    quirks=Quirks(answer_schema="alone", calling="text", effort="think"),
    docs="https://lmstudio.ai/docs",
)
