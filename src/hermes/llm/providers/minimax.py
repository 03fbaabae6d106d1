"""MiniMax."""

from hermes.llm.provider_spec import ProviderSpec

PROVIDER = ProviderSpec(
    name="minimax",
    wire="chat",
    base_url="https://api.minimax.io/v1",
    rank=60,
    hosts=("api.minimax.io",),
    model_prefixes=("minimax",),
    keys=("MINIMAX_API_KEY",),
    default_model="MiniMax-M2",
    docs="https://platform.minimax.io/docs",
)
