"""A provider and a wire from outside the package, in a whole turn with a tool call."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hermes.app.runtime import Runtime
from hermes.config.load import load_setup
from hermes.core.errors import ConfigError
from hermes.core.message import Message, Target, ToolCall, ToolReturn, user_message
from hermes.core.provider import ResponseSink
from hermes.llm.endpoints.match import choose_wire
from hermes.llm.provider_spec import ProviderSpec, Quirks, WireFacts
from hermes.llm.providers import register_provider
from hermes.llm.wire import load_wire, register_wire, wire_names
from hermes.llm.wire.message_buffer import MessageBuffer
from hermes.llm.wire.request_fields import RequestHead
from tests.kit import Home, Provider, Reply, raw
from tests.kit.replay import replay_now

STREAM_TYPE = "text/event-stream"


class LinesEncoder:
    """Each message is a list: who says it, and what."""

    def __init__(self, target: Target, quirks: Quirks) -> None:
        self.messages = MessageBuffer()
        self._model = target.model

    def add_group(self, group: Message) -> None:
        self.messages.add_messages([(self._encode(group), b"")])

    def build_body(self, pending: Sequence[Message], head: RequestHead) -> bytes:
        tools = [tool.name for tool in head.tools]
        fields = {"model": self._model, "tools": tools, "system": head.system}
        start = json.dumps(fields)[:-1].encode() + b',"lines":['
        return self.messages.join_body(start, [(self._encode(group), b"") for group in pending])

    def _encode(self, group: Message) -> bytes:
        said: list[Any] = [group.role]
        for part in group.parts:
            match part:
                case ToolCall(id=id, name=name, args=args):
                    said.append({"call": name, "id": id, "args": args})
                case ToolReturn(call_id=id, content=content):
                    said.append({"result": id, "text": "".join(p.text for p in content)})  # type: ignore[union-attr]
                case _:
                    said.append(group.text)
        return json.dumps(said).encode()


class LinesDecoder:
    """One JSON object per line: a piece of text, a call, or the end."""

    def __init__(self, sink: ResponseSink, quirks: Quirks) -> None:
        self.activity = 0
        self.is_finished = False
        self._sink = sink
        self._rest = b""

    def feed(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._take(json.loads(line.removeprefix(b"data: ")))

    def close(self) -> None:
        self._sink.stop = self._sink.stop or "died"

    def decode_document(self, body: bytes) -> None:
        self.feed(body)
        self.close()

    def _take(self, event: dict[str, Any]) -> None:
        self.activity += 1
        if "text" in event:
            self._sink.add_text("text", event["text"])
        elif "call" in event:
            self._sink.add_call("call", id="c1", name=event["call"], args=json.dumps(event["args"]))
        else:
            self.is_finished = True
            self._sink.count_usage(**event["usage"])
            self._sink.stop = "tool_use" if self._sink.call_names else "end"


def read_error(body: Any, headers: Mapping[str, str]) -> tuple[str, str, str]:
    return "", str(body.get("trouble", "")), ""


LINES = SimpleNamespace(
    FACTS=WireFacts(url_pattern=r"\.lines\.example(/|$)", default_output=77),
    STREAM_TYPE=STREAM_TYPE,
    Encoder=LinesEncoder,
    Decoder=LinesDecoder,
    build_url=lambda base_url, model, *, stream: f"{base_url}/lines/chat/completions",
    read_error=read_error,
)


def answer(*events: dict[str, Any]) -> Reply:
    end = {"usage": {"input": 11, "output": 3}}
    lines = [b"data: " + json.dumps(event).encode() + b"\n" for event in (*events, end)]
    return raw(b"".join(lines), content_type=STREAM_TYPE)


@pytest.fixture
async def provider() -> Any:
    async with Provider([]) as made:
        yield made


@pytest.fixture
def registered(provider: Provider) -> Iterator[None]:
    wire: Any = LINES
    row = ProviderSpec(
        "acme",
        "lines",
        provider.base_url,
        rank=1,
        keys=("ACME_API_KEY",),
        model_prefixes=("acme-",),
        auth="x-api-key",
        default_model="acme-1",
    )
    undo = [register_wire("lines", wire), register_provider(row)]
    yield
    for unregister in undo:
        unregister()


@pytest.mark.usefixtures("registered")
async def test_a_whole_turn(tmp_path: Path, provider: Provider) -> None:
    home = Home(tmp_path)
    home.env["ACME_API_KEY"] = "key-of-acme"
    home.file("note.txt", "milk")
    provider.steps = [
        answer({"text": "Let me look."}, {"call": "read_file", "args": {"path": "note.txt"}}),
        answer({"text": "It says "}, {"text": "milk."}),
    ]
    async with Runtime.open(load_setup("", home.env)) as runtime:
        session = await runtime.open_session(cwd=home.work)
        endpoint = session.agent.providers[0].endpoint
        assert endpoint.target == Target("acme", "acme-1", "lines")
        assert endpoint.default_output == 77
        result = await session.submit(user_message("what does the note say?"))
    await replay_now(home.path)
    assert result.text == "It says milk."
    first, second = provider.requests
    assert first.headers["x-api-key"] == "key-of-acme" and first.path.endswith(
        "/lines/chat/completions"
    )
    assert "read_file" in first.json["tools"]
    asked, called, read = second.json["lines"]
    assert asked == ["user", "what does the note say?"]
    assert called[:2] == ["assistant", "Let me look."]
    assert called[2] == {"call": "read_file", "id": "c1", "args": '{"path": "note.txt"}'}
    assert read[1]["result"] == "c1" and "milk" in read[1]["text"]


@pytest.mark.usefixtures("registered")
def test_it_is_known_by_its_address_and_its_name() -> None:
    assert choose_wire("https://api.lines.example/v1", "", "custom") == "lines"
    assert choose_wire("https://elsewhere.example/v1", "lines", "custom") == "lines"
    assert choose_wire("", "", "acme") == "lines"


def test_it_is_gone_afterwards() -> None:
    assert "lines" not in wire_names()
    with pytest.raises(ConfigError, match="api_mode 'lines' is unknown"):
        choose_wire("https://x.example/v1", "lines", "custom")


def test_a_wire_of_the_package_is_not_replaced() -> None:
    with pytest.raises(ValueError, match="chat"):
        register_wire("chat", load_wire("responses"))
