"""What a request to each provider must look like, written by hand from the contract and the
recordings, not read from the rows."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import structs

from hermes.config.schema import Config
from hermes.config.secrets import Secrets
from hermes.core.history import History
from hermes.core.message import user_message
from hermes.core.provider import Request, Settings, ToolSpec
from hermes.llm.client import Client
from hermes.llm.endpoints.endpoint import ModelChoice, ModelEndpoint
from hermes.llm.endpoints.resolver import resolve_chain
from hermes.llm.http.transport import Transport
from hermes.llm.response_builder import ResponseBuilder
from tests.kit import Provider, Received, say

KEY = "key-0123456789"


TOOL = ToolSpec("look", "Looks.", {"type": "object", "properties": {"at": {"type": "string"}}})


BEARER = {"authorization": f"Bearer {KEY}"}


NAMED = {"http-referer": "https://hermes.localhost/", "x-title": "Hermes"}


PLAIN: dict[str, Any] = {
    "stream": True,
    "stream_options": {"include_usage": True},
    "temperature": 0.5,
}


"""A chat request with nothing special about it, apart from its model."""


ON, OFF = {"thinking": {"type": "enabled"}}, {"thinking": {"type": "disabled"}}


KIMI: dict[str, Any] = {k: v for k, v in PLAIN.items() if k != "temperature"} | {
    "max_tokens": 32000
}


RESPONSES: dict[str, Any] = {"stream": True, "store": False}


SEALED = {"include": ["reasoning.encrypted_content"]}


CONVERSATION = frozenset(
    "model messages tools instructions input system contents toolConfig systemInstruction".split()
)


@dataclass(frozen=True)
class Row:
    """What a request to a provider must look like, asked for high effort and for none."""

    url: str
    high: Mapping[str, Any] = field(default_factory=lambda: PLAIN)
    """All fields beside model, system, tools and messages."""
    none: Mapping[str, Any] | None = None
    """The same with reasoning turned off; None: no different."""
    model: str = "m-1"
    key: str = ""
    headers: Mapping[str, str] = field(default_factory=lambda: BEARER)
    """All but those every HTTP request has."""
    env: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Of the provider, in the configuration."""


def reasons(level: str, **more: Any) -> dict[str, Any]:
    return {**PLAIN, "reasoning_effort": level, **more}


