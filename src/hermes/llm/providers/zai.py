"""Z.ai, the GLM models."""

from hermes.llm.provider_spec import ProviderSpec, Quirks

PROVIDER = ProviderSpec(
    name="zai",
    wire="chat",
    base_url="https://api.z.ai/api/paas/v4",
    rank=55,
    hosts=("api.z.ai",),
    model_prefixes=("glm",),
    keys=("ZAI_API_KEY", "Z_AI_API_KEY", "GLM_API_KEY"),
    quirks=Quirks(thinking_switch="asked"),
    default_model="glm-4.6",
    small_model="glm-4.5-air",
    docs="https://docs.z.ai",
)
