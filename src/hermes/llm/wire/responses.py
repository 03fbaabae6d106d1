"""The Responses protocol: requests that serialise each item once, and answers."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from hermes.core.errors import Failure, Kind, ProviderError
from hermes.core.message import (
    Media,
    Message,
    Native,
    Part,
    Stop,
    Text,
    Thinking,
    ToolCall,
    ToolReturn,
)
from hermes.core.provider import ResponseSink, ToolSpec
from hermes.llm.provider_spec import Quirks, WireFacts
from hermes.llm.wire.base_decoder import BaseDecoder, raise_error, read_error
from hermes.llm.wire.convert import (
    as_dict,
    as_dicts,
    as_index,
    as_text,
    build_content,
    describe_media,
    locate_media,
    open_list,
)
from hermes.llm.wire.lenient_json import decode_json, encode_json, is_object, to_text
from hermes.llm.wire.message_buffer import MessageForms
from hermes.llm.wire.request_fields import (
    BaseEncoder,
    RequestHead,
    append_path,
    legal_arguments,
    shape_fields,
)
from hermes.llm.wire.tool_schema import describe_tool

__all__ = ["FACTS", "STREAM_TYPE", "Decoder", "Encoder", "build_url", "read_error"]

FACTS = WireFacts(family="chat", list_path="/models", probe=True)
STREAM_TYPE = "text/event-stream"
NO_TERMINAL = "the provider did not emit a terminal response, and nothing usable before the end"
_TEXT_DELTA = "response.output_text.delta"
_TERMINAL = frozenset(
    f"response.{name}" for name in ("completed", "incomplete", "failed", "cancelled", "done")
)
_INCOMPLETE: dict[str, Stop] = {"max_output_tokens": "length", "content_filter": "filtered"}
_CALL_KEYS = frozenset({"type", "id", "call_id", "name", "arguments", "status"})
_SEAM = "\n\n"
"""Separates the parts of a reasoning item."""
ENCRYPTED = "reasoning.encrypted_content"
_NAMELESS = frozenset({"web_search_call", "tool_search_call", "tool_search_output", "compaction"})
"""Items of the provider's own that are accepted without their id; others need it."""
_DROPPED = frozenset({"created_by"})
"""Keys of answers that are refused in requests."""


def build_url(base_url: str, model: str, *, stream: bool) -> str:
    return append_path(base_url, "/responses")


class Encoder(BaseEncoder):
    """Items are only ever appended, so consecutive requests share their prefix. Messages, calls and
    sealed reasoning are sent without their ids: an endpoint that stores no answers would not find
    them."""

    def _encode_group(self, group: Message, before: Message) -> list[MessageForms]:
        return [(encode_json(item), b"") for item in _encode_items(group)]

    def _encode_head(self, head: RequestHead) -> bytes:
        quirks, settings, tools = self._quirks, head.settings, head.tools
        fields: dict[str, Any] = {"model": self._model, "stream": head.stream}
        fields["store"] = quirks.store
        reasons = quirks.effort != "omit" and settings.effort != "none"
        if reasons and quirks.thinking_replay == "keep":
            fields["include"] = [ENCRYPTED]
        if limit := settings.max_output or quirks.max_tokens_default:
            fields["max_output_tokens"] = limit
        if settings.temperature is not None:
            fields["temperature"] = settings.temperature
        if settings.top_p is not None:
            fields["top_p"] = settings.top_p
        if settings.fast and quirks.fast:
            fields["service_tier"] = "priority"
        wanted = settings.answer_schema
        if wanted is not None and quirks.accepts_schema(has_tools=bool(tools)):
            fields["text"] = {"format": {"type": "json_schema", **wanted}}
        if quirks.effort != "omit" and settings.effort is not None:
            fields["reasoning"] = {"effort": settings.effort}
            if reasons:
                fields["reasoning"]["summary"] = "auto"
        if head.system:
            fields["instructions"] = head.system
        if tools and quirks.tools and settings.tool_choice != "none":
            fields["tools"] = [_encode_tool(tool, quirks) for tool in tools]
            if settings.tool_choice == "required":
                named = {"type": "function", "name": settings.tool}
                fields["tool_choice"] = named if settings.tool else "required"
        return open_list(shape_fields(fields, quirks), "input")


