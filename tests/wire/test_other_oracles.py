"""Every recording of the Messages, generateContent and Converse protocols decodes to what the
vendors' own libraries make of it, however the stream is cut."""

from __future__ import annotations

import random
import re
import warnings
from base64 import b64encode, urlsafe_b64decode
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

import msgspec
import orjson
import pytest

from hermes.core.errors import Kind, ProviderError
from hermes.core.message import Message, Native, Target, Text, Thinking, ToolCall
from hermes.llm.errors.classifier import classify_error
from hermes.llm.provider_spec import Quirks
from hermes.llm.response_builder import ResponseBuilder
from hermes.llm.wire import load_wire
from tests.wire.recordings import ROOT, Recording, load

pytestmark = pytest.mark.skipif(not ROOT.is_dir(), reason="no recordings beside the project")
APIS = ("anthropic", "gemini", "bedrock")


class Seen(msgspec.Struct):
    """What an answer says, whoever decoded it."""

    text: str = ""
    thinking: list[str] = []
    sealed: list[str] = []
    """Signatures and encrypted reasoning, in order."""
    calls: list[tuple[str, str, Any]] = []
    native: list[Any] = []
    cited: list[Any] = []
    usage: tuple[int, int, int, int, int] = (0, 0, 0, 0, 0)
    stop: str = ""


def recordings(*, status: int, stream: bool | None = None) -> list[Any]:
    out = []
    for api in APIS:
        for r in load(api):
            streamed = r.stream != "json"
            if (r.status == 200) == (status == 200) and stream in (None, streamed):
                out.append(pytest.param(r, id=f"{api}-{r.name}"))
    return out


# -- ours ----------------------------------------------------------------------------------------


def ours(
    r: Recording, chunks: Iterable[bytes] | None = None
) -> tuple[Seen, Message, ResponseBuilder]:
    answer = ResponseBuilder()
    decoder = load_wire(r.api).Decoder(answer, Quirks())
    if r.stream == "json":
        decoder.decode_document(r.body)
    else:
        for chunk in chunks or [r.body]:
            decoder.feed(chunk)
            answer.drain_events()
        decoder.close()
    answer.finish_events()
    message = answer.build_message(Target("p", "m", r.api))
    extras = [p.extra or {} for p in message.parts if isinstance(p, Text | Thinking | ToolCall)]
    keys = ("signature", "redacted", "thoughtSignature")
    usage = answer.usage
    seen = Seen(
        text=message.text,
        thinking=[p.text for p in message.parts if isinstance(p, Thinking) and p.text],
        sealed=[_bytes(e[k]) for e in extras for k in keys if e.get(k)],
        calls=[(c.id, c.name, orjson.loads(c.args)) for c in message.calls],
        native=[p.data for p in message.parts if isinstance(p, Native)],
        cited=[c for e in extras for c in e.get("citations") or ()],
        usage=(usage.input, usage.output, usage.cache_read, usage.cache_write, usage.reasoning),
        stop=message.stop or "",
    )
    return seen, message, answer


def _bytes(sealed: str) -> str:
    """Base64 in either alphabet, as one."""
    return sealed.replace("-", "+").replace("_", "/").rstrip("=")


# -- theirs --------------------------------------------------------------------------------------


def anthropic_oracle(r: Recording) -> Seen:
    message = _anthropic(r)
    blocks = list(message.content)
    usage = message.usage
    read, written = usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0
    details = getattr(usage, "output_tokens_details", None)
    thoughts = details.thinking_tokens if details else 0
    thinking = [b for b in blocks if b.type == "thinking"]
    known = ("text", "thinking", "redacted_thinking", "tool_use")
    sealed = []
    for b in blocks:
        match b.type:
            case "thinking":
                sealed.append(b.signature)
            case "redacted_thinking":
                sealed.append(b.data)
    return Seen(
        text="".join(b.text for b in blocks if b.type == "text"),
        thinking=[b.thinking for b in thinking if b.thinking],
        sealed=[_bytes(s) for s in sealed if s],
        calls=[(b.id, b.name, b.input) for b in blocks if b.type == "tool_use"],
        native=[b.to_dict() for b in blocks if b.type not in known],
        cited=[c.to_dict() for b in blocks if b.type == "text" for c in b.citations or ()],
        usage=(usage.input_tokens + read + written, usage.output_tokens, read, written, thoughts),
        stop=message.stop_reason,
    )


@cache
def _anthropic_client() -> Any:
    import anthropic
    import httpx2

    def answer(request: httpx2.Request) -> httpx2.Response:
        r = _current[0]
        kind = "text/event-stream" if r.stream == "sse" else "application/json"
        return httpx2.Response(200, content=r.body, headers={"content-type": kind})

    client = httpx2.Client(transport=httpx2.MockTransport(answer))
    return anthropic.Anthropic(api_key="k", http_client=client, max_retries=0)


_current: list[Recording] = []


def _anthropic(r: Recording) -> Any:
    _current[:] = [r]
    api = _anthropic_client().beta.messages
    request = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "x"}]}
    if r.stream == "json":
        return api.create(**request)
    with api.stream(**request) as stream:
        return stream.get_final_message()


