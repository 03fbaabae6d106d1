"""The Chat Completions protocol: request addresses, and the decoding of answers."""

from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from hermes.core.errors import Failure, Kind, ProviderError
from hermes.core.message import Stop
from hermes.core.provider import ResponseSink
from hermes.llm.provider_spec import Quirks, WireFacts
from hermes.llm.wire.base_decoder import BaseDecoder, raise_error, read_error
from hermes.llm.wire.chat.encoder import Encoder
from hermes.llm.wire.chat.tool_calls import ToolCallAssembler
from hermes.llm.wire.convert import as_dict, as_dicts, as_text, sum_counts
from hermes.llm.wire.lenient_json import decode_json, to_text
from hermes.llm.wire.request_fields import append_path

if TYPE_CHECKING:
    from hermes.llm.wire.chat.schema_decoder import SchemaDecoder
    from hermes.llm.wire.chat.text_calls import TextCallDecoder

__all__ = ["FACTS", "STREAM_TYPE", "Decoder", "Encoder", "build_url", "read_error"]

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
"""All other stop reasons are a normal end."""
_CACHE_READ = tuple(
    "prompt_cache_hit_tokens num_cached_tokens cached_tokens cache_read_input_tokens".split()
)
_CACHE_WRITE = ("cache_write_tokens", "cache_creation_input_tokens", "cache_creation_tokens")
_COUNTED = ("prompt", "input", "completion", "output")
_TEXT = "text"
_THOUGHT = "thought"


def build_url(base_url: str, model: str, *, stream: bool) -> str:
    return append_path(base_url, "/chat/completions")


class Delta(Struct, gc=False):
    """The keys of a streamed delta or a complete message that matter, of any type."""

    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    reasoning_details: Any = None
    tool_calls: Any = None
    function_call: Any = None
    refusal: Any = None
    audio: Any = None


class ChunkChoice(Struct, gc=False):
    index: Any = None
    delta: Delta | None = None
    message: Delta | None = None
    finish_reason: Any = None
    error: Any = None
    usage: Any = None


class Chunk(Struct, gc=False):
    choices: list[ChunkChoice] | None = None
    usage: Any = None
    error: Any = None
    x_groq: Any = None


_decode = msgspec.json.Decoder(Chunk).decode


