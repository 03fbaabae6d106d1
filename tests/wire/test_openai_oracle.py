"""Every recording of the chat and responses protocols decodes to what the vendor's own library
makes of the same bytes, however the stream is cut."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import httpx2
import msgspec
import openai
import orjson
import pytest
from openai.lib.streaming.chat import ChatCompletionStreamState

from hermes.core.errors import ProviderError
from hermes.core.events import StreamEvent, TextDelta, ThinkingDelta
from hermes.core.message import Message, Native, Target, Text, Thinking, ToolCall
from hermes.llm.response_builder import ResponseBuilder
from hermes.llm.wire import load_wire
from tests.wire.recordings import ROOT, Recording, load
from tests.wire.talk import body_reader

pytestmark = [
    pytest.mark.skipif(not ROOT.is_dir(), reason="no recordings beside the project"),
    # The library has no type for content that is a list; it passes it on all the same.
    pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning"),
]
Json = dict[str, Any]


class Seen(msgspec.Struct):
    """What an answer says, whoever decoded it."""

    text: str = ""
    thinking: str = ""
    calls: list[tuple[str, str, str]] = []
    usage: tuple[int, int, int, int, int] = (0, 0, 0, 0, 0)
    cost: float | None = None
    native: list[Any] = []
    details: list[Any] = []


def recordings(api: str, *, status: int, stream: str = "") -> list[Any]:
    return [
        pytest.param(r, id=r.name)
        for r in load(api)
        if r.status == status and stream in ("", r.stream)
    ]


# -- ours ----------------------------------------------------------------------------------------


class Ours:
    def __init__(self, r: Recording, chunks: Iterator[bytes] | None = None) -> None:
        self.answer = answer = ResponseBuilder()
        self.events: list[StreamEvent] = []
        self.failure = None
        reader = body_reader(r.api, answer, "application/json" if chunks is None else "")
        try:
            for chunk in chunks or [r.body]:
                reader.feed(chunk)
                self.events += answer.drain_events()
            reader.close()
        except ProviderError as error:
            self.failure = error.failure
        self.events += answer.finish_events()
        self.message: Message = answer.build_message(Target("p", "m", r.api))

    @property
    def seen(self) -> Seen:
        usage = self.answer.usage
        extras = [p.extra or {} for p in self.message.parts if isinstance(p, Thinking)]
        return Seen(
            self.message.text,
            "".join(p.text for p in self.message.parts if isinstance(p, Thinking)),
            [(c.id, c.name, c.args) for c in self.message.calls],
            (usage.input, usage.output, usage.cache_read, usage.cache_write, usage.reasoning),
            usage.cost,
            [p.data for p in self.message.parts if isinstance(p, Native)],
            [d for e in extras for d in e.get("reasoning_details", ())],
        )


def cuts(r: Recording, mean: int) -> Iterator[bytes]:
    rng = random.Random(r.name)
    at, body = 0, r.body
    while at < len(body):
        size = rng.randint(1, 2 * mean)
        yield body[at : at + size]
        at += size


def every_way(r: Recording) -> Ours:
    """Decoded in one read; in pieces of any size it must be the same."""
    one = Ours(r, iter([r.body]))
    for mean in (3, 50, 5000) if len(r.body) < 100_000 else (200, 5000):
        other = Ours(r, cuts(r, mean))
        assert other.message == one.message
        assert other.failure == one.failure
        assert other.answer.stop == one.answer.stop
    if one.failure is None:
        assert shown(one.events) == (one.seen.text, one.seen.thinking)
    return one


def shown(events: list[StreamEvent]) -> tuple[str, str]:
    text = "".join(e.text for e in events if isinstance(e, TextDelta))
    return text, "".join(e.text for e in events if isinstance(e, ThinkingDelta))


# -- the vendor's --------------------------------------------------------------------------------


@cache
def sdk(body: bytes, status: int, content_type: str) -> openai.OpenAI:
    def answer(request: httpx2.Request) -> httpx2.Response:
        headers = {"content-type": content_type}
        return httpx2.Response(status, content=body, headers=headers)

    client = httpx2.Client(transport=httpx2.MockTransport(answer))
    return openai.OpenAI(api_key="k", base_url="http://test/v1", http_client=client, max_retries=0)


def client_for(r: Recording) -> openai.OpenAI:
    kind = "text/event-stream" if r.stream == "sse" else "application/json"
    return sdk(r.body, r.status, kind)


def chat_usage(usage: Any) -> tuple[tuple[int, int, int, int, int], float | None]:
    """From the library's object; what it has no name for, from the keys it kept."""
    raw = usage.to_dict() if usage is not None else {}
    prompt = raw.get("prompt_tokens_details") or {}
    hits = ("prompt_cache_hit_tokens", "num_cached_tokens", "cached_tokens")
    cached = [prompt.get("cached_tokens"), *(raw.get(k) for k in hits)]
    completion = usage.completion_tokens_details if usage is not None else None
    return (
        usage.prompt_tokens if usage is not None else 0,
        usage.completion_tokens if usage is not None else 0,
        next((c for c in cached if c is not None), 0),
        prompt.get("cache_write_tokens") or 0,
        (completion.reasoning_tokens or 0) if completion is not None else 0,
    ), raw.get("cost")