def _encode_tool(tool: ToolSpec, quirks: Quirks) -> dict[str, Any]:
    out = {"type": "function", **describe_tool(tool, quirks.schema, "parameters")}
    # Unlike in chat, strict is the default here, and it forbids optional arguments.
    return out if "strict" in quirks.drop else {**out, "strict": False}


def _encode_items(group: Message) -> list[dict[str, Any]]:
    if group.role != "assistant":
        return list(_encode_user(group.parts))
    answered = _answered_ids(group.parts)
    items = [
        item for part in group.parts if (item := _encode_assistant(part, answered)) is not None
    ]
    # Reasoning is refused without the item it led to.
    while items and items[-1].get("type") == "reasoning":
        items.pop()
    return items


def _answered_ids(parts: Sequence[Part]) -> set[str]:
    """Ids of the provider's own calls that have their output in the same answer. Calls without it
    wait for a client to run them, which we never do, and are refused."""
    ids: tuple[set[str], set[str]] = set(), set()
    for part in parts:
        if isinstance(part, Native):
            output = as_text(part.data.get("type")).endswith("_output")
            ids[output].add(as_text(part.data.get("call_id")))
    return (ids[0] & ids[1]) | {""}


def _encode_assistant(part: Part, answered: set[str]) -> dict[str, Any] | None:
    match part:
        case Text(text=text, extra=extra) if text:
            return {"role": "assistant", "content": text, **(extra or {})}
        case Thinking(extra=extra) if extra and (
            extra.get("encrypted_content") or extra.get("content")
        ):
            return {"type": "reasoning", "summary": [], **extra}
        case ToolCall(id=id, name=name, args=args, extra=extra):
            call = {"call_id": id, "name": name, "arguments": legal_arguments(args)}
            return {"type": "function_call", **call, **(extra or {})}
        case Native(data=data) if as_text(data.get("call_id")) in answered:
            dropped = _DROPPED | {"id"} if as_text(data.get("type")) in _NAMELESS else _DROPPED
            return {k: v for k, v in data.items() if k not in dropped}
        case _:
            return None


def _encode_user(parts: Sequence[Part]) -> Iterator[dict[str, Any]]:
    for part in parts:
        if isinstance(part, ToolReturn):
            output = build_content(part.content, "", kind="input_text", show=_encode_media)
            yield {"type": "function_call_output", "call_id": part.call_id, "output": output}
    if rest := [part for part in parts if isinstance(part, Text | Media)]:
        content = build_content(rest, "\n\n", kind="input_text", show=_encode_media)
        yield {"role": "user", "content": content}


def _encode_media(media: Media) -> dict[str, Any]:
    mime, address, data = locate_media(media)
    if mime.startswith("image/"):
        return {"type": "input_image", "image_url": address, "detail": media.detail or "auto"}
    if mime.startswith(("audio/", "video/")):
        return {"type": "input_text", "text": describe_media(media)}
    if data is not None:
        return {"type": "input_file", "filename": media.name or "file", "file_data": address}
    return {"type": "input_file", "file_url": address}


class ResponseEvent(Struct, gc=False):
    """The keys of a stream event that matter. The response object stays unparsed: it echoes
    instructions and tools in every event and matters only in the last."""

    type: Any = ""
    delta: Any = None
    output_index: Any = None
    content_index: Any = None
    summary_index: Any = None
    item: Any = None
    part: Any = None
    text: Any = None
    arguments: Any = None
    refusal: Any = None
    error: Any = None
    response: Raw = Raw()


_decode = msgspec.json.Decoder(ResponseEvent).decode


