"""Which endpoints to call: from flags, configuration and keys to a chain of Endpoints, offline."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct

from hermes.config.schema import Config, ModelSettings, Provider
from hermes.config.secrets import Secrets
from hermes.core.errors import ConfigError
from hermes.core.message import Target
from hermes.llm.auth.key_pool import Credential, Strategy
from hermes.llm.endpoints.model_facts import UNKNOWN, ModelFacts
from hermes.llm.http.watchdog import Timeouts
from hermes.llm.provider_spec import OAuth, ProviderSpec, Quirks, WireName

Auth: TypeAlias = Literal["bearer", "x-api-key", "x-goog-api-key", "aws", "none"]
CUSTOM = "custom"
OLD_MODES = {
    "chat_completions": "chat",
    "codex_responses": "responses",
    "anthropic_messages": "anthropic",
    "bedrock_converse": "bedrock",
}
WIRES: tuple[WireName, ...] = ("chat", "responses", "anthropic", "gemini", "bedrock")
ALIASES = {"moonshot": "kimi", "dashscope": "alibaba", "google": "gemini"}
KEYS: Mapping[str, str] = {
    "ANTHROPIC_API_KEY": "anthropic",
    "OPENAI_API_KEY": "openai",
    "GEMINI_API_KEY": "gemini",
    "GOOGLE_API_KEY": "gemini",
    "XAI_API_KEY": "xai",
    "DEEPSEEK_API_KEY": "deepseek",
    "MISTRAL_API_KEY": "mistral",
    "KIMI_API_KEY": "kimi",
    "MOONSHOT_API_KEY": "kimi",
    "KIMI_CODING_API_KEY": "kimi-coding",
    "KIMI_CN_API_KEY": "kimi-cn",
    "ZAI_API_KEY": "zai",
    "Z_AI_API_KEY": "zai",
    "GLM_API_KEY": "zai",
    "MINIMAX_API_KEY": "minimax",
    "DASHSCOPE_API_KEY": "alibaba",
    "XIAOMI_API_KEY": "xiaomi",
    "ARCEEAI_API_KEY": "arcee",
    "AZURE_OPENAI_API_KEY": "azure",
    "AWS_BEARER_TOKEN_BEDROCK": "bedrock",
    "GROQ_API_KEY": "groq",
    "CEREBRAS_API_KEY": "cerebras",
    "TOGETHER_API_KEY": "together",
    "FIREWORKS_API_KEY": "fireworks",
    "NVIDIA_API_KEY": "nvidia",
    "OPENCODE_ZEN_API_KEY": "opencode-zen",
    "OPENCODE_GO_API_KEY": "opencode-go",
    "HF_TOKEN": "huggingface",
    "OPENROUTER_API_KEY": "openrouter",
    "AI_GATEWAY_API_KEY": "ai-gateway",
    "NOUS_API_KEY": "nous",
    "KILOCODE_API_KEY": "kilocode",
    "COPILOT_GITHUB_TOKEN": "copilot",
}
"""Variable -> the provider whose key it holds, in the order in which one is taken when nothing
else says which: makers of models, then hosts, then aggregators. A list, so that finding out
imports one row and not all; a test compares it with the rows."""
LOGINS = ("anthropic", "openai-codex", "copilot")
"""Providers one can log in to, in the order in which a login is taken; aggregators last."""
_FAMILIES = (
    ("claude", "anthropic"),
    ("gpt-", "openai"),
    ("chatgpt-", "openai"),
    ("o1", "openai"),
    ("o3", "openai"),
    ("o4", "openai"),
    ("gemini", "gemini"),
    ("grok", "xai"),
    ("deepseek", "deepseek"),
    ("mistral", "mistral"),
    ("codestral", "mistral"),
    ("magistral", "mistral"),
    ("kimi", "kimi"),
    ("glm", "zai"),
    ("minimax", "minimax"),
    ("qwen", "alibaba"),
)
"""How a model's name begins -> who makes it."""
SLUGS = ("openrouter", "ai-gateway", "nous", "kilocode")
"""Who takes names of the form vendor/model, in order of preference."""


