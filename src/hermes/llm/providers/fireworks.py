"""Fireworks."""

from hermes.llm.provider_spec import ProviderSpec

PROVIDER = ProviderSpec(
    name="fireworks",
    wire="chat",
    base_url="https://api.fireworks.ai/inference/v1",
    rank=125,
    hosts=("api.fireworks.ai",),
    keys=("FIREWORKS_API_KEY",),
    docs="https://docs.fireworks.ai",
)
