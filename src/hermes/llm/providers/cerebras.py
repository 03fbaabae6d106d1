"""Cerebras."""

from hermes.llm.provider_spec import ProviderSpec

PROVIDER = ProviderSpec(
    name="cerebras",
    wire="chat",
    base_url="https://api.cerebras.ai/v1",
    rank=115,
    hosts=("api.cerebras.ai",),
    keys=("CEREBRAS_API_KEY",),
    models={"*gpt-oss*": {"effort": "effort", "efforts": ("low", "medium", "high")}},
    default_model="gpt-oss-120b",
    docs="https://inference-docs.cerebras.ai",
)
