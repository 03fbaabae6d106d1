"""Mistral."""

from hermes.llm.provider_spec import ProviderSpec, Quirks

PROVIDER = ProviderSpec(
    name="mistral",
    wire="chat",
    base_url="https://api.mistral.ai/v1",
    rank=35,
    hosts=("api.mistral.ai",),
    model_prefixes=("mistral", "codestral", "magistral"),
    keys=("MISTRAL_API_KEY",),
    quirks=Quirks(answer_schema="alone", call_id="alnum9", usage_in_stream=False),
    models={"mistral-small-latest": {"effort": "effort", "efforts": ("none", "high")}},
    default_model="mistral-large-latest",
    small_model="mistral-small-latest",
    docs="https://docs.mistral.ai",
)
