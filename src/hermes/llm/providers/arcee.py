"""Arcee."""

from hermes.llm.provider_spec import ProviderSpec

PROVIDER = ProviderSpec(
    name="arcee",
    wire="chat",
    base_url="https://api.arcee.ai/api/v1",
    rank=75,
    hosts=("api.arcee.ai",),
    keys=("ARCEEAI_API_KEY",),
    docs="https://docs.arcee.ai",
)