class Decoder(BaseDecoder):
    """Passes on the text of one read in one piece. Of everything else the last value counts; null
    never overwrites anything."""

    def __init__(self, sink: ResponseSink, quirks: Quirks) -> None:
        super().__init__(sink)
        self._choice: Any = None
        self._field = ""
        self._refusal: list[str] = []
        self._details: list[dict[str, Any]] = []
        self._pieces: list[list[str]] = []
        """The text fragments of each detail."""
        self._calls = ToolCallAssembler(sink)
        self._text_calls = _open_text_decoder(sink, quirks)
        calls = self._text_calls
        self._add_text = calls.feed if calls else partial(sink.add_text, _TEXT)

    def _decode_events(self, events: list[tuple[str, bytes]]) -> None:
        texts: list[str] = []
        count = 0
        for name, raw in events:
            count += 1
            try:
                chunk = _decode(raw)
            except (ValueError, RecursionError):
                value = self._decode_odd_event(raw)
                if self._done:
                    break
                if value is None:
                    count -= 1
                    continue
                chunk = _convert_chunk(value)
            choices = chunk.choices
            # The common case first, without any repeated lookup: this runs for every token.
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
                self._add_text("".join(texts))
                texts = []
            self._decode_chunk(chunk, name, raw)
        self.activity += count
        if texts:
            self._add_text("".join(texts))

    def _decode_chunk(self, chunk: Chunk, name: str, raw: bytes) -> None:
        self._count_usage(chunk)
        if chunk.error or name == "error":
            raise_error(decode_json(raw))
        if words := as_text(as_dict(chunk.x_groq).get("error")):
            raise_error({"error": words})
        if not chunk.choices:
            if chunk.choices is None and any(read_error(body := decode_json(raw), {})):
                raise_error(body)
            return
        if self._choice is None:  # if there are several, the one that came first
            self._choice = (chunk.choices[0].index or 0) if self._sink.is_empty else 0
        choice = next((c for c in chunk.choices if (c.index or 0) == self._choice), None)
        if choice is None:
            return
        if choice.delta is not None:
            self._decode_delta(choice.delta)
        elif choice.message is not None and self._sink.is_empty:
            self._decode_message(choice.message)
        self._read_ending(choice)

    def _read_ending(self, choice: ChunkChoice) -> None:
        if choice.finish_reason:
            self._reason = to_text(choice.finish_reason).lower()
        if choice.error:
            raise_error({"error": choice.error})

    def _decode_value(self, value: dict[str, Any]) -> None:
        if value.get("error") or not isinstance(value.get("choices"), list):
            if not any(read_error(value, {})):
                raise ProviderError(Failure(Kind.NOT_API, "the answer is no chat completion"))
            raise_error(value)
        chunk = _convert_chunk(value)
        self._count_usage(chunk)
        if chunk.choices:
            choice = chunk.choices[0]
            self._decode_message(choice.message or choice.delta or Delta())
            self._read_ending(choice)

    def _decode_message(self, message: Delta) -> None:
        """Decode a complete message, in which each element of `tool_calls` is a call."""
        calls, message.tool_calls = as_dicts(message.tool_calls), None
        details, message.reasoning_details = as_dicts(message.reasoning_details), None
        if details and not (message.reasoning_content or message.reasoning):
            self._add_thinking("".join([_detail_text(d) for d in details]), "reasoning_details")
        self._decode_delta(message)
        self._details = [dict(d) for d in details]
        for call in calls:
            self._calls.add_fragment({**call, "index": len(self._calls)})

    def _decode_delta(self, delta: Delta) -> None:
        if delta.reasoning_content or delta.reasoning or delta.reasoning_details:
            self._decode_reasoning(delta)
        if isinstance(delta.content, str):
            self._add_text(delta.content)
        elif delta.content:
            self._decode_list(delta.content)
        elif words := as_text(as_dict(delta.audio).get("transcript")):
            self._add_text(words)
        if isinstance(delta.refusal, str) and delta.refusal:
            self._refusal.append(delta.refusal)
        for fragment in as_dicts(delta.tool_calls):
            self._calls.add_fragment(fragment)
        if delta.function_call:
            function = as_dict(delta.function_call)
            if function.get("name") or function.get("arguments"):
                self._calls.add_fragment({"index": -1, "function": function})

    def _decode_list(self, content: Any) -> None:
        """Decode content that is a list of reasoning and text."""
        items = content if isinstance(content, list) else [content]
        for item in as_dicts([{"text": i} if isinstance(i, str) else i for i in items]):
            match item.get("type"):
                case "thinking":
                    inner = item.get("thinking")
                    words = [as_text(t.get("text")) for t in as_dicts(inner)] or [as_text(inner)]
                    self._add_thinking("".join(words), "content")
                case "text" | "output_text" | None:
                    self._add_text(as_text(item.get("text")))
                case "refusal":
                    self._refusal.append(as_text(item.get("refusal")))

    def _decode_reasoning(self, delta: Delta) -> None:
        """Decode reasoning; the same text may be in two fields of one or two deltas and counts
        once."""
        details = as_dicts(delta.reasoning_details)
        if words := as_text(delta.reasoning_content):
            self._add_thinking(words, "reasoning_content")
        elif words := as_text(delta.reasoning):
            self._add_thinking(words, "reasoning")
        elif details and self._field in ("", "reasoning_details"):
            self._add_thinking("".join([_detail_text(d) for d in details]), "reasoning_details")
        for detail in details:
            self._add_detail(detail)

    def _add_thinking(self, words: str, field: str) -> None:
        self._sink.add_thinking(_THOUGHT, words)
        if field != self._field:
            self._field = field
            self._sink.add_extra(_THOUGHT, "thinking", field=field)

    def _add_detail(self, fragment: dict[str, Any]) -> None:
        """Join the fragments of a detail, so that it can be sent back whole."""
        position = self._find_detail(fragment)
        if position is None:
            self._details.append(dict(fragment))
            self._pieces.append([_detail_text(fragment)])
            return
        detail = self._details[position]
        self._pieces[position].append(_detail_text(fragment))
        for name, value in fragment.items():
            if name not in detail or (value and name not in ("text", "summary")):
                detail[name] = value

    def _find_detail(self, fragment: dict[str, Any]) -> int | None:
        """Index of the detail that a fragment continues: same type and index, or without an index
        the last one. Encrypted details come complete."""
        if "data" in fragment:
            return None
        kind, index, id = (fragment.get(k) for k in ("type", "index", "id"))
        for position in range(len(self._details) - 1, -1, -1):
            detail = self._details[position]
            same = (detail.get("type"), detail.get("index")) == (kind, index)
            if same and (not id or detail.get("id") in (None, id)):
                return position
            if index is None:
                return None
        return None

    def _count_usage(self, chunk: Chunk) -> None:
        usage = chunk.usage or (chunk.x_groq and as_dict(chunk.x_groq).get("usage"))
        if not usage and chunk.choices:
            usage = chunk.choices[0].usage
        if isinstance(usage, dict):
            self._sink.count_usage(**read_usage(usage))

    def _end_answer(self, *, complete: bool) -> None:
        sink = self._sink
        if self._text_calls:
            self._text_calls.close()
        sink.calling = (
            "native" if self._calls else self._text_calls.form if self._text_calls else ""
        )
        if self._details:
            for detail, pieces in zip(self._details, self._pieces, strict=False):
                words = "summary" if "summary" in detail else "text"
                if words in detail:
                    detail[words] = "".join(pieces)
            sink.add_extra(_THOUGHT, "thinking", reasoning_details=self._details)
        sink.detail = "".join(self._refusal)
        sink.stop = self._stop_reason() if complete or self.is_finished else "died"

    def _stop_reason(self) -> Stop:
        reason = _STOPS.get(self._reason, "end")
        if reason == "died":
            words = f"the provider broke off the answer: {self._reason}"
            raise ProviderError(Failure(Kind.SERVER, words, code=self._reason))
        if self._reason == _FULL and self._sink.is_empty:
            raise ProviderError(Failure(Kind.CONTEXT_OVERFLOW, self._reason, code=self._reason))
        if self._calls or (self._text_calls and self._text_calls.calls):
            calls = self._calls or self._text_calls
            return "length" if reason == "length" and calls and calls.is_cut else "tool_use"
        return "filtered" if self._refusal else reason


