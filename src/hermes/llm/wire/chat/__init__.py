"""The Chat Completions protocol: where requests go, and what the answers mean."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from hermes.core.errors import Failure, Kind, ProviderError
from hermes.core.message import Stop
from hermes.core.response_sink import ResponseSink
from hermes.llm.provider_spec import Quirks, WireFacts
from hermes.llm.wire import lenient_json as jsonic
from hermes.llm.wire.base_decoder import Reader, can_stream, error, fail
from hermes.llm.wire.chat.encoder import Encoder
from hermes.llm.wire.chat.tool_calls import Calls
from hermes.llm.wire.convert import record, records, string, total

if TYPE_CHECKING:
    from hermes.llm.wire.chat.schema_decoder import Steps
    from hermes.llm.wire.chat.text_calls import SpokenCalls

__all__ = ["FACTS", "STREAM_TYPE", "Decoder", "Encoder", "can_stream", "error", "url"]

FACTS = WireFacts(server_path="/v1", list_path="/models", probe=True)
STREAM_TYPE = "text/event-stream"
_FULL = "model_context_window_exceeded"
_STOPS: dict[str, Stop] = {
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    _FULL: "length",
    "content_filter": "filtered",
    "safety": "filtered",
    "sensitive": "filtered",
    "error": "died",
    "network_error": "died",
    "insufficient_system_resource": "died",
}
"""All other reasons are a normal end."""
_TEXT = "text"
_THOUGHT = "thought"


def url(base_url: str, model: str, *, stream: bool) -> str:
    base, mark, query = base_url.partition("?")
    base = base.rstrip("/")
    if not base.endswith("/chat/completions"):
        base += "/chat/completions"
    return base + mark + query


class Delta(Struct, gc=False):
    """A streamed delta or a complete message: the keys that mean something, whatever their type."""

    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    reasoning_details: Any = None
    tool_calls: Any = None
    function_call: Any = None
    refusal: Any = None
    audio: Any = None


class Choice(Struct, gc=False):
    index: Any = None
    delta: Delta | None = None
    message: Delta | None = None
    finish_reason: Any = None
    error: Any = None
    usage: Any = None


class Chunk(Struct, gc=False):
    choices: list[Choice] | None = None
    usage: Any = None
    error: Any = None
    x_groq: Any = None


_decode = msgspec.json.Decoder(Chunk).decode


class Decoder(Reader):
    """One answer. Text of one read is handed on in one piece; of everything else the last word
    counts, and null never takes anything back."""

    def __init__(self, sink: ResponseSink, quirks: Quirks) -> None:
        super().__init__(sink)
        self._choice: Any = None
        self._finish = ""
        self._field = ""
        self._refusal: list[str] = []
        self._details: list[dict[str, Any]] = []
        self._pieces: list[list[str]] = []
        """Text fragments of each of the details."""
        self._calls = Calls(sink)
        self._said = _listener(sink, quirks)
        self._say = self._said.feed if self._said else partial(sink.add_text, _TEXT)

    @property
    def ended(self) -> bool:
        return self._done or self._finish != ""

    # -- streams -----------------------------------------------------------------------------

    def _take(self, events: list[tuple[str, bytes]]) -> None:
        texts: list[str] = []
        count = 0
        for name, raw in events:
            count += 1
            try:
                chunk = _decode(raw)
            except (ValueError, RecursionError):
                value = self._odd(raw)
                if self._done:
                    break
                if value is None:
                    count -= 1
                    continue
                chunk = _convert(value)
            choices = chunk.choices
            # The common case first, and nothing in it twice: this runs for every token.
            if choices and not (chunk.usage or chunk.error or name):
                delta = choices[0].delta
                if (
                    delta is not None
                    and not (choices[0].index or self._choice)
                    and delta.content.__class__ is str
                    and not (
                        delta.tool_calls
                        or delta.reasoning
                        or delta.reasoning_content
                        or delta.reasoning_details
                        or delta.function_call
                        or delta.refusal
                        or choices[0].finish_reason
                        or chunk.x_groq
                    )
                ):
                    texts.append(delta.content)
                    continue
            if texts:
                self._say("".join(texts))
                texts = []
            self._chunk(chunk, name, raw)
        self.activity += count
        if texts:
            self._say("".join(texts))

    def _chunk(self, chunk: Chunk, name: str, raw: bytes) -> None:
        self._count(chunk)
        if chunk.error or name == "error":
            fail(jsonic.loads(raw))
        if words := string(record(chunk.x_groq).get("error")):
            fail({"error": words})
        if not chunk.choices:
            if chunk.choices is None and any(error(body := jsonic.loads(raw), {})):
                fail(body)
            return
        choice = self._ours(chunk.choices)
        if choice is None:
            return
        if choice.delta is not None:
            self._delta(choice.delta)
        elif choice.message is not None and self._sink.is_empty:
            self._message(choice.message)
        self._ending(choice)

    def _ours(self, choices: list[Choice]) -> Choice | None:
        """Of several answers to one request the first to speak is heard, to its end."""
        if self._choice is None:
            self._choice = (choices[0].index or 0) if self._sink.is_empty else 0
        return next((c for c in choices if (c.index or 0) == self._choice), None)

    def _ending(self, choice: Choice) -> None:
        if choice.finish_reason:
            self._finish = jsonic.text(choice.finish_reason).lower()
        if choice.error:
            fail({"error": choice.error})

    # -- complete bodies ---------------------------------------------------------------------

    def _body(self, value: dict[str, Any]) -> None:
        if value.get("error") or not isinstance(value.get("choices"), list):
            if not any(error(value, {})):
                raise ProviderError(Failure(Kind.NOT_API, "the answer is no chat completion"))
            fail(value)
        chunk = _convert(value)
        self._count(chunk)
        if chunk.choices:
            choice = chunk.choices[0]
            self._message(choice.message or choice.delta or Delta())
            self._ending(choice)

    def _message(self, message: Delta) -> None:
        """In a complete message each element of `tool_calls` is a call, whatever its index."""
        calls, message.tool_calls = records(message.tool_calls), None
        details, message.reasoning_details = records(message.reasoning_details), None
        if details and not (message.reasoning_content or message.reasoning):
            self._think("".join([_words(d) for d in details]), "reasoning_details")
        self._delta(message)
        self._details = [dict(d) for d in details]
        for call in calls:
            self._calls.add({**call, "index": len(self._calls)})

    # -- pieces of the answer ----------------------------------------------------------------

    def _delta(self, delta: Delta) -> None:
        if delta.reasoning_content or delta.reasoning or delta.reasoning_details:
            self._reason(delta)
        if isinstance(delta.content, str):
            self._say(delta.content)
        elif delta.content:
            self._listed(delta.content)
        elif words := string(record(delta.audio).get("transcript")):
            self._say(words)
        if isinstance(delta.refusal, str) and delta.refusal:
            self._refusal.append(delta.refusal)
        for fragment in records(delta.tool_calls):
            self._calls.add(fragment)
        if delta.function_call:
            function = record(delta.function_call)
            if function.get("name") or function.get("arguments"):
                self._calls.add({"index": -1, "function": function})

    def _listed(self, content: Any) -> None:
        """Content as a list: reasoning and text side by side."""
        items = content if isinstance(content, list) else [content]
        for item in records([{"text": i} if isinstance(i, str) else i for i in items]):
            match item.get("type"):
                case "thinking":
                    inner = item.get("thinking")
                    words = [string(t.get("text")) for t in records(inner)] or [string(inner)]
                    self._think("".join(words), "content")
                case "text" | "output_text" | None:
                    self._say(string(item.get("text")))
                case "refusal":
                    self._refusal.append(string(item.get("refusal")))

    def _reason(self, delta: Delta) -> None:
        """The same words may stand in two fields, of one delta or of two: they count once."""
        details = records(delta.reasoning_details)
        if words := string(delta.reasoning_content):
            self._think(words, "reasoning_content")
        elif words := string(delta.reasoning):
            self._think(words, "reasoning")
        elif details and self._field in ("", "reasoning_details"):
            self._think("".join([_words(d) for d in details]), "reasoning_details")
        for detail in details:
            self._detail(detail)

    def _think(self, words: str, field: str) -> None:
        self._sink.add_thinking(_THOUGHT, words)
        if field != self._field:
            self._field = field
            self._sink.add_extra(_THOUGHT, "thinking", field=field)

    def _detail(self, fragment: dict[str, Any]) -> None:
        """Fragments of one detail add up, so that it goes back whole."""
        at = self._detail_of(fragment)
        if at is None:
            self._details.append(dict(fragment))
            self._pieces.append([_words(fragment)])
            return
        detail = self._details[at]
        self._pieces[at].append(_words(fragment))
        for name, value in fragment.items():
            if name not in detail or (value and name not in ("text", "summary")):
                detail[name] = value

    def _detail_of(self, fragment: dict[str, Any]) -> int | None:
        """Where the detail is that a fragment continues: same type, same index; without index,
        the one before it. Encrypted ones come whole."""
        if "data" in fragment:
            return None
        kind, index, id = (fragment.get(k) for k in ("type", "index", "id"))
        for at in range(len(self._details) - 1, -1, -1):
            detail = self._details[at]
            same = (detail.get("type"), detail.get("index")) == (kind, index)
            if same and (not id or detail.get("id") in (None, id)):
                return at
            if index is None:
                return None
        return None

    # -- the end -----------------------------------------------------------------------------

    def _count(self, chunk: Chunk) -> None:
        usage = chunk.usage or (chunk.x_groq and record(chunk.x_groq).get("usage"))
        if not usage and chunk.choices:
            usage = chunk.choices[0].usage
        if isinstance(usage, dict):
            self._sink.count_usage(**counted(usage))

    def _end(self, *, complete: bool) -> None:
        sink = self._sink
        if self._said:
            self._said.close()
        if self._details:
            for detail, pieces in zip(self._details, self._pieces, strict=False):
                words = "summary" if "summary" in detail else "text"
                if words in detail:
                    detail[words] = "".join(pieces)
            sink.add_extra(_THOUGHT, "thinking", reasoning_details=self._details)
        sink.detail = "".join(self._refusal)
        if not (complete or self._finish or self._done):
            sink.stop = "died"
            return
        sink.stop = self._stop()

    def _stop(self) -> Stop:
        reason = _STOPS.get(self._finish, "end")
        if reason == "died":
            words = f"the provider broke the answer off: {self._finish}"
            raise ProviderError(Failure(Kind.SERVER, words, code=self._finish))
        if self._finish == _FULL and self._sink.is_empty:
            raise ProviderError(Failure(Kind.CONTEXT_OVERFLOW, self._finish, code=self._finish))
        if self._calls or (self._said and self._said.calls):
            cut = self._calls.cut if self._calls else self._said is not None and self._said.cut
            return "length" if reason == "length" and cut else "tool_use"
        return "filtered" if self._refusal else reason


def _listener(sink: ResponseSink, quirks: Quirks) -> Steps | SpokenCalls | None:
    """Who reads the text where calls may stand in it."""
    match quirks.calling:
        case "schema" if quirks.tools:
            from hermes.llm.wire.chat.schema_decoder import Steps

            return Steps(sink, _TEXT)
        case "text" if sink.offered_tools:
            from hermes.llm.wire.chat.text_calls import SpokenCalls

            return SpokenCalls(sink, _TEXT)
        case _:
            return None


def _convert(value: Any) -> Chunk:
    """JSON of an unexpected shape: what can be used of it."""
    value = record(value)
    choices: list[Choice] = []
    for choice in records(value.get("choices")):
        delta, message = choice.get("delta"), choice.get("message")
        choices.append(
            Choice(
                choice.get("index"),
                msgspec.convert(delta, Delta) if isinstance(delta, dict) else None,
                msgspec.convert(message, Delta) if isinstance(message, dict) else None,
                choice.get("finish_reason"),
                choice.get("error"),
                choice.get("usage"),
            )
        )
    return Chunk(choices, value.get("usage"), value.get("error"), value.get("x_groq"))


def _words(detail: dict[str, Any]) -> str:
    return string(detail.get("text")) or string(detail.get("summary"))


def counted(usage: dict[str, Any]) -> dict[str, Any]:
    """Our counts from a usage object, under all the names servers use."""
    prompt = record(usage.get("prompt_tokens_details")) or record(usage.get("input_tokens_details"))
    completion = record(usage.get("completion_tokens_details"))
    completion = completion or record(usage.get("output_tokens_details"))
    sent = usage.get("prompt_tokens", usage.get("input_tokens"))
    output = usage.get("completion_tokens", usage.get("output_tokens"))
    reasoning = _largest(completion.get("reasoning_tokens"), usage.get("reasoning_tokens"))
    if reasoning and total(sent, output, reasoning) == usage.get("total_tokens"):
        output = total(output, reasoning)  # here reasoning is on top of the completion
    return {
        "input": sent,
        "output": output,
        "cache_read": _largest(
            prompt.get("cached_tokens"),
            usage.get("prompt_cache_hit_tokens"),
            usage.get("num_cached_tokens"),
            usage.get("cached_tokens"),
            usage.get("cache_read_input_tokens"),
        ),
        "cache_write": _largest(
            prompt.get("cache_write_tokens"),
            prompt.get("cache_creation_input_tokens"),
            prompt.get("cache_creation_tokens"),
            usage.get("cache_creation_input_tokens"),
        ),
        "reasoning": reasoning,
        "cost": usage.get("cost"),
    }


def _largest(*counts: Any) -> Any:
    """One number under several names; None when it has none of them."""
    found = [c for c in counts if isinstance(c, int | float)]
    return max(found) if found else None