ROWS: dict[str, Row] = {
    "openai": Row(
        "https://api.openai.com/v1/responses",
        {**RESPONSES, **SEALED, "reasoning": {"effort": "high", "summary": "auto"}},
        {**RESPONSES, "reasoning": {"effort": "none"}},
        model="gpt-5.2",
        key="OPENAI_API_KEY",
    ),
    "anthropic": Row(
        "https://api.anthropic.com/v1/messages",
        {
            "max_tokens": 8192,
            "stream": True,
            "thinking": {"type": "enabled", "budget_tokens": 6144},
        },
        {"max_tokens": 8192, "stream": True, "temperature": 0.5},
        model="claude-sonnet-4-5",
        key="ANTHROPIC_API_KEY",
        headers={"x-api-key": KEY, "anthropic-version": "2023-06-01"},
    ),
    "openrouter": Row(
        "https://openrouter.ai/api/v1/chat/completions",
        {**PLAIN, "reasoning": {"effort": "high"}},
        {**PLAIN, "reasoning": {"enabled": False}},
        key="OPENROUTER_API_KEY",
        headers={**BEARER, **NAMED},
    ),
    "ai-gateway": Row(
        "https://ai-gateway.vercel.sh/v1/chat/completions",
        {**PLAIN, "reasoning": {"effort": "high"}},
        {**PLAIN, "reasoning": {"enabled": False}},
        key="AI_GATEWAY_API_KEY",
        headers={**BEARER, **NAMED},
    ),
    "nous": Row(
        "https://inference-api.nousresearch.com/v1/chat/completions",
        {**PLAIN, "reasoning": {"effort": "high"}},
        {**PLAIN, "reasoning": {"enabled": False}},
        key="NOUS_API_KEY",
        headers={**BEARER, **NAMED},
    ),
    "gemini": Row(
        "https://generativelanguage.googleapis.com/v1beta/models/gemini-2.5-flash"
        ":streamGenerateContent?alt=sse",
        {
            "generationConfig": {
                "temperature": 0.5,
                "thinkingConfig": {"thinkingBudget": 16384, "includeThoughts": True},
            }
        },
        {"generationConfig": {"temperature": 0.5, "thinkingConfig": {"thinkingBudget": 0}}},
        model="gemini-2.5-flash",
        key="GEMINI_API_KEY",
        headers={"x-goog-api-key": KEY},
    ),
    "vertex": Row(
        "https://aiplatform.googleapis.com/v1/publishers/google/models/gemini-3-flash"
        ":streamGenerateContent?alt=sse",
        {
            "generationConfig": {
                "temperature": 0.5,
                "thinkingConfig": {"thinkingLevel": "high", "includeThoughts": True},
            }
        },
        {
            "generationConfig": {
                "temperature": 0.5,
                "thinkingConfig": {"thinkingLevel": "minimal", "includeThoughts": True},
            }
        },
        model="gemini-3-flash",
        headers={"x-goog-api-key": KEY},
        settings={"api_key_env": "MINE"},
        env={"MINE": KEY},
    ),
    "bedrock": Row(
        "https://bedrock-runtime.eu-west-1.amazonaws.com/model/anthropic.claude-opus-4-6-v1%3A0"
        "/converse-stream",
        {
            "inferenceConfig": {"maxTokens": 8192},
            "additionalModelRequestFields": {
                "thinking": {"type": "adaptive"},
                "output_config": {"effort": "high"},
            },
        },
        {
            "inferenceConfig": {"temperature": 0.5},
            "additionalModelRequestFields": {"thinking": {"type": "disabled"}},
        },
        model="anthropic.claude-opus-4-6-v1:0",
        key="AWS_BEARER_TOKEN_BEDROCK",
        env={"AWS_REGION": "eu-west-1"},
    ),
    "azure": Row(
        "https://mine.openai.azure.com/openai/v1/chat/completions",
        {**{k: v for k, v in PLAIN.items() if k != "temperature"}, "reasoning_effort": "high"},
        {**{k: v for k, v in PLAIN.items() if k != "temperature"}, "reasoning_effort": "none"},
        model="gpt-5.2",
        key="AZURE_OPENAI_API_KEY",
        env={"AZURE_OPENAI_ENDPOINT": "https://mine.openai.azure.com/"},
    ),
    "xai": Row("https://api.x.ai/v1/chat/completions", key="XAI_API_KEY", model="grok-4"),
    "deepseek": Row(
        "https://api.deepseek.com/v1/chat/completions",
        key="DEEPSEEK_API_KEY",
        model="deepseek-reasoner",
    ),
    "mistral": Row(
        "https://api.mistral.ai/v1/chat/completions",
        {"stream": True, "temperature": 0.5},
        key="MISTRAL_API_KEY",
    ),
    "groq": Row(
        "https://api.groq.com/openai/v1/chat/completions",
        reasons("high"),
        reasons("low"),
        model="openai/gpt-oss-120b",
        key="GROQ_API_KEY",
    ),
    "cerebras": Row(
        "https://api.cerebras.ai/v1/chat/completions",
        reasons("high"),
        reasons("low"),
        model="gpt-oss-120b",
        key="CEREBRAS_API_KEY",
    ),
    "together": Row("https://api.together.xyz/v1/chat/completions", key="TOGETHER_API_KEY"),
    "fireworks": Row(
        "https://api.fireworks.ai/inference/v1/chat/completions", key="FIREWORKS_API_KEY"
    ),
    "kimi": Row(
        "https://api.moonshot.ai/v1/chat/completions",
        {**KIMI, **ON, "reasoning_effort": "high"},
        {**KIMI, **OFF},
        model="kimi-k2.5",
        key="KIMI_API_KEY",
    ),
    "kimi-cn": Row(
        "https://api.moonshot.cn/v1/chat/completions",
        {**KIMI, **ON, "reasoning_effort": "high"},
        {**KIMI, **OFF},
        model="kimi-k2-thinking",
        key="KIMI_CN_API_KEY",
    ),
    "kimi-coding": Row(
        "https://api.kimi.com/coding/v1/chat/completions",
        {**KIMI, **ON, "reasoning_effort": "high"},
        {**KIMI, **OFF},
        model="kimi-for-coding",
        key="KIMI_CODING_API_KEY",
    ),
    "zai": Row(
        "https://api.z.ai/api/paas/v4/chat/completions",
        {**PLAIN, **ON},
        {**PLAIN, **OFF},
        model="glm-4.7",
        key="ZAI_API_KEY",
    ),
    "minimax": Row("https://api.minimax.io/v1/chat/completions", key="MINIMAX_API_KEY"),
    "alibaba": Row(
        "https://dashscope-intl.aliyuncs.com/compatible-mode/v1/chat/completions",
        key="DASHSCOPE_API_KEY",
        model="qwen3-max",
    ),
    "opencode-zen": Row("https://opencode.ai/zen/v1/chat/completions", key="OPENCODE_ZEN_API_KEY"),
    "opencode-go": Row("https://opencode.ai/zen/go/v1/chat/completions", key="OPENCODE_GO_API_KEY"),
    "nvidia": Row("https://integrate.api.nvidia.com/v1/chat/completions", key="NVIDIA_API_KEY"),
    "huggingface": Row("https://router.huggingface.co/v1/chat/completions", key="HF_TOKEN"),
    "copilot": Row("https://api.githubcopilot.com/chat/completions", key="COPILOT_GITHUB_TOKEN"),
    "kilocode": Row("https://api.kilo.ai/api/gateway/chat/completions", key="KILOCODE_API_KEY"),
    "xiaomi": Row("https://api.xiaomimimo.com/v1/chat/completions", key="XIAOMI_API_KEY"),
    "arcee": Row("https://api.arcee.ai/api/v1/chat/completions", key="ARCEEAI_API_KEY"),
    "ollama": Row(
        "http://127.0.0.1:11434/v1/chat/completions",
        reasons("high"),
        reasons("none", think=False),
        model="qwen3:8b",
        headers={},
    ),
    "lmstudio": Row(
        "http://127.0.0.1:1234/v1/chat/completions",
        reasons("high"),
        reasons("none", think=False),
        headers={},
    ),
    "vllm": Row(
        "http://127.0.0.1:8000/v1/chat/completions",
        reasons("high"),
        reasons("none", think=False),
        headers={},
    ),
    "llamacpp": Row(
        "http://127.0.0.1:8080/v1/chat/completions",
        reasons("high"),
        reasons("none", think=False),
        headers={},
    ),
    "openai-codex": Row(
        "https://chatgpt.com/backend-api/codex/responses",
        {**RESPONSES, **SEALED, "reasoning": {"effort": "high", "summary": "auto"}},
        {**RESPONSES, **SEALED, "reasoning": {"effort": "low", "summary": "auto"}},
        model="gpt-5-codex",
        settings={"api_key_env": "MINE"},
        env={"MINE": KEY},
    ),
    "custom": Row(
        "https://gate.example/v1/chat/completions",
        reasons("high"),
        reasons("none"),
        settings={"base_url": "https://gate.example/v1", "api_key_env": "MINE"},
        env={"MINE": KEY},
    ),
}


