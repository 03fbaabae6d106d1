# ruff: noqa: E501
"""From flags, configuration and keys to endpoints, and rows that agree with the lists about them."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import pytest

import hermes.llm.providers as providers
from hermes.config.schema import Config
from hermes.config.secrets import Secrets
from hermes.core.errors import ConfigError
from hermes.llm.endpoints.endpoint import ModelChoice, ModelEndpoint
from hermes.llm.endpoints.match import choose_wire
from hermes.llm.endpoints.resolver import resolve_chain
from hermes.llm.http.watchdog import Timeouts
from hermes.llm.provider_spec import ProviderSpec, Quirks
from hermes.llm.providers import find_provider, provider_index

NAMES = """openai anthropic openrouter gemini vertex bedrock azure xai deepseek mistral groq cerebras
together fireworks nous kimi kimi-cn kimi-coding zai minimax alibaba opencode-zen opencode-go nvidia
huggingface ai-gateway copilot kilocode xiaomi arcee ollama lmstudio vllm llamacpp openai-codex
moonshot dashscope""".split()
AS_CONFIGURED = ModelChoice()
FOLDER = Path(providers.__path__[0])
FILES = sorted(p.stem for p in FOLDER.glob("*.py") if p.stem != "__init__")


def rows() -> list[ProviderSpec]:
    return [import_module(f"{providers.__name__}.{stem}").PROVIDER for stem in FILES]


def chain(
    choice: ModelChoice = AS_CONFIGURED, *, config: dict[str, Any] | None = None, **environ: str
) -> list[ModelEndpoint]:
    made = msgspec.convert(config or {}, Config)
    return resolve_chain(made, Secrets(environ), choice)


def first(
    choice: ModelChoice = AS_CONFIGURED, *, config: dict[str, Any] | None = None, **environ: str
) -> tuple[str, str, str, str]:
    """(provider, model, wire, source of the key)"""
    e = chain(choice, config=config, **environ)[0]
    return e.target.provider, e.target.model, e.target.wire, e.keys[0].source if e.keys else ""


# -- rows ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_every_promised_name_has_a_row(name: str) -> None:
    row = find_provider(name)
    assert row is not None and row.name == provider_index().aliases.get(name, name)


@pytest.fixture(autouse=True)
def no_embedded_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether its engine is installed here is another test's matter (test_local_model)."""
    monkeypatch.setattr("hermes.llm.endpoints.embedded.is_engine_installed", lambda: False)


def test_rows_are_whole() -> None:
    fields = set(Quirks.__struct_fields__)
    for row in rows():
        assert find_provider(row.name) == row
        begins = ("local:",) if row.embedded else ("https://", "http://127.0.0.1:", "{")
        assert row.base_url.startswith(begins), row.name
        assert set().union(*row.models.values()) <= fields, row.name
        row.quirks_for("anything")


def test_the_lists_agree_with_the_rows() -> None:
    assert {a: r.name for r in rows() for a in r.aliases} == provider_index().aliases
    assert {k: r.name for r in rows() for k in r.keys} == dict(provider_index().key_variables)
    assert all(find_provider(name) is not None for name in provider_index().vendor_routers)


@pytest.mark.parametrize(
    "name", ["", "nobody", "../x", "__init__", "os", "Open AI", "a.b", "custom"]
)
def test_other_names_have_none(name: str) -> None:
    assert find_provider(name) is None