@cache
def _google_client() -> Any:
    import httpx
    from google import genai

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=_current[0].body)

    client = httpx.Client(transport=httpx.MockTransport(answer))
    return genai.Client(api_key="k", http_options={"httpx_client": client})


def gemini_oracle(r: Recording) -> Seen:
    _current[:] = [r]
    models = _google_client().models
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if r.stream == "json":
            chunks = [models.generate_content(model="m", contents="x")]
        else:
            chunks = list(models.generate_content_stream(model="m", contents="x"))
    seen = Seen()
    counts: dict[str, int] = {}
    for chunk in chunks:
        for candidate in chunk.candidates or ():
            for part in (candidate.content.parts if candidate.content else None) or ():
                _gemini_part(seen, part)
            if candidate.finish_reason:
                seen.stop = candidate.finish_reason.value
        for name, value in chunk.usage_metadata or ():
            if isinstance(value, int):
                counts[name] = value
    thoughts = counts.get("thoughts_token_count", 0)
    seen.usage = (
        counts.get("prompt_token_count", 0) + counts.get("tool_use_prompt_token_count", 0),
        counts.get("candidates_token_count", 0) + thoughts,
        counts.get("cached_content_token_count", 0),
        0,
        thoughts,
    )
    return seen


def _gemini_part(seen: Seen, part: Any) -> None:
    if part.function_call:
        call = part.function_call
        seen.calls.append((call.id or "", call.name, call.args or {}))
    elif part.text is not None and part.thought:
        seen.thinking.append(part.text)
    elif part.text is not None:
        seen.text += part.text
    else:
        raw = part.model_dump(mode="json", by_alias=True, exclude_none=True)
        seen.native.append(_camel(raw))
        return
    if part.thought_signature:
        seen.sealed.append(_bytes(b64encode(part.thought_signature).decode()))


def _camel(value: Any) -> Any:
    """As it was on the wire: the library writes base64 in the other alphabet."""
    if isinstance(value, dict) and "thoughtSignature" in value:
        return {**value, "thoughtSignature": _bytes(value["thoughtSignature"])}
    return value


@cache
def _converse() -> tuple[Any, Any]:
    from botocore.session import Session

    service = Session().get_service_model("bedrock-runtime")
    return service.operation_model("Converse"), service.operation_model("ConverseStream")


def bedrock_oracle(r: Recording) -> Seen:
    from botocore.parsers import create_parser

    parser = create_parser("rest-json")
    parser._default_timestamp_parser = None
    plain, streamed = _converse()
    seen = Seen()
    if r.stream == "json":
        raw = {"status_code": 200, "headers": {}, "body": r.body}
        parsed = parser.parse(raw, plain.output_shape)
        for block in parsed["output"]["message"]["content"]:
            _converse_block(seen, block)
        seen.stop, usage = parsed["stopReason"], parsed["usage"]
    else:
        usage = _converse_stream(seen, r, streamed)
    read, written = usage.get("cacheReadInputTokens", 0), usage.get("cacheWriteInputTokens", 0)
    seen.usage = (usage["inputTokens"] + read + written, usage["outputTokens"], read, written, 0)
    # The models of Amazon think aloud in the text.
    inside = re.findall(r"(?s)<thinking>(.*?)(?:</thinking>|\Z)", seen.text)
    seen.thinking += inside
    seen.text = re.sub(r"(?s)<thinking>.*?(?:</thinking>\s*|\Z)", "", seen.text)
    return seen


def _converse_stream(seen: Seen, r: Recording, streamed: Any) -> dict[str, Any]:
    from botocore.eventstream import EventStream
    from botocore.parsers import EventStreamJSONParser

    class Raw:
        def stream(self) -> Iterator[bytes]:
            yield r.body

    shape = streamed.get_event_stream_output()
    blocks: dict[int, dict[str, Any]] = {}
    usage: dict[str, Any] = {}
    for event in EventStream(Raw(), shape, EventStreamJSONParser(), "ConverseStream"):
        ((kind, data),) = event.items()
        index = data.get("contentBlockIndex")
        match kind:
            case "contentBlockStart":
                blocks[index] = {"toolUse": {**data["start"]["toolUse"], "input": ""}}
            case "contentBlockDelta":
                _merge(blocks.setdefault(index, {}), data["delta"])
            case "messageStop":
                seen.stop = data["stopReason"]
            case "metadata":
                usage = data["usage"]
    for _, block in sorted(blocks.items()):
        if "toolUse" in block:
            block["toolUse"]["input"] = orjson.loads(block["toolUse"]["input"] or "{}")
        _converse_block(seen, block)
    return usage


def _merge(block: dict[str, Any], delta: dict[str, Any]) -> None:
    if "text" in delta:
        block["text"] = block.get("text", "") + delta["text"]
    if "toolUse" in delta:
        block["toolUse"]["input"] += delta["toolUse"]["input"]
    if "reasoningContent" in delta:
        inner = block.setdefault("reasoningContent", {})
        text = inner.setdefault("reasoningText", {"text": ""})
        thought = delta["reasoningContent"]
        text["text"] += thought.get("text", "")
        if "signature" in thought:
            text["signature"] = thought["signature"]
        if "redactedContent" in thought:
            inner["redactedContent"] = (
                inner.get("redactedContent", b"") + thought["redactedContent"]
            )