EVERY_REQUEST = {
    "host",
    "accept",
    "accept-encoding",
    "content-type",
    "content-length",
    "user-agent",
}


def endpoint(
    choice: ModelChoice, env: dict[str, str], config: dict[str, Any] | None = None
) -> ModelEndpoint:
    return resolve_chain(msgspec.convert(config or {}, Config), Secrets(env), choice)[0]


def endpoint_of(name: str, model: str = "", **wanted: str) -> ModelEndpoint:
    row = ROWS[name]
    env = {**({row.key: KEY} if row.key else {}), **row.env}
    config = {"providers": {name: dict(row.settings)}} if row.settings else {}
    return endpoint(ModelChoice(model=model or row.model, provider=name, **wanted), env, config)


async def sent(
    transport: Transport,
    to: ModelEndpoint,
    history: History | None = None,
    **settings: Any,
) -> tuple[Received, ResponseBuilder]:
    """What arrives at the place the endpoint is called at, its host moved to this machine."""
    async with Provider(wire=to.target.wire, then=say("ok")) as provider:
        url = urlsplit(to.base_url)
        here = structs.replace(to, base_url=provider.origin + url.path)
        answer = ResponseBuilder()
        past = history or History([user_message("hi")])
        request = Request("be brief", past, (TOOL,), Settings(**settings))
        async with aclosing(Client(here, transport).stream(request, answer)) as batches:
            async for _ in batches:
                pass
        assert len(provider.requests) == 1 and not provider.lookups
        return provider.last, answer


def settings_of(request: Received) -> dict[str, Any]:
    """All fields beside the conversation and the model."""
    return {k: v for k, v in request.json.items() if k not in CONVERSATION}