def untagged(content: str) -> tuple[str, str]:
    """(visible, reasoning) of content that begins with a reasoning tag."""
    found = re.match(r"\s*<think>(.*?)</think>\s*(.*)", content, re.S)
    return (found[2], found[1]) if found else (content, "")


def thoughts(deltas: list[Json]) -> str:
    out = []
    for delta in deltas:
        words = delta.get("reasoning_content") or delta.get("reasoning")
        if not words:
            details = delta.get("reasoning_details") or []
            words = "".join(d.get("text") or d.get("summary") or "" for d in details)
        if isinstance(delta.get("content"), list):
            inner = [t for c in delta["content"] for t in c.get("thinking", ())]
            words = "".join(t["text"] for t in inner)
        out.append(words)
    return "".join(out)


def merged(deltas: list[Json]) -> list[Json]:
    """The reasoning details of a stream, each put together from its fragments."""
    out: dict[Any, Json] = {}
    for detail in [d for delta in deltas for d in delta.get("reasoning_details") or ()]:
        whole = out.setdefault((detail["type"], detail.get("index")), {})
        for key, value in detail.items():
            if key in ("text", "summary"):
                value = whole.get(key, "") + value
            if value or key not in whole:
                whole[key] = value
    return list(out.values())


def listed(content: Any) -> str:
    if isinstance(content, list):
        return "".join(c.get("text", "") for c in content if c["type"] == "text")
    return content or ""


# -- chat ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("r", recordings("chat", status=200, stream="sse"))
def test_chat_streams(r: Recording) -> None:
    ours = every_way(r)
    state = ChatCompletionStreamState()
    chunks: list[Any] = []
    failure: openai.APIError | None = None
    plain = b'"content":[' not in r.body
    try:
        for chunk in client_for(r).chat.completions.create(model="m", messages=[], stream=True):
            chunks.append(chunk)
            if plain:
                state.handle_chunk(chunk)
    except openai.APIError as error:
        failure = error
    deltas = [c.choices[0].delta.to_dict() for c in chunks if c.choices]
    calls: list[tuple[str, str, str]] = []
    if plain:
        message = state.current_completion_snapshot.choices[0].message
        text = message.content or ""
        for call in message.tool_calls or ():
            calls.append((call.id, call.function.name, call.function.arguments))  # type: ignore[union-attr]
    else:
        text = "".join(listed(d.get("content")) for d in deltas)
    assert (ours.seen.text, ours.seen.thinking) == (text, thoughts(deltas))
    assert ours.seen.calls == calls
    if failure is not None:
        body: Any = failure.body
        assert ours.failure is not None
        assert ours.failure.message == body["message"]
        assert ours.failure.code == str(body["code"])
        return
    assert ours.failure is None
    assert ours.seen.details == merged(deltas)
    usages = [c.usage for c in chunks if c.usage]
    usages += [
        openai.types.CompletionUsage.construct(**c.x_groq["usage"])
        for c in chunks
        if not usages and "usage" in (getattr(c, "x_groq", None) or {})
    ]
    expected, cost = chat_usage(usages[-1])
    assert (ours.seen.usage, ours.seen.cost) == (expected, cost)
    reasons = [c.choices[0].finish_reason for c in chunks if c.choices]
    assert ours.answer.stop == stop_of([x for x in reasons if x], bool(calls))


@pytest.mark.parametrize("r", recordings("chat", status=200, stream="json"))
def test_chat_bodies(r: Recording) -> None:
    ours = Ours(r)
    completion = client_for(r).chat.completions.create(model="m", messages=[])
    choice = completion.choices[0]
    raw = choice.message.to_dict()
    visible, tagged = untagged(listed(choice.message.content))
    assert ours.seen.text == visible
    assert ours.seen.thinking == thoughts([raw]) + tagged
    assert ours.seen.calls == [
        (c.id, c.function.name, getattr(c.function, "arguments", None) or "")  # type: ignore[union-attr]
        for c in choice.message.tool_calls or ()
    ]
    expected, cost = chat_usage(completion.usage)
    assert (ours.seen.usage, ours.seen.cost) == (expected, cost)
    assert ours.seen.details == (raw.get("reasoning_details") or [])
    assert ours.answer.stop == stop_of([choice.finish_reason], bool(ours.seen.calls))
    # The same body is understood when it comes where a stream was asked for.
    assert Ours(r, cuts(r, 100)).message == ours.message


