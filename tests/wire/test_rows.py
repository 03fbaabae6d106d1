"""Each provider's row on the wire: URL, headers, fields and omissions, as providers.md has them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
from msgspec import structs

import hermes.llm.providers as rows
from hermes.config.schema import Config
from hermes.config.secrets import Secrets
from hermes.core.errors import ConfigError
from hermes.core.history import History
from hermes.core.message import Message as Said
from hermes.core.message import Target, Text, Thinking, ToolCall, ToolReturn, user_message
from hermes.core.provider import Effort, Request
from hermes.llm.client import Client
from hermes.llm.endpoints.endpoint import ModelChoice, ModelEndpoint
from hermes.llm.endpoints.resolver import resolve_chain
from hermes.llm.http.transport import Transport
from hermes.llm.providers import find_provider, provider_index
from hermes.llm.response_builder import ResponseBuilder
from hermes.version import VERSION
from tests.kit import Provider
from tests.wire.provider_rows import (
    EVERY_REQUEST,
    KEY,
    KIMI,
    ON,
    PLAIN,
    ROWS,
    TOOL,
    endpoint,
    endpoint_of,
    sent,
    settings_of,
)


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
async def transport() -> AsyncIterator[Transport]:
    made = Transport()
    yield made
    await made.close()


def test_every_row_is_in_the_table() -> None:
    stems = {p.stem for p in Path(rows.__path__[0]).glob("[a-z]*.py")}
    names = {import_module(f"{rows.__name__}.{stem}").PROVIDER.name for stem in stems}
    assert names == (set(ROWS) - {"custom"}) | {"local"}  # which has no wire
    for name in names:
        row = find_provider(name)
        assert row is not None and row.docs.startswith("https://"), name


def test_the_list_of_hosts_agrees_with_the_rows() -> None:
    for name, row in ROWS.items():
        host = urlsplit(row.url).hostname or ""
        if name in ("custom", "azure", "bedrock", "opencode-go") or host == "127.0.0.1":
            assert host not in provider_index().hosts or name == "opencode-go"
        else:
            assert provider_index().hosts[host] == name
    assert set(provider_index().hosts.values()) <= set(ROWS)


@pytest.mark.parametrize("name", list(ROWS))
@pytest.mark.parametrize("effort", ["high", "none"])
async def test_a_request_to_each_provider(transport: Transport, name: str, effort: Effort) -> None:
    row = ROWS[name]
    to = endpoint_of(name)
    request, _ = await sent(transport, to, effort=effort, temperature=0.5)
    origin = "://".join(urlsplit(to.base_url)[:2])
    assert origin + request.target == row.url and request.method == "POST"
    headers = {k: v for k, v in request.headers.items() if k not in EVERY_REQUEST}
    assert headers == row.headers
    assert request.headers["content-type"] == "application/json"
    assert request.headers["user-agent"] == f"hermes/{VERSION}"
    wanted = row.high if effort == "high" or row.none is None else row.none
    assert settings_of(request) == wanted
    assert request.model == row.model
    assert b"be brief" in request.body and b'"look"' in request.body


@pytest.mark.parametrize("name", list(ROWS))
async def test_nothing_is_said_about_reasoning_unless_it_is_asked_for(
    transport: Transport, name: str
) -> None:
    """Except by Kimi's switch, and where thoughts are shown only on request."""
    request, _ = await sent(transport, endpoint_of(name))
    body = request.json
    names = {"reasoning", "reasoning_effort", "think", "output_config", "thinking"}
    assert {k: body[k] for k in names & set(body)} == (ON if name.startswith("kimi") else {})
    assert "additionalModelRequestFields" not in body
    shown = body.get("generationConfig", {}).get("thinkingConfig")
    assert shown == ({"includeThoughts": True} if name in ("gemini", "vertex") else None)
    assert "temperature" not in str(body)


# -- Kimi ----------------------------------------------------------------------------------------


KIMI_HOSTS = ["https://api.kimi.com/coding/v1", "https://api.moonshot.ai/v1"]


KIMI_HOSTS += ["https://api.moonshot.cn/v1", "https://API.MOONSHOT.AI/v1"]


@pytest.mark.parametrize("base_url", KIMI_HOSTS)
async def test_kimi_behind_an_address_of_ones_own(transport: Transport, base_url: str) -> None:
    choice = ModelChoice(model="kimi-k2.5", base_url=base_url, api_key_env="MINE")
    to = endpoint(choice, {"MINE": KEY})
    assert to.target.provider == "custom"
    request, _ = await sent(transport, to, effort="low", temperature=1.0)
    assert settings_of(request) == {**KIMI, **ON, "reasoning_effort": "low"}