class Choice(Struct, frozen=True):
    """What the command line asks for; empty: as configured."""

    model: str = ""
    provider: str = ""
    base_url: str = ""
    api_key_env: str = ""
    api_mode: str = ""


class Endpoint(Struct, frozen=True):
    """Everything it takes to call one model: no lookup is left to do."""

    target: Target
    base_url: str
    quirks: Quirks = Quirks()
    keys: tuple[Credential, ...] = ()
    pool: Strategy = "fill-first"
    login: OAuth | None = None
    """How tokens of a login among the keys are renewed, and what they travel with."""
    headers: dict[str, str] = {}
    auth: Auth = "bearer"
    timeouts: Timeouts = Timeouts()
    context_length: int | None = None
    """As configured, else as known of the model; None: not known."""
    max_output: int | None = None
    """As configured: what is asked for."""
    note: str = ""
    """What the user is told once about it: how it came to be chosen."""
    facts: ModelFacts = UNKNOWN
    """With the configured price, where there is one."""


def makers_of(model: str) -> Iterator[str]:
    """Providers whose own models have such names."""
    return (maker for start, maker in _FAMILIES if model.lower().startswith(start))


@cache
def find(name: str) -> ProviderSpec | None:
    """The row of a built-in provider, by name or alias; only its own module is imported."""
    name = ALIASES.get(name.lower(), name.lower())
    module = "hermes.llm.providers." + name.replace("-", "_")
    if not re.fullmatch(r"[a-z][a-z0-9-]*", name):
        return None
    try:
        row: ProviderSpec = import_module(module).PROVIDER
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        return None
    return row


def wire_for(base_url: str, api_mode: str | None, provider: str) -> WireName:
    """Which protocol is spoken there: as told, else by the address, else by the provider."""
    if api_mode:
        mode = OLD_MODES.get(api_mode, api_mode)
        for wire in WIRES:
            if wire == mode:
                return wire
        raise ConfigError(f"api_mode {api_mode!r} is unknown; use one of: {', '.join(WIRES)}.")
    spec = find(provider)
    url = urlsplit(base_url)
    host = url.hostname or ""
    if url.path.rstrip("/").endswith("/anthropic") or host == "api.anthropic.com":
        return "anthropic"
    if host.startswith("bedrock-runtime.") and host.endswith(".amazonaws.com"):
        return "bedrock"
    if spec is None:
        return "chat"
    # Others copy the chat protocol of a vendor that has two, and seldom the newer one.
    standard = re.sub(r"\{[^}]*=([^}]*)\}", r"\1", spec.base_url)
    own = not base_url or host == urlsplit(standard).hostname
    return "chat" if spec.wire == "responses" and not own else spec.wire


def resolve(config: Config, secrets: Secrets, choice: Choice) -> list[Endpoint]:
    """The primary and the fallbacks behind it. Nothing is asked over the network; ConfigError
    says in one sentence what to set. A fallback without a key is left out."""
    from hermes.llm.endpoints.resolver import Chooser

    chooser = Chooser(config, secrets)
    chain = [chooser.primary(choice)]
    for entry in config.fallback_providers:
        endpoint = chooser.fallback(entry)
        if endpoint is not None and all(
            (endpoint.target, endpoint.base_url) != (e.target, e.base_url) for e in chain
        ):
            chain.append(endpoint)
    return chain


def undecided(config: Config, secrets: Secrets, choice: Choice) -> bool:
    """Whether `resolve` would have nothing to go by; then a server nearby may answer."""
    from hermes.llm.endpoints.resolver import Chooser

    return Chooser(config, secrets).undecided(choice)


def timeouts(*settings: Provider | ModelSettings) -> Timeouts:
    """The limits as set, the later settings over the earlier ones."""
    values: dict[str, float] = {}
    for row in settings:
        for name, value in (
            ("ttfb", row.ttfb_timeout_seconds),
            ("stale", row.stale_timeout_seconds),
            ("total", row.request_timeout_seconds),
        ):
            if value is not None:
                values[name] = value
    return Timeouts(**values)