def stop_of(reasons: list[str], called: bool) -> str:
    if called:
        return "tool_use"
    return {"length": "length", "content_filter": "filtered"}.get(
        reasons[-1] if reasons else "", "end"
    )


# -- responses -----------------------------------------------------------------------------------


def final(r: Recording) -> tuple[Any, list[Any]]:
    """(the response object, items of output_item.done by index)"""
    if r.stream == "json":
        return client_for(r).responses.create(model="m", input=""), []
    items: dict[int, Any] = {}
    response = None
    for event in client_for(r).responses.create(model="m", input="", stream=True):
        if event.type == "response.output_item.done":
            items[event.output_index] = event.item.to_dict()
        elif event.type == "response.completed":
            response = event.response
    assert response is not None
    return response, [items[i] for i in sorted(items)]


def item_thoughts(item: Json) -> str:
    for key in ("content", "summary"):
        texts = [p["text"] for p in item.get(key) or () if p.get("text")]
        if texts:
            return "\n\n".join(texts)
    return ""


@pytest.mark.parametrize("r", recordings("responses", status=200))
def test_responses(r: Recording) -> None:
    ours = every_way(r) if r.stream == "sse" else Ours(r)
    response, done = final(r)
    assert ours.failure is None
    output = [item.to_dict() for item in response.output]
    assert ours.seen.text == response.output_text
    own = [i for i in output if i["type"] == "function_call"]
    assert ours.seen.calls == [(i["call_id"], i["name"], i["arguments"]) for i in own]
    assert ours.seen.thinking == "".join(
        item_thoughts(i) for i in output if i["type"] == "reasoning"
    )
    ordinary = ("message", "function_call", "reasoning")
    native = [i for i in output if i["type"] not in ordinary]
    assert [n["type"] for n in ours.seen.native] == [n["type"] for n in native]
    parsed = {n.get("id"): n for n in done}
    for item in native:
        # Encrypted content differs between the frames for one item: the done frame's counts.
        assert parsed.get(item.get("id"), item) in ours.seen.native
    usage = response.usage
    expected = (0, 0, 0, 0, 0)
    if usage is not None:
        details = usage.input_tokens_details.to_dict()
        expected = (
            usage.input_tokens,
            usage.output_tokens,
            usage.input_tokens_details.cached_tokens,
            details.get("cache_write_tokens") or 0,
            usage.output_tokens_details.reasoning_tokens,
        )
        assert ours.seen.cost == usage.to_dict().get("cost")
    assert ours.seen.usage == expected
    assert ours.answer.stop == ("tool_use" if own else "end")
    assert places(ours.message) == [kind for i in output if (kind := place(i))]
    sealed = [i.get("encrypted_content") for i in (done or output) if i["type"] == "reasoning"]
    kept = [
        (p.extra or {}).get("encrypted_content")
        for p in ours.message.parts
        if isinstance(p, Thinking)
    ]
    assert [s for s in kept if s] == [s for s in sealed if s]


def place(item: Json) -> str:
    match item["type"]:
        case "reasoning":
            readable = item_thoughts(item) or item.get("encrypted_content")
            return "Thinking" if readable else ""
        case "function_call":
            return f"ToolCall {item['call_id']}"
        case "message":
            return "Text"
        case kind:
            return f"Native {kind}"


def places(message: Message) -> list[str]:
    out = []
    for part in message.parts:
        match part:
            case Thinking():
                out.append("Thinking")
            case Text():
                out.append("Text")
            case ToolCall(id=id):
                out.append(f"ToolCall {id}")
            case Native(data=data):
                out.append(f"Native {data['type']}")
    return out


@pytest.mark.parametrize("r", recordings("responses", status=200, stream="json"))
def test_responses_bodies_in_place_of_a_stream(r: Recording) -> None:
    assert Ours(r, cuts(r, 100)).message == Ours(r).message


# -- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "r", [*recordings("chat", status=400), *recordings("responses", status=400)]
)
def test_errors(r: Recording) -> None:
    client = client_for(r)
    with pytest.raises(openai.APIStatusError) as caught:
        if r.api == "chat":
            client.chat.completions.create(model="m", messages=[])
        else:
            client.responses.create(model="m", input="")
    theirs: Any = caught.value.body
    code, message, param = load_wire(r.api).read_error(orjson.loads(r.body), {})
    assert message == theirs["message"]
    assert code == (caught.value.code or theirs["type"])
    assert param == (caught.value.param or "")
    # Some send the same body with status 200: it is the same error.
    ours = Ours(r)
    assert ours.failure is not None
    assert ours.failure.message.startswith(" ".join(message.split())[:400])
    assert ours.failure.code == code