@pytest.mark.parametrize(
    "base_url", ["https://api.moonshot.ai/anthropic", "https://api.moonshot.cn/anthropic"]
)
@pytest.mark.parametrize("provider", ["custom", "kimi"])
async def test_kimi_over_another_protocol(
    transport: Transport, base_url: str, provider: str
) -> None:
    choice = ModelChoice("kimi-k2.5", provider, base_url, api_key_env="MINE")
    request, _ = await sent(transport, endpoint(choice, {"MINE": KEY}), temperature=1.0)
    assert settings_of(request) == {"max_tokens": 32000, "stream": True}
    assert "cache_control" not in str(request.json)


async def test_kimi_behind_a_host_nobody_knows(transport: Transport) -> None:
    choice = ModelChoice(
        model="kimi-k2.5", base_url="https://models.example/v1", api_key_env="MINE"
    )
    request, _ = await sent(transport, endpoint(choice, {"MINE": KEY}), temperature=1.0)
    assert settings_of(request) == {**KIMI, **ON}


async def test_kimi_with_a_limit_of_ones_own(transport: Transport) -> None:
    request, _ = await sent(transport, endpoint_of("kimi"), max_output=500)
    assert request.json["max_tokens"] == 500


async def test_other_models_of_that_host_and_kimi_elsewhere_are_plain(
    transport: Transport,
) -> None:
    request, _ = await sent(transport, endpoint_of("kimi", "moonshot-v1-8k"), temperature=0.5)
    assert {k: v for k, v in request.json.items() if k in PLAIN} == PLAIN
    assert "thinking" not in request.json and "max_tokens" not in request.json
    request, _ = await sent(transport, endpoint_of("groq", "moonshotai/kimi-k2"), temperature=0.5)
    assert "thinking" not in request.json and request.json["temperature"] == 0.5


# -- reasoning goes back -------------------------------------------------------------------------


def thought(to: ModelEndpoint, **extra: Any) -> History:
    """A question, a call with reasoning before it, its result; an answer with reasoning, and
    another question."""
    origin = to.target
    call = ToolCall("c1", "look", '{"at":"x"}', extra.pop("call", None))
    return History(
        [
            user_message("hi"),
            Said("assistant", (Thinking("because", extra), call), origin=origin),
            Said("tool", (ToolReturn(call.id, call.name, (Text("a tree"),)),)),
            Said("assistant", (Thinking("so", extra), Text("A tree.")), origin=origin),
            user_message("and?"),
        ]
    )


@pytest.mark.parametrize(
    ("name", "base_url"),
    [
        ("kimi", ""),
        ("kimi-cn", ""),
        ("kimi-coding", ""),
        ("deepseek", ""),
        ("custom", "https://api.moonshot.cn/v1"),
        ("custom", "https://api.deepseek.com"),
    ],
)
async def test_reasoning_content_comes_back_with_the_call(
    transport: Transport, name: str, base_url: str
) -> None:
    to = endpoint_of(name, "kimi-k2" if "moonshot" in base_url else "", base_url=base_url)
    past = thought(to, field="reasoning_content")
    request, _ = await sent(transport, to, past)
    said = [m for m in request.json["messages"] if m["role"] == "assistant"]
    assert said[0]["reasoning_content"] == "because" and said[0]["tool_calls"]
    assert "reasoning_content" not in said[1], "only tool-call messages need it"


@pytest.mark.parametrize("name", ["kimi", "deepseek"])
async def test_a_call_of_another_model_has_the_field_too(transport: Transport, name: str) -> None:
    to = endpoint_of(name)
    past = thought(structs.replace(to, target=Target("other", "x", "chat")), field="reasoning")
    request, _ = await sent(transport, to, past)
    said = [m for m in request.json["messages"] if m["role"] == "assistant"]
    assert said[0]["reasoning_content"] == "" and "because" not in request.body.decode()


SEAL = {"encrypted_content": "gAAAA", "summary": [{"type": "summary_text", "text": "because"}]}


async def test_sealed_reasoning_goes_back_without_its_id(transport: Transport) -> None:
    to = endpoint_of("openai")
    request, _ = await sent(transport, to, thought(to, **SEAL), effort="high")
    body = request.json
    assert body["store"] is False and body["include"] == ["reasoning.encrypted_content"]
    items = [i for i in body["input"] if i.get("type") == "reasoning"]
    assert len(items) == 2
    for item in items:
        assert item == {"type": "reasoning", **SEAL}, "no id: it would be looked up"


