"""OpenAI."""

from typing import Any

from hermes.llm.provider_spec import ProviderSpec, Quirks

_REASONS: dict[str, Any] = {"effort": "effort", "drop": ("temperature",)}
GPT: dict[str, dict[str, Any]] = {
    "gpt-[5-9]*": {**_REASONS, "efforts": ("none", "low", "medium", "high", "xhigh")},
    "gpt-5": {"efforts": ("minimal", "low", "medium", "high")},
    "gpt-5-*": {"efforts": ("minimal", "low", "medium", "high")},
    "gpt-5-codex*": {"efforts": ("low", "medium", "high")},
    "gpt-5-pro*": {"efforts": ("high",)},
    "gpt-5.1*": {"efforts": ("none", "low", "medium", "high")},
    "gpt-5.1-codex-max*": {"efforts": ("low", "medium", "high", "xhigh")},
    "o[0-9]*": {**_REASONS, "efforts": ("low", "medium", "high")},
    "codex*": {**_REASONS, "efforts": ("low", "medium", "high")},
    "*-chat-latest": {"effort": "omit"},
}
"""Which models reason, and with which efforts. Older models are listed; unknown ones are treated
like the newest."""

PROVIDER = ProviderSpec(
    name="openai",
    wire="responses",
    base_url="{OPENAI_BASE_URL|=https://api.openai.com/v1}",
    rank=10,
    hosts=("api.openai.com",),
    model_prefixes=("gpt-", "chatgpt-", "o1", "o3", "o4"),
    keys=("OPENAI_API_KEY",),
    quirks=Quirks(fast=True, answer_schema="always", max_tokens_field="max_completion_tokens"),
    models=GPT,
    default_model="gpt-5",
    small_model="gpt-5-mini",
    media_models={
        "image": "gpt-image-1",
        "speech": "gpt-4o-mini-tts",
        "transcription": "gpt-4o-mini-transcribe",
    },
    docs="https://platform.openai.com/docs",
)