def _converse_block(seen: Seen, block: dict[str, Any]) -> None:
    if "text" in block:
        seen.text += block["text"]
    elif "reasoningContent" in block:
        thought = block["reasoningContent"]
        text = thought.get("reasoningText", {})
        if text.get("text"):
            seen.thinking.append(text["text"])
        if text.get("signature"):
            seen.sealed.append(_bytes(text["signature"]))
        if thought.get("redactedContent"):
            seen.sealed.append(_bytes(b64encode(thought["redactedContent"]).decode()))
    elif "toolUse" in block and block["toolUse"].get("type") != "server_tool_use":
        use = block["toolUse"]
        seen.calls.append((use["toolUseId"], use["name"], use["input"]))
    else:
        seen.native.append(block)


ORACLES: dict[str, Callable[[Recording], Seen]] = {
    "anthropic": anthropic_oracle,
    "gemini": gemini_oracle,
    "bedrock": bedrock_oracle,
}
STOPS = {"end_turn": "end", "stop_sequence": "end", "max_tokens": "length", "STOP": "end"}


# -- the comparison ------------------------------------------------------------------------------


@pytest.mark.parametrize("r", recordings(status=200))
def test_same_answer_as_the_vendors_library(r: Recording) -> None:
    theirs = ORACLES[r.api](r)
    if theirs.stop == "MODEL_ARMOR":
        with pytest.raises(ProviderError) as caught:
            ours(r)
        assert caught.value.failure.kind is Kind.CONTENT_POLICY
        assert caught.value.failure.message
        return
    mine, _, answer = ours(r)
    assert answer.usage.estimated is False
    stop = STOPS.get(theirs.stop, theirs.stop)
    assert mine.stop == ("tool_use" if theirs.calls else stop)
    if r.api == "gemini":
        # Ids it did not give are made up, and differ.
        assert all(id for id, _, _ in mine.calls)
        assert len({id for id, _, _ in mine.calls}) == len(mine.calls)
        mine.calls = [
            (id if given else "", *rest)
            for (id, *rest), (given, *_) in zip(mine.calls, theirs.calls, strict=True)
        ]
        mine.native = [_camel(n) for n in mine.native]
        theirs.thinking = ["".join(theirs.thinking)] if theirs.thinking else []
    if r.api == "bedrock":
        assert [t.strip() for t in mine.thinking] == [t.strip() for t in theirs.thinking]
        mine.thinking = theirs.thinking
    mine.stop = theirs.stop
    assert mine == theirs


def cut(body: bytes, sizes: Iterator[int]) -> Iterator[bytes]:
    at = 0
    while at < len(body):
        size = next(sizes)
        yield body[at : at + size]
        at += size


@pytest.mark.parametrize("r", recordings(status=200, stream=True))
def test_every_chunking_gives_the_same_answer(r: Recording) -> None:
    whole = _without_made_up_ids(ours(r)[1])
    for seed in range(6):
        rng = random.Random(f"{r.name}{seed}")
        most = (1, 2, 7, 60, 400, 5000)[seed]
        sizes = iter(lambda rng=rng, most=most: rng.randint(1, most), 0)
        assert _without_made_up_ids(ours(r, cut(r.body, sizes))[1]) == whole


@pytest.mark.parametrize("r", recordings(status=200, stream=True))
def test_a_stream_cut_short_died_and_kept_what_had_come(r: Recording) -> None:
    full = ours(r)[1]
    rng = random.Random(r.name)
    for _ in range(12):
        at = rng.randrange(len(r.body) // 2)
        part, message, _ = ours(r, [r.body[:at]])
        if message.stop != "died":
            assert r.api == "gemini", "the last frame of a short stream came in the first half"
            continue
        assert full.text.startswith(re.sub(r"<\w*$", "", part.text))
        assert "".join(full.thinking.split()).startswith("".join(message.thinking.split()))


def _without_made_up_ids(message: Message) -> Message:
    parts = tuple(
        ToolCall(str(i), p.name, p.args, p.extra) if isinstance(p, ToolCall) else p
        for i, p in enumerate(message.parts)
    )
    return msgspec.structs.replace(message, parts=parts)


@pytest.mark.parametrize("r", recordings(status=400))
def test_errors_give_the_providers_words(r: Recording) -> None:
    code, message, _ = load_wire(r.api).read_error(orjson.loads(r.body), {})
    said = r.response["error"]["message"] if r.api == "gemini" else r.response["message"]
    assert message == said
    failure = classify_error(status=r.status, code=code, message=message)
    assert failure.kind is not Kind.UNKNOWN
    with pytest.raises(ProviderError) as caught:  # the same body behind a 200
        ours(r)
    assert said[:200] in caught.value.failure.message


def test_signatures_survive_either_alphabet() -> None:
    assert urlsafe_b64decode("_-8=") == b"\xff\xef"
    assert _bytes("_-8=") == _bytes("/+8=")