async def test_xai_gets_no_sealed_reasoning_back(transport: Transport) -> None:
    to = endpoint_of("xai", api_mode="responses")
    assert to.target.wire == "responses"
    request, _ = await sent(transport, to, thought(to, **SEAL), effort="high")
    assert b"gAAAA" not in request.body and b"encrypted" not in request.body
    kinds = [i.get("type", i.get("role")) for i in request.json["input"]]
    assert kinds == ["user", "function_call", "function_call_output", "assistant", "user"]


async def test_a_signature_comes_back_with_its_function_call(transport: Transport) -> None:
    to = endpoint_of("gemini", "gemini-3-pro-preview")
    past = thought(to, call={"thoughtSignature": "c2ln"})
    request, _ = await sent(transport, to, past)
    calls = [p for c in request.json["contents"] for p in c["parts"] if "functionCall" in p]
    assert [p["thoughtSignature"] for p in calls] == ["c2ln"]


# -- who may see what ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "choice",
    [
        ModelChoice(
            model="claude-opus-5", base_url="https://gate.example/anthropic", api_key_env="MINE"
        ),
        ModelChoice(
            model="MiniMax-M2", provider="minimax", base_url="https://api.minimax.io/anthropic"
        ),
        ModelChoice(
            model="claude-x", provider="anthropic", base_url="https://gate.example/anthropic"
        ),
    ],
)
async def test_gateways_of_the_protocol_see_no_identity_and_no_stale_token(
    transport: Transport, tmp_path: Path, choice: ModelChoice
) -> None:
    logins = tmp_path / "auth"
    logins.mkdir()
    login = {"access": "sk-ant-oat-secret", "refresh": "r", "expires": 4e9}
    (logins / "anthropic.json").write_bytes(msgspec.json.encode(login))
    env = {
        "MINE": KEY,
        "MINIMAX_API_KEY": KEY,
        "ANTHROPIC_API_KEY": KEY,
        "ANTHROPIC_TOKEN": "stale-token-1234567",
    }
    secrets = Secrets(env, logins=logins)
    to = resolve_chain(Config(), secrets, choice)[0]
    assert to.target.wire == "anthropic" and to.login is None
    request, _ = await sent(transport, to)
    heads = {k: v for k, v in request.headers.items() if k not in EVERY_REQUEST}
    assert heads == {"x-api-key": KEY, "anthropic-version": "2023-06-01"}
    assert "stale" not in str(request.headers) and "oat" not in str(request.headers)


def test_aggregators_are_not_taken_for_a_bare_name() -> None:
    every = {"OPENROUTER_API_KEY", "AI_GATEWAY_API_KEY", "NOUS_API_KEY", "KILOCODE_API_KEY"}
    many = dict.fromkeys(every | {"COPILOT_GITHUB_TOKEN"}, KEY)
    for direct, provider in (("GROQ_API_KEY", "groq"), ("HF_TOKEN", "huggingface")):
        got = endpoint(ModelChoice(model="llama-3.3-70b"), {**many, direct: KEY})
        assert got.target.provider == provider
    assert endpoint(ModelChoice(model="a/b"), {**many, "GROQ_API_KEY": KEY}).target == Target(
        "openrouter", "a/b", "chat"
    )


# -- efforts that are not known ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "model", "asked", "used"),
    [
        ("openai", "gpt-5", "xhigh", "high"),
        ("openai", "gpt-5", "none", "minimal"),
        ("openai", "gpt-5.1", "minimal", "low"),
        ("openai", "gpt-5.2", "xhigh", "xhigh"),
        ("openai", "gpt-6-mini", "xhigh", "xhigh"),
        ("openai", "o3", "minimal", "low"),
        ("openai-codex", "gpt-5-codex", "xhigh", "high"),
        ("azure", "gpt-5-mini", "xhigh", "high"),
        ("xai", "grok-3-mini", "medium", "low"),
        ("kimi", "kimi-k2.5", "xhigh", "high"),
        ("groq", "qwen/qwen3-32b", "none", "none"),
        ("groq", "qwen/qwen3-32b", "high", None),
        ("anthropic", "claude-sonnet-5", "xhigh", "xhigh"),
        ("anthropic", "claude-opus-5-20270101", "minimal", "low"),
        ("anthropic", "claude-opus-4-6", "xhigh", "high"),
        ("bedrock", "us.anthropic.claude-opus-5-v1:0", "xhigh", "xhigh"),
        ("bedrock", "us.anthropic.claude-opus-4-6-v1", "xhigh", "high"),
        ("gemini", "gemini-3-pro-preview", "medium", "low"),
        ("gemini", "gemini-4-flash", "none", "minimal"),
        ("gemini", "gemini-flash-latest", "none", "minimal"),
        ("gemini", "gemini-10-pro", "minimal", "low"),
        ("mistral", "mistral-small-latest", "low", "high"),
        ("ollama", "qwen3", "xhigh", "high"),
        ("openrouter", "x/y", "xhigh", "xhigh"),
    ],
)
async def test_an_effort_that_is_not_known_is_lowered(
    transport: Transport, name: str, model: str, asked: Effort, used: str | None
) -> None:
    request, _ = await sent(transport, endpoint_of(name, model), effort=asked)
    body = request.json
    said = body.get("reasoning_effort") or body.get("reasoning", {}).get("effort")
    passed = body.get("additionalModelRequestFields", body)
    said = said or passed.get("output_config", {}).get("effort")
    said = said or body.get("generationConfig", {}).get("thinkingConfig", {}).get("thinkingLevel")
    assert said == used


