"""The embedded model: llama.cpp on this machine, without a server or a key."""

from hermes.llm.provider_spec import ProviderSpec, Quirks

PROVIDER = ProviderSpec(
    name="local",
    wire="chat",
    base_url="local:",
    auth="none",
    embedded=True,
    quirks=Quirks(
        calling="schema",
        favourites=("terminal", "write_file"),
        small=True,
        media=False,
        max_tokens_default=1024,
        body={"cache_prompt": True},
    ),
    models={"smollm2*": {"tools": False}},
    default_model="qwen2.5-coder-0.5b",
    docs="https://github.com/ggml-org/llama.cpp",
)
