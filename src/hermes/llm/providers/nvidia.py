"""NVIDIA NIM."""

from hermes.llm.provider_spec import ProviderSpec

PROVIDER = ProviderSpec(
    name="nvidia",
    wire="chat",
    base_url="https://integrate.api.nvidia.com/v1",
    rank=130,
    hosts=("integrate.api.nvidia.com",),
    keys=("NVIDIA_API_KEY",),
    docs="https://docs.api.nvidia.com/nim",
)