class _OutputItem:
    """What is known about an output item."""

    __slots__ = ("done", "key", "kind", "part", "source")

    def __init__(self, item: dict[str, Any]) -> None:
        self.kind = as_text(item.get("type"))
        self.key = _item_key(item)
        self.done = False
        self.source = ""
        """Where the text of a reasoning item is read from: summary or content."""
        self.part: Any = None


class Decoder(BaseDecoder):
    """Builds an answer from the items as they are finished, ordered by `output_index`; item ids
    mean nothing across events. The terminal event gives status and usage, and completes only items
    that were begun and not finished."""

    def __init__(self, sink: ResponseSink, quirks: Quirks) -> None:
        super().__init__(sink)
        self._items: dict[int, _OutputItem] = {}
        self._moved: dict[int, int] = {}
        """Sent output index -> our index, for servers that use one index for several items."""
        self._latest = 0
        self._refusals: dict[tuple[int, int], list[str]] = {}
        self._has_text = False
        self._ended = False
        self._response: dict[str, Any] = {}

    @property
    def is_finished(self) -> bool:
        return self._ended

    def _decode_events(self, events: list[tuple[str, bytes]]) -> None:
        pieces: list[str] = []
        position = index = None
        count = 0
        for name, raw in events:
            count += 1
            try:
                event = _decode(raw)
            except (ValueError, RecursionError):
                value = self._decode_odd_event(raw)
                if self._done:
                    break
                if not isinstance(value, dict):
                    count -= 1
                    continue
                event = _convert_event(value)
            # The common case first: this runs for every token.
            if event.type == _TEXT_DELTA and event.delta.__class__ is str:
                if event.output_index != position or event.content_index != index:
                    self._add_text(position, index, pieces)
                    pieces, position, index = [], event.output_index, event.content_index
                pieces.append(event.delta)
                continue
            if pieces:
                self._add_text(position, index, pieces)
                pieces = []
            if not self._ended:
                self._dispatch_event(event, raw, name)
        self.activity += count
        if pieces:
            self._add_text(position, index, pieces)

    def _add_text(self, sent: Any, index: Any, pieces: list[str]) -> None:
        if pieces and not self._ended:
            self._sink.add_text(self._text_slot(self._item_index(sent), index), "".join(pieces))
            self._has_text = True

    def _dispatch_event(self, event: ResponseEvent, raw: bytes, name: str) -> None:
        kind = as_text(event.type)
        if kind in _TERMINAL:
            self._decode_terminal(as_dict(decode_json(bytes(event.response) or b"null")))
        elif not kind.startswith("response."):
            body = decode_json(raw)
            if "error" in (kind, name) or event.error or (not kind and any(read_error(body, {}))):
                raise_error(body)
        elif kind.startswith("response.output_item."):
            self._output_item(kind, event.output_index, as_dict(event.item))
        elif kind.startswith("response.reasoning"):
            self._decode_reasoning(kind, event)
        elif kind.startswith("response.function_call_arguments."):
            self._decode_arguments(kind, event)
        else:
            self._decode_part(kind, event)

    def _decode_part(self, kind: str, event: ResponseEvent) -> None:
        position, part = self._item_index(event.output_index), as_dict(event.part)
        match kind:
            case "response.output_text.done":
                self._complete_text(position, event.content_index, as_text(event.text))
            case "response.content_part.done" if part.get("type") == "output_text":
                self._complete_text(position, event.content_index, as_text(part.get("text")))
            case "response.refusal.delta":
                self._refusal_pieces(position, event.content_index).append(as_text(event.delta))
            case "response.refusal.done":
                self._refusal_pieces(position, event.content_index)[:] = [as_text(event.refusal)]

    def _item_index(self, sent: Any) -> int:
        """Our index of an item; without a sent one it is the latest item."""
        return self._moved.get(sent, sent) if isinstance(sent, int) else self._latest

    def _output_item(self, kind: str, sent: Any, item: dict[str, Any]) -> None:
        position = self._item_index(sent)
        known = self._items.get(position)
        added, numbered = kind.endswith(".added"), isinstance(sent, int)
        again = known and known.done and (added or known.key != _item_key(item))
        if again or (known and added and not numbered):
            position = max(self._items) + 1
            if numbered:
                self._moved[sent] = position
        self._items.setdefault(position, _OutputItem(item))
        self._latest = position
        if not added:
            self._finish_item(position, item)
        elif item.get("type") == "function_call":
            self._start_call(position, item)

    def _current_item(self, position: int, kind: str) -> _OutputItem:
        """The item at this index, added if it was not announced."""
        known = self._items.get(position)
        return known or self._items.setdefault(position, _OutputItem({"type": kind}))

    def _finish_item(self, position: int, item: dict[str, Any]) -> None:
        known = self._current_item(position, "")
        known.kind, known.key, known.done = as_text(item.get("type")), _item_key(item), True
        match known.kind:
            case "message":
                self._finish_message(position, item)
            case "reasoning":
                self._finish_reasoning(position, item, known)
            case "function_call":
                self._start_call(position, item)
                if args := to_text(item.get("arguments")):
                    self._sink.set_args((position, "call"), args)
            case _:
                self._sink.set_native((position, "native"), item)
                self._sink.set_order((position, "native"), (position, 0))

    def _finish_message(self, position: int, item: dict[str, Any]) -> None:
        content = item.get("content")
        parts = as_dicts(content) or [{"type": "output_text", "text": content}]
        phase = item.get("phase")
        for index, part in enumerate(parts):
            if part.get("type") == "refusal":
                self._refusal_pieces(position, index)[:] = [as_text(part.get("refusal"))]
            elif text := as_text(part.get("text")):
                self._complete_text(position, index, text)
                if phase:
                    self._sink.add_extra((position, "text", index), "text", phase=phase)

    def _start_call(self, position: int, item: dict[str, Any]) -> None:
        slot = (position, "call")
        id = as_text(item.get("call_id")) or as_text(item.get("id"))
        self._sink.add_call(slot, id=id, name=as_text(item.get("name")))
        self._sink.set_order(slot, (position, 0))
        extra = {k: v for k, v in item.items() if k not in _CALL_KEYS and v}
        if extra:
            self._sink.add_extra(slot, "call", **extra)

    def _decode_arguments(self, kind: str, event: ResponseEvent) -> None:
        position = self._item_index(event.output_index)
        item = self._current_item(position, "function_call")
        if item.kind != "function_call" or item.done:
            return
        self._sink.set_order((position, "call"), (position, 0))
        if kind.endswith(".delta"):
            self._sink.add_call((position, "call"), args=as_text(event.delta))
        elif args := to_text(event.arguments):
            self._sink.set_args((position, "call"), args)

    def _text_slot(self, position: int, index: Any) -> tuple[int, str, int]:
        """The slot of one text of a message, which may have several with refusals in between."""
        slot = (position, "text", as_index(index))
        self._sink.set_order(slot, (position, slot[2]))
        return slot

    def _complete_text(self, position: int, index: Any, text: str) -> None:
        if text:
            self._sink.complete_part(self._text_slot(position, index), "text", text)
            self._has_text = True

    def _refusal_pieces(self, position: int, index: Any) -> list[str]:
        return self._refusals.setdefault((position, as_index(index)), [])

    def _decode_reasoning(self, kind: str, event: ResponseEvent) -> None:
        if not kind.endswith(".delta"):
            return
        position = self._item_index(event.output_index)
        item = self._current_item(position, "reasoning")
        source, part = "content", event.content_index
        if "summary" in kind:
            source, part = "summary", event.summary_index
        if item.source in ("", source) and (piece := as_text(event.delta)):
            if item.source and item.part != part:
                piece = _SEAM + piece
            item.source, item.part = source, part
            self._sink.add_thinking((position, "thought"), piece)
            self._sink.set_order((position, "thought"), (position, 0))

    def _finish_reasoning(self, position: int, item: dict[str, Any], known: _OutputItem) -> None:
        slot = (position, "thought")
        self._sink.set_order(slot, (position, 0))
        texts = {k: _SEAM.join(_part_texts(item.get(k))) for k in ("content", "summary")}
        text = texts[known.source] if known.source else texts["content"] or texts["summary"]
        if text:
            self._sink.complete_part(slot, "thinking", text)
        extra = {k: item[k] for k in ("encrypted_content", "content") if item.get(k)}
        if "content" in extra and "encrypted_content" not in extra and item.get("id"):
            # Open reasoning is not stored anywhere; servers that return it require its id.
            extra["id"] = item["id"]
        if extra or item.get("summary"):
            self._sink.add_extra(slot, "thinking", summary=item.get("summary") or [], **extra)

    def _decode_value(self, value: dict[str, Any]) -> None:
        if not isinstance(value.get("output"), list) and not value.get("status"):
            if not any(read_error(value, {})):
                raise ProviderError(Failure(Kind.NOT_API, "the answer is no response object"))
            raise_error(value)
        self._decode_terminal(value)
        if not self._items and (text := as_text(value.get("output_text"))):
            self._complete_text(0, 0, text)

    def _decode_terminal(self, response: dict[str, Any]) -> None:
        self._ended = True
        self._response = response
        usage = as_dict(response.get("usage"))
        received = as_dict(usage.get("input_tokens_details"))
        generated = as_dict(usage.get("output_tokens_details"))
        self._sink.count_usage(
            input=usage.get("input_tokens"),
            output=usage.get("output_tokens"),
            cache_read=received.get("cached_tokens"),
            cache_write=received.get("cache_write_tokens"),
            reasoning=generated.get("reasoning_tokens"),
            cost=usage.get("cost"),
        )
        output = as_dicts(response.get("output"))
        if all(
            position < len(output) and output[position].get("type") == item.kind
            for position, item in self._items.items()
        ):
            for position, item in enumerate(output):
                if position not in self._items or not self._items[position].done:
                    self._finish_item(position, item)
        if response.get("error"):
            raise_error(response)
        if response.get("status") == "failed":
            raise ProviderError(Failure(Kind.SERVER, "the response failed without a reason"))

    def _end_answer(self, *, complete: bool) -> None:
        sink = self._sink
        sink.detail = "".join([p for key in sorted(self._refusals) for p in self._refusals[key]])
        calls = [position for position, item in self._items.items() if item.kind == "function_call"]
        whole = all(self._items[p].done or self._has_whole_args(p) for p in calls)
        if not self._ended and not whole:
            sink.stop = "died"
        elif self._ended or calls or self._has_text or sink.detail:
            sink.stop = self._stop_reason(calls)
        else:
            raise ProviderError(Failure(Kind.NO_TERMINAL, NO_TERMINAL))

    def _stop_reason(self, calls: list[int]) -> Stop:
        why = as_text(as_dict(self._response.get("incomplete_details")).get("reason"))
        stop = _INCOMPLETE.get(why, "end")
        if calls:
            cut = stop == "length" and not self._has_whole_args(max(calls))
            return "length" if cut else "tool_use"
        if self._response.get("status") == "cancelled":
            return "died"
        return "filtered" if self._sink.detail else stop

    def _has_whole_args(self, position: int) -> bool:
        return is_object(self._sink.get_args((position, "call")))


def _convert_event(value: dict[str, Any]) -> ResponseEvent:
    """The usable parts of an event that the typed decoder refused."""
    known = {k: v for k, v in value.items() if k in ResponseEvent.__struct_fields__}
    return ResponseEvent(**{**known, "response": Raw(encode_json(value.get("response")))})


def _item_key(item: dict[str, Any]) -> tuple[str, str]:
    return as_text(item.get("type")), as_text(item.get("call_id")) or as_text(item.get("id"))


def _part_texts(parts: Any) -> list[str]:
    return [text for part in as_dicts(parts) if (text := as_text(part.get("text")))]