def _open_text_decoder(
    sink: ResponseSink, quirks: Quirks
) -> "SchemaDecoder | TextCallDecoder | None":
    """The decoder of text that may contain calls; None: it does not."""
    match quirks.calling:
        case "schema" if quirks.tools:
            from hermes.llm.wire.chat.schema_decoder import SchemaDecoder

            return SchemaDecoder(sink, _TEXT)
        case "text" if sink.offered_tools:
            from hermes.llm.wire.chat.text_calls import TextCallDecoder

            return TextCallDecoder(sink, _TEXT)
        case _:
            return None


def _convert_chunk(value: Any) -> Chunk:
    """The usable parts of a chunk of unexpected shape."""
    value = as_dict(value)
    choices: list[ChunkChoice] = []
    for choice in as_dicts(value.get("choices")):
        known = {k: v for k, v in choice.items() if k in ChunkChoice.__struct_fields__}
        for name in ("delta", "message"):
            inner = choice.get(name)
            known[name] = msgspec.convert(inner, Delta) if isinstance(inner, dict) else None
        choices.append(ChunkChoice(**known))
    return Chunk(choices, value.get("usage"), value.get("error"), value.get("x_groq"))


def _detail_text(detail: dict[str, Any]) -> str:
    return as_text(detail.get("text")) or as_text(detail.get("summary"))


def read_usage(usage: dict[str, Any]) -> dict[str, Any]:
    """Our counts from a usage object, under all the field names servers use."""
    details = {name: as_dict(usage.get(f"{name}_tokens_details")) for name in _COUNTED}
    prompt = details["prompt"] or details["input"]
    completion = details["completion"] or details["output"]
    sent = usage.get("prompt_tokens", usage.get("input_tokens"))
    output = usage.get("completion_tokens", usage.get("output_tokens"))
    reasoning = _largest_count(completion.get("reasoning_tokens"), usage.get("reasoning_tokens"))
    if reasoning and sum_counts(sent, output, reasoning) == usage.get("total_tokens"):
        output = sum_counts(output, reasoning)  # here the completion does not include the reasoning
    return {
        "input": sent,
        "output": output,
        "cache_read": _largest_count(prompt.get("cached_tokens"), *map(usage.get, _CACHE_READ)),
        "cache_write": _largest_count(
            *map(prompt.get, _CACHE_WRITE), usage.get("cache_creation_input_tokens")
        ),
        "reasoning": reasoning,
        "cost": usage.get("cost"),
    }


def _largest_count(*counts: Any) -> Any:
    """The largest of counts that mean the same; None: there is none."""
    found = [c for c in counts if isinstance(c, int | float)]
    return max(found) if found else None