def test_finding_one_imports_one() -> None:
    code = (
        "import sys; from hermes.llm.providers import find_provider; find_provider('deepseek'); "
        "print([m for m in sys.modules if m.startswith('hermes.llm.providers.')], "
        "'aiohttp' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "['hermes.llm.providers.deepseek'] False"


# -- which protocol ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base_url", "mode", "provider", "wire"),
    [
        ("http://127.0.0.1:8000/v1", "", "custom", "chat"),
        ("https://gate.example/anthropic", "", "custom", "anthropic"),
        ("https://gate.example/anthropic/", None, "custom", "anthropic"),
        ("https://gate.example/anthropic/v1", "", "custom", "chat"),
        ("https://api.anthropic.com", "", "custom", "anthropic"),
        ("https://api.anthropic.com.evil.example", "", "custom", "chat"),
        ("https://bedrock-runtime.eu-west-1.amazonaws.com", "", "custom", "bedrock"),
        ("https://bedrock-runtime.evil.example", "", "custom", "chat"),
        ("https://generativelanguage.googleapis.com/v1beta", "", "custom", "chat"),
        ("", "", "gemini", "gemini"),
        ("https://proxy.example/google", "", "gemini", "gemini"),
        ("https://api.openai.com/v1", "", "openai", "responses"),
        ("http://127.0.0.1:4000/v1", "", "openai", "chat"),
        ("https://api.minimax.io/anthropic", "", "minimax", "anthropic"),
        ("http://127.0.0.1:1/v1", "gemini", "custom", "gemini"),
        ("https://api.anthropic.com", "chat", "anthropic", "chat"),
        ("http://x/v1", "chat_completions", "custom", "chat"),
        ("http://x/v1", "codex_responses", "custom", "responses"),
        ("http://x/v1", "anthropic_messages", "custom", "anthropic"),
        ("http://x/v1", "bedrock_converse", "custom", "bedrock"),
    ],
)
def test_one_function_decides_the_protocol(
    base_url: str, mode: str | None, provider: str, wire: str
) -> None:
    assert choose_wire(base_url, mode, provider) == wire


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(ConfigError, match="telnet"):
        choose_wire("http://x/v1", "telnet", "custom")


# -- who answers ---------------------------------------------------------------------------------

CUSTOM = {"model": {"provider": "custom", "base_url": "http://127.0.0.1:1/v1", "default": "m"}}
LAB = {"providers": {"lab": {"base_url": "http://lab.local:8000/v1", "api_key_env": "LAB_KEY"}}}
A, OA, R, G = (
    {"ANTHROPIC_API_KEY": "key-a"},
    {"OPENAI_API_KEY": "key-o"},
    {"OPENROUTER_API_KEY": "key-r"},
    {"GROQ_API_KEY": "key-g"},
)


