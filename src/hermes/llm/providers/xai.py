"""xAI."""

from hermes.llm.provider_spec import ProviderSpec, Quirks

PROVIDER = ProviderSpec(
    name="xai",
    wire="chat",
    base_url="https://api.x.ai/v1",
    rank=25,
    hosts=("api.x.ai",),
    model_prefixes=("grok",),
    keys=("XAI_API_KEY",),
    quirks=Quirks(answer_schema="alone", thinking_replay="drop"),
    models={"grok-3-mini*": {"effort": "effort", "efforts": ("low", "high")}},
    default_model="grok-4",
    small_model="grok-4-fast-non-reasoning",
    docs="https://docs.x.ai",
)
