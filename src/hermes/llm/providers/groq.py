"""Groq."""

from hermes.llm.provider_spec import ProviderSpec

PROVIDER = ProviderSpec(
    name="groq",
    wire="chat",
    base_url="https://api.groq.com/openai/v1",
    rank=110,
    hosts=("api.groq.com",),
    keys=("GROQ_API_KEY",),
    models={
        "*gpt-oss*": {"effort": "effort", "efforts": ("low", "medium", "high")},
        "*qwen3*": {"effort": "effort", "efforts": ("none",)},
    },
    default_model="openai/gpt-oss-120b",
    media_models={"transcription": "whisper-large-v3-turbo"},
    docs="https://console.groq.com/docs",
)
