"""Ollama on this machine."""

from hermes.llm.provider_spec import ProviderSpec, Quirks

PROVIDER = ProviderSpec(
    name="ollama",
    wire="chat",
    base_url="http://127.0.0.1:11434/v1",
    rank=300,
    auth="none",
    about=("show", "list"),
    quirks=Quirks(
        answer_schema="alone",
        calling="text",
        effort="think",
        efforts=("none", "low", "medium", "high"),
    ),
    docs="https://docs.ollama.com",
)