@pytest.mark.parametrize(
    ("choice", "config", "environ", "expected"),
    [
        # the environment alone: makers before hosts before aggregators
        ({}, {}, A, ("anthropic", "claude-sonnet-4-5", "anthropic", "ANTHROPIC_API_KEY")),
        ({}, {}, OA, ("openai", "gpt-5", "responses", "OPENAI_API_KEY")),
        ({}, {}, R, ("openrouter", "anthropic/claude-sonnet-4.5", "chat", "OPENROUTER_API_KEY")),
        ({}, {}, R | G, ("groq", "openai/gpt-oss-120b", "chat", "GROQ_API_KEY")),
        ({}, {}, R | OA | A, ("anthropic", "claude-sonnet-4-5", "anthropic", "ANTHROPIC_API_KEY")),
        # a bare name goes to its maker, whoever else lists it
        ({"model": "gpt-5-mini"}, {}, R | A | OA, ("openai", "gpt-5-mini", "responses", "OPENAI_API_KEY")),
        ({"model": "claude-x"}, {}, R | OA | A, ("anthropic", "claude-x", "anthropic", "ANTHROPIC_API_KEY")),
        # one that no maker is known for goes to whom has it, before an aggregator
        ({"model": "llama-3.3-70b-versatile"}, {}, R | A | G, ("groq", "llama-3.3-70b-versatile", "chat", "GROQ_API_KEY")),
        ({"model": "claude-sonnet-4-5-next"}, {}, {"GEMINI_API_KEY": "k"} | A, ("anthropic", "claude-sonnet-4-5-next", "anthropic", "ANTHROPIC_API_KEY")),
        ({"model": "gpt-next"}, {}, R | A | OA | G, ("openai", "gpt-next", "responses", "OPENAI_API_KEY")),
        # another address, the same model; but not another key
        ({"base_url": "http://x:1/v1"}, {"model": {"default": "m"}}, {}, ("custom", "m", "chat", "")),
        ({"base_url": "http://x:1/v1"}, {"model": {"default": "m", "provider": "custom", "base_url": "http://y/v1", "api_key_env": "K"}}, {"K": "k"}, ("custom", "m", "chat", "")),
        # OPENAI_BASE_URL is a server of one's own
        ({"model": "m"}, {}, {"OPENAI_BASE_URL": "http://x:1/v1/"}, ("custom", "m", "chat", "")),
        ({}, {}, OA | {"OPENAI_BASE_URL": "http://x:1/v1"}, ("custom", "gpt-5", "chat", "OPENAI_API_KEY")),
        ({"model": "m"}, {}, OA | A | {"OPENAI_BASE_URL": "http://x:1/v1"}, ("custom", "m", "chat", "OPENAI_API_KEY")),
        ({"model": "m", "provider": "openai"}, {}, OA | {"OPENAI_BASE_URL": "http://x:1/v1"}, ("openai", "m", "chat", "OPENAI_API_KEY")),
        # slugs
        ({"model": "anthropic/claude-sonnet-4.5"}, {}, R | A, ("openrouter", "anthropic/claude-sonnet-4.5", "chat", "OPENROUTER_API_KEY")),
        ({"model": "anthropic/claude-sonnet-4.5"}, {}, A | OA, ("anthropic", "claude-sonnet-4-5", "anthropic", "ANTHROPIC_API_KEY")),
        ({"model": "openai/gpt-4.1"}, {}, OA, ("openai", "gpt-4.1", "responses", "OPENAI_API_KEY")),
        ({"model": "meta/llama-4"}, {}, {"AI_GATEWAY_API_KEY": "k"}, ("ai-gateway", "meta/llama-4", "chat", "AI_GATEWAY_API_KEY")),
        ({"model": "meta/llama-4"}, {}, {"TOGETHER_API_KEY": "k"}, ("together", "meta/llama-4", "chat", "TOGETHER_API_KEY")),
        ({"model": "openrouter/auto"}, {}, R, ("openrouter", "openrouter/auto", "chat", "OPENROUTER_API_KEY")),
        ({"model": "openrouter/qwen/qwen3"}, {}, R, ("openrouter", "qwen/qwen3", "chat", "OPENROUTER_API_KEY")),
        # provider:model
        ({"model": "openrouter:qwen/qwen3"}, {}, R | A, ("openrouter", "qwen/qwen3", "chat", "OPENROUTER_API_KEY")),
        ({"model": "moonshot:kimi-k2"}, {}, {"KIMI_API_KEY": "k"}, ("kimi", "kimi-k2", "chat", "KIMI_API_KEY")),
        ({"model": "ollama:llama3:8b"}, {}, A, ("ollama", "llama3:8b", "chat", "")),
        ({}, {"model": {"default": "groq:x/y"}}, G | A, ("groq", "x/y", "chat", "GROQ_API_KEY")),
        ({"model": "lab:llama"}, LAB, A | {"LAB_KEY": "k"}, ("lab", "llama", "chat", "LAB_KEY")),
        ({"model": "lab/llama"}, LAB, A | {"LAB_KEY": "k"}, ("lab", "llama", "chat", "LAB_KEY")),
        # a local model has colons and slashes of its own
        ({"model": "mistral:7b"}, {"model": {"provider": "ollama"}}, A, ("ollama", "mistral:7b", "chat", "")),
        ({"model": "a/b"}, CUSTOM, R, ("custom", "a/b", "chat", "")),
        ({}, {"model": {"provider": "ollama", "default": "qwen3:30b"}}, A, ("ollama", "qwen3:30b", "chat", "")),
        # flags over configuration; another provider takes nothing of the configured one along
        ({}, CUSTOM, A | OA, ("custom", "m", "chat", "")),
        ({"model": "n"}, CUSTOM, A, ("custom", "n", "chat", "")),
        ({"provider": "anthropic"}, CUSTOM, A, ("anthropic", "claude-sonnet-4-5", "anthropic", "ANTHROPIC_API_KEY")),
        ({"provider": "google", "model": "gemini-x"}, CUSTOM, {"GOOGLE_API_KEY": "k"}, ("gemini", "gemini-x", "gemini", "GOOGLE_API_KEY")),
        ({"base_url": "http://y:2/anthropic", "model": "z"}, CUSTOM, A, ("custom", "z", "anthropic", "")),
        ({"base_url": "http://y:2/v1", "model": "z", "api_key_env": "MINE", "api_mode": "responses"}, CUSTOM, {"MINE": "k"}, ("custom", "z", "responses", "MINE")),
        ({"provider": "openrouter", "model": "openrouter:a/b"}, {}, R, ("openrouter", "a/b", "chat", "OPENROUTER_API_KEY")),
        # settings laid over a built-in provider
        ({}, {"model": {"provider": "deepseek"}, "providers": {"deepseek": {"base_url": "http://d:1/anthropic", "api_key_env": "D"}}}, {"D": "k"}, ("deepseek", "deepseek-chat", "anthropic", "D")),
        ({}, {"model": {"provider": "lab", "default": "x"}, **LAB}, {"LAB_KEY": "k"}, ("lab", "x", "chat", "LAB_KEY")),
    ],
)  # fmt: skip
def test_who_answers(
    choice: dict[str, str],
    config: dict[str, Any],
    environ: dict[str, str],
    expected: tuple[str, str, str, str],
) -> None:
    assert first(ModelChoice(**choice), config=config, **environ) == expected


