"""Hugging Face's router."""

from hermes.llm.provider_spec import ProviderSpec

PROVIDER = ProviderSpec(
    name="huggingface",
    wire="chat",
    base_url="https://router.huggingface.co/v1",
    rank=145,
    hosts=("router.huggingface.co",),
    keys=("HF_TOKEN",),
    docs="https://huggingface.co/docs/inference-providers",
)