@pytest.mark.parametrize(
    ("model", "thinking"),
    [
        # Since then the words of thoughts are left out unless they are asked for.
        ("claude-sonnet-5", {"type": "adaptive", "display": "summarized"}),
        ("claude-opus-5-1-20270101", {"type": "adaptive", "display": "summarized"}),
        ("claude-opus-4-7", {"type": "adaptive", "display": "summarized"}),
        ("claude-opus-4-6", {"type": "adaptive"}),
        ("claude-opus-4-1-20250805", {"type": "enabled", "budget_tokens": 6144}),
        ("claude-sonnet-4-20250514", {"type": "enabled", "budget_tokens": 6144}),
        ("claude-3-7-sonnet-latest", {"type": "enabled", "budget_tokens": 6144}),
        ("claude-3-5-haiku-latest", None),
    ],
)
async def test_how_claude_is_asked_to_think(
    transport: Transport, model: str, thinking: dict[str, Any] | None
) -> None:
    request, _ = await sent(transport, endpoint_of("anthropic", model), effort="high")
    assert request.json.get("thinking") == thinking
    free = thinking is not None and thinking["type"] == "adaptive"
    assert request.json["max_tokens"] == (32000 if free else 8192)


# -- servers of one's own ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base_url", "hinted"),
    [
        ("http://127.0.0.1:11434", True),
        ("http://localhost:1234/", True),
        ("http://lab.local:8000", True),
        ("http://127.0.0.1:11434/v1", False),
        ("https://gate.example", False),
        ("http://127.0.0.1:4000/anthropic", False),
    ],
)
def test_an_address_without_v1_gets_a_hint(base_url: str, hinted: bool) -> None:
    note = endpoint(ModelChoice(model="m", base_url=base_url), {}).note
    assert (base_url.rstrip("/") + "/v1" in note) == hinted
    assert bool(note) == hinted


async def test_a_server_of_ones_own_under_any_name_is_told_not_to_think(
    transport: Transport,
) -> None:
    to = endpoint(ModelChoice(model="m", base_url="http://127.0.0.1:9/v1"), {})
    request, _ = await sent(transport, to, effort="none")
    assert request.json["think"] is False and request.json["reasoning_effort"] == "none"


async def test_names_repeated_in_every_chunk_and_a_think_tag_left_open(
    transport: Transport,
) -> None:
    from tests.kit import raw

    def chunk(delta: dict[str, Any], end: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": end}
        return b"data: " + msgspec.json.encode({"choices": [choice]}) + b"\n\n"

    def call(args: str) -> dict[str, Any]:
        function = {"name": "look", "arguments": args}
        return {"tool_calls": [{"index": 0, "id": "c1", "function": function}]}

    frames = [
        chunk({"content": "<think>I look there"}),
        chunk(call("")),
        chunk(call('{"at":')),
        chunk(call('"x"}')),
        chunk({}, "tool_calls"),
        b"data: [DONE]\n\n",
    ]
    for name in ("minimax", "nvidia"):
        to = endpoint_of(name)
        stream = raw(b"".join(frames), content_type="text/event-stream")
        async with Provider([stream]) as provider:
            here = structs.replace(to, base_url=provider.base_url)
            answer = ResponseBuilder()
            request = Request("", History([user_message("hi")]), (TOOL,))
            async with aclosing(Client(here, transport).stream(request, answer)) as batches:
                async for _ in batches:
                    pass
        message = answer.build_message(to.target)
        assert [(c.name, c.args) for c in message.calls] == [("look", '{"at":"x"}')]
        assert message.thinking == "I look there" and message.text == ""


@pytest.mark.parametrize("name", [n for n, r in ROWS.items() if r.headers and n != "bedrock"])
def test_without_a_key_nobody_is_called(name: str) -> None:
    """Bedrock has the credentials of the machine besides."""
    with pytest.raises(ConfigError) as caught:
        endpoint(ModelChoice(model=ROWS[name].model, provider=name), {})
    assert len(str(caught.value)) <= 300