@pytest.mark.parametrize(
    ("choice", "config", "environ", "says"),
    [
        ({}, {}, {}, "OPENROUTER_API_KEY"),
        ({"model": "anthropic/x"}, {}, {}, "OPENROUTER_API_KEY or ANTHROPIC_API_KEY"),
        ({"provider": "anthropic"}, {}, OA, "set ANTHROPIC_API_KEY"),
        ({"provider": "gemini", "model": "x"}, {}, {}, "GEMINI_API_KEY or GOOGLE_API_KEY"),
        ({"provider": "nobody", "model": "x"}, {}, A, "Unknown provider 'nobody'"),
        ({"model": "nope:nope"}, {}, {}, "There is no provider 'nope', and no configured"),
        ({"model": "antropic:x"}, {}, {}, "'antropic' (did you mean anthropic?)"),
        ({"provider": "custom", "model": "x"}, {}, A, "model.base_url"),
        ({"base_url": "http://x:1/v1"}, {}, A, "--model"),
        ({"base_url": "x.example/v1", "model": "m"}, {}, A, "http://"),
        ({"base_url": "https://joe:hunter22@x/v1", "model": "m"}, {}, {"PW": "hunter22"}, "api_key_env"),
        ({"base_url": "http://x:1/v1", "model": "m", "api_key_env": "NOT_SET"}, {}, A, "NOT_SET"),
        ({"provider": "together"}, {}, {"TOGETHER_API_KEY": "k"}, "No model is set"),
        ({"provider": "azure", "model": "m"}, {}, {"AZURE_OPENAI_API_KEY": "k"}, "AZURE_OPENAI_ENDPOINT"),
        ({"provider": "vertex", "model": "m"}, {}, A, "api_key_env"),
        ({"model": "lab:x"}, LAB, A, "LAB_KEY"),
        ({}, {"fallback_providers": ["nobody:x"]}, A, "nobody:x"),
        ({}, {"fallback_providers": ["gpt-5"]}, A, "provider:model"),
    ],
)  # fmt: skip
def test_what_to_set_is_said_in_one_sentence(
    choice: dict[str, str], config: dict[str, Any], environ: dict[str, str], says: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        chain(ModelChoice(**choice), config=config, **environ)
    assert says in str(caught.value) and len(str(caught.value)) <= 300
    assert not any(value in str(caught.value) for value in environ.values() if len(value) > 4)


def test_fallbacks_without_a_key_are_left_out_and_nobody_stands_twice() -> None:
    config = {
        "model": {"provider": "anthropic", "default": "claude-x"},
        "fallback_providers": [
            "openrouter:qwen/qwen3-coder",
            "openai:gpt-5",
            "anthropic:claude-x",
            "lab:llama-3.3-70b",
            "openai:gpt-5",
            "ollama:llama3",
        ],
        **LAB,
    }
    got = chain(config=config, **A, **OA)
    assert [(e.target.provider, e.target.model) for e in got] == [
        ("anthropic", "claude-x"),
        ("openai", "gpt-5"),
        ("ollama", "llama3"),
    ]
    assert [e.target.provider for e in chain(config=config, **A, LAB_KEY="k")][1] == "lab"


def test_a_pool_holds_the_keys_that_are_set_in_their_order() -> None:
    config = {
        "model": {"provider": "openai"},
        "providers": {"openai": {"api_key_envs": ["B", "MISSING", "A"]}},
    }
    (endpoint,) = chain(config=config, A="1", B="2", OPENAI_API_KEY="3")
    assert [(k.source, k.value) for k in endpoint.keys] == [("B", "2"), ("A", "1")]
    assert "2" not in repr(endpoint.keys)


def test_timeouts_and_sizes_per_provider_and_per_model() -> None:
    config = {
        "model": {
            "provider": "lab",
            "default": "big",
            "context_length": 1000,
            "max_tokens": 100,
        },
        "providers": {
            "lab": {
                "base_url": "http://lab/v1",
                "request_timeout_seconds": 600,
                "stale_timeout_seconds": 0,
                "models": {"big": {"ttfb_timeout_seconds": 300, "context_length": 2000}},
            }
        },
        "fallback_providers": ["lab:small"],
    }
    big, small = chain(config=config)
    assert big.timeouts == Timeouts(300, 0, 600) and small.timeouts == Timeouts(45, 0, 600)
    assert (big.context_length, big.max_output) == (2000, 100)
    assert (small.context_length, small.max_output) == (None, None)


def test_how_keys_travel() -> None:
    custom = {"model": {"base_url": "http://x/anthropic", "default": "m", "api_key_env": "K"}}
    (endpoint,) = chain(config=custom, K="k")
    assert endpoint.auth == "x-api-key" and endpoint.headers["anthropic-version"]
    for mode, auth in (("chat", "bearer"), ("gemini", "x-goog-api-key"), ("bedrock", "bearer")):
        (endpoint,) = chain(ModelChoice(api_mode=mode), config=custom, K="k")
        assert endpoint.auth == auth
    (endpoint,) = chain(config={"model": {"base_url": "http://x/v1", "default": "m"}})
    assert endpoint.auth == "none" and endpoint.keys == ()


def test_bedrock_by_bearer_key_or_by_signature() -> None:
    choice = ModelChoice(provider="bedrock", model="amazon.nova-pro-v1:0")
    (endpoint,) = chain(choice, AWS_BEARER_TOKEN_BEDROCK="k", AWS_REGION="eu-west-1")
    assert endpoint.base_url == "https://bedrock-runtime.eu-west-1.amazonaws.com"
    assert endpoint.auth == "bearer" and endpoint.target.model == "amazon.nova-pro-v1:0"
    pytest.importorskip("botocore")
    (endpoint,) = chain(choice, AWS_ACCESS_KEY_ID="AK", AWS_SECRET_ACCESS_KEY="SK")
    assert endpoint.base_url == "https://bedrock-runtime.us-east-1.amazonaws.com"
    assert endpoint.auth == "aws" and (endpoint.keys[0].id, endpoint.keys[0].value) == ("AK", "SK")


def test_quirks_come_with_the_model() -> None:
    (kimi,) = chain(ModelChoice(model="kimi:kimi-k2"), KIMI_API_KEY="k")
    assert "temperature" in kimi.quirks.drop and kimi.quirks.max_tokens_default == 32000
    (old,) = chain(ModelChoice(model="anthropic:claude-3-5-haiku-latest"), **A)
    (new,) = chain(ModelChoice(model="anthropic:claude-sonnet-4-5"), **A)
    assert (old.quirks.effort, new.quirks.effort) == ("omit", "budget")
