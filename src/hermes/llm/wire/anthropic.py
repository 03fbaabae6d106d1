"""Anthropic's Messages protocol: requests that serialise each group once, and answers."""

from base64 import b64decode
from collections.abc import Sequence
from copy import copy
from typing import Any

from msgspec import Struct

from hermes.core.errors import Failure, Kind, ProviderError
from hermes.core.message import (
    Extra,
    Media,
    Message,
    Native,
    Part,
    Stop,
    Target,
    Text,
    Thinking,
    ToolCall,
    ToolReturn,
)
from hermes.core.provider import ResponseSink
from hermes.llm.provider_spec import Quirks, WireFacts
from hermes.llm.wire.base_decoder import BaseDecoder, raise_error, read_error
from hermes.llm.wire.convert import (
    as_dict,
    as_dicts,
    as_index,
    as_text,
    describe_media,
    has_no_content,
    inline_data,
    open_list,
    parse_arguments,
    sum_counts,
)
from hermes.llm.wire.lenient_json import encode_json
from hermes.llm.wire.message_buffer import MARKER, MessageForms
from hermes.llm.wire.request_fields import (
    MAX_TOKENS,
    BaseEncoder,
    RequestHead,
    TurnOpening,
    append_path,
    shape_fields,
    thinking_fields,
)
from hermes.llm.wire.tool_schema import describe_tool

__all__ = ["FACTS", "STREAM_TYPE", "Decoder", "Encoder", "build_url", "read_error"]

FACTS = WireFacts(
    url_pattern=r"^api\.anthropic\.com(?:/|$)|/anthropic$",
    list_path="/v1/models",
    list_marks=("has_more", "first_id"),
    default_output=MAX_TOKENS,
    probe=True,
    typed_errors=True,
)
STREAM_TYPE = "text/event-stream"
_KNOWN = ("text", "thinking", "redacted_thinking", "tool_use")
_CALL_KEYS = ("type", "id", "name", "input", "cache_control")
_STOPS: dict[str, Stop] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "pause_turn": "paused",
    "compaction": "paused",
    "refusal": "filtered",
}
EMPTY = "[empty]"
_THOUGHTS = ("thinking", "redacted_thinking")
_CARRIERS = ("text", "image", "document", "compaction", "container_upload")
"""Blocks that may carry a cache marker, besides calls and results."""


def build_url(base_url: str, model: str, *, stream: bool) -> str:
    versioned = base_url.partition("?")[0].rstrip("/").endswith(("/v1", "/messages"))
    return append_path(base_url, "/messages" if versioned else "/v1/messages")


class Encoder(BaseEncoder):
    """Each closed group is serialised once, the last ones with and without a cache marker. The
    bytes before the messages stay the same as long as system prompt, tools and settings do."""

    def __init__(self, target: Target, quirks: Quirks) -> None:
        self._marks = quirks.cache == "native"
        super().__init__(target, quirks, marks=self._marks)
        self._state = _GroupState()

    def add_group(self, group: Message) -> None:
        message = self._state.encode_group(group, self._quirks)
        self.messages.add_messages([self._encode_forms(message)])

    def build_body(self, pending: Sequence[Message], head: RequestHead) -> bytes:
        state = copy(self._state)
        last = len(pending) - 1
        fresh = [state.encode_group(g, self._quirks, last=i == last) for i, g in enumerate(pending)]
        head = state.opening.fit_head(head, self._quirks)
        return self._join_body(head, map(self._encode_forms, fresh))

    def _encode_forms(self, message: dict[str, Any]) -> MessageForms:
        return encode_json(message), encode_json(_with_marker(message)) if self._marks else b""

    def _encode_head(self, head: RequestHead) -> bytes:
        quirks, settings, system = self._quirks, head.settings, head.system
        limit = settings.max_output or quirks.max_tokens_default or MAX_TOKENS
        fields: dict[str, Any] = {"model": self._model, "max_tokens": limit, "stream": head.stream}
        fields.update(thinking_fields(quirks, settings, limit, quirks.thinking_display))
        thinks = as_dict(fields.get("thinking")).get("type") in ("enabled", "adaptive")
        if settings.temperature is not None and not thinks:
            fields["temperature"] = settings.temperature
        if settings.top_p is not None and settings.temperature is None and not thinks:
            fields["top_p"] = settings.top_p
        if stops := [s for s in settings.stop if s.strip()]:
            fields["stop_sequences"] = stops
        if system.strip():
            marked = [{"type": "text", "text": system, "cache_control": MARKER}]
            fields["system"] = marked if self._marks else system
        if head.tools and quirks.tools:
            fields["tools"] = [describe_tool(t, quirks.schema, "input_schema") for t in head.tools]
            # Declared even if they may not be called: they are part of the cached prefix.
            if settings.tool_choice == "none":
                fields["tool_choice"] = {"type": "none"}
            elif settings.tool_choice == "required":
                named = {"type": "tool", "name": settings.tool}
                fields["tool_choice"] = named if settings.tool else {"type": "any"}
        return open_list(shape_fields(fields, quirks), "messages")


def _with_marker(message: dict[str, Any]) -> dict[str, Any]:
    """The message with a cache marker on its last block that can carry one; reasoning and some
    blocks of the provider's own cannot."""
    blocks = message["content"]
    for n in range(len(blocks) - 1, -1, -1):
        kind = as_text(blocks[n].get("type"))
        if kind in _CARRIERS or kind.endswith(("tool_use", "tool_result")):
            marked = {**blocks[n], "cache_control": MARKER}
            return {**message, "content": [*blocks[:n], marked, *blocks[n + 1 :]]}
    return message


class _GroupState(Struct):
    """What the encoding of a group depends on in the groups before it."""

    opening: TurnOpening = TurnOpening()
    running: frozenset[str] = frozenset()
    """Calls that the provider runs itself and whose results come in a later answer."""

    def encode_group(self, group: Message, quirks: Quirks, *, last: bool = False) -> dict[str, Any]:
        self.opening = self.opening.after_group(group)
        if group.role == "assistant":
            blocks = self._encode_assistant(group.parts, quirks, last)
        else:
            blocks = _encode_user(group.parts)
        blocks = blocks or [{"type": "text", "text": EMPTY}]
        return {"role": group.role, "content": blocks}

    def _encode_assistant(
        self, parts: Sequence[Part], quirks: Quirks, last: bool
    ) -> list[dict[str, Any]]:
        pairs = self._sendable_pairs(parts, last)
        out: list[dict[str, Any]] = []
        for part in parts:
            match part:
                case Text(text=text, extra=extra) if text.strip():
                    out.append({"type": "text", "text": text, **_encode_citations(extra)})
                case Thinking(extra=extra) if extra and "redacted" in extra:
                    out.append({"type": "redacted_thinking", "data": extra["redacted"]})
                case Thinking(text=text, extra=extra) if extra and "signature" in extra:
                    signed = {"thinking": text, "signature": extra["signature"]}
                    out.append({"type": "thinking", **signed})
                case ToolCall(id=id, name=name, args=args, extra=extra):
                    call = {"id": id, "name": name, "input": parse_arguments(args)}
                    out.append({"type": "tool_use", **call, **(extra or {})})
                case Native(data=data) if _tool_pair_id(data) in pairs:
                    out.append(data)
        thinks = any(b.get("type") in _THOUGHTS for b in out)
        return _move_thoughts_first(out) if thinks and quirks.effort == "budget" else out

    def _sendable_pairs(self, parts: Sequence[Part], last: bool) -> set[str]:
        """Ids of the provider's own calls that may be sent: those with a result, and those that the
        provider still runs, next to a call of ours or in a paused answer."""
        natives = [p.data for p in parts if isinstance(p, Native)]
        results = {as_text(d["tool_use_id"]) for d in natives if "tool_use_id" in d}
        calls = {_tool_pair_id(d) for d in natives if "tool_use_id" not in d}
        runs = calls - results if last or any(isinstance(p, ToolCall) for p in parts) else set()
        sendable = {"", *(calls & results), *(self.running & results), *runs}
        self.running = frozenset((self.running - results) | runs)
        return sendable


def _encode_citations(extra: Extra) -> dict[str, Any]:
    """Citations as requests accept them: without the file id that answers have."""
    citations = as_dicts((extra or {}).get("citations"))
    if not citations:
        return {}
    return {"citations": [{k: v for k, v in c.items() if k != "file_id"} for c in citations]}


def _tool_pair_id(data: dict[str, Any]) -> str:
    """The id shared by a call of the provider and its result; empty for other blocks."""
    if "tool_use_id" in data:
        return as_text(data["tool_use_id"])
    return as_text(data.get("id")) if as_text(data.get("type")).endswith("tool_use") else ""


def _move_thoughts_first(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The blocks with reasoning first, as a thinking budget requires. They are in another order
    only if several answers were joined to one group."""
    begin = next(i for i, b in enumerate(blocks) if b.get("type") in _THOUGHTS)
    end = begin
    while end < len(blocks) and blocks[end].get("type") in _THOUGHTS:
        end += 1
    return [*blocks[begin:end], *blocks[:begin], *blocks[end:]]


def _encode_user(parts: Sequence[Part]) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    for part in parts:
        match part:
            case ToolReturn(call_id=id, content=content, error=failed):
                result: dict[str, Any] = {"type": "tool_result", "tool_use_id": id}
                if any(isinstance(p, Media) for p in content):
                    result["content"] = _encode_user(content)
                elif text := part.text:
                    result["content"] = text
                if failed:
                    result["is_error"] = True
                out.append(result)
            case Text(text=text) if text.strip():
                out.append({"type": "text", "text": text})
            case Media():
                out.append(_encode_media(part))
    return out


def _encode_media(media: Media) -> dict[str, Any]:
    held = inline_data(media)
    mime = held[0] if held else media.mime
    kind = "image" if mime.startswith("image/") else "document"
    if held and mime.startswith("text/"):
        text = b64decode(held[1]).decode("utf-8", "replace")
        source = {"type": "text", "media_type": "text/plain", "data": text}
    elif kind == "document" and mime != "application/pdf":
        return {"type": "text", "text": describe_media(media)}
    elif held:
        source = {"type": "base64", "media_type": mime, "data": held[1]}
    else:
        source = {"type": "url", "url": media.url}
    return {"type": kind, "source": source}


class _ContentBlock:
    """An open content block: how it started, and the fragments that the sink does not hold."""

    __slots__ = ("citations", "input", "kind", "signature", "start")

    def __init__(self, start: dict[str, Any]) -> None:
        self.start = start
        self.kind = as_text(start.get("type"))
        self.input: list[str] = []
        self.signature = as_text(start.get("signature"))
        self.citations: list[Any] = []


class Decoder(BaseDecoder):
    """Blocks are identified by index; those that only the provider can run become Native."""

    def __init__(self, sink: ResponseSink, quirks: Quirks) -> None:
        super().__init__(sink)
        self._open: dict[int, _ContentBlock] = {}
        self._usage: dict[str, Any] = {}

    def _decode_value(self, value: dict[str, Any]) -> None:
        if "content" not in value:
            if read_error(value, {}) != ("", "", ""):
                raise_error(value)
            raise ProviderError(Failure(Kind.NOT_API, "the answer is not a Messages answer"))
        content = value["content"]
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        for index, block in enumerate(as_dicts(content)):
            self._start_block(index, block)
            self._stop_block(index)
        self._count_usage(value.get("usage"))
        self._read_stop(value)

    def _decode_event(self, name: str, event: dict[str, Any]) -> None:
        index = as_index(event.get("index"))
        match event.get("type") or name:
            case "content_block_delta":
                self._decode_delta(index, as_dict(event.get("delta")))
            case "content_block_start":
                self._start_block(index, as_dict(event.get("content_block")))
            case "content_block_stop":
                self._stop_block(index)
            case "message_start":
                self._count_usage(as_dict(event.get("message")).get("usage"))
            case "message_delta":
                self._read_stop(as_dict(event.get("delta")))
                self._count_usage(event.get("usage"))
            case "message_stop":
                self._done = True
            case kind if kind == "error" or "error" in event:
                raise_error(event)

    def _start_block(self, index: int, start: dict[str, Any]) -> None:
        block = self._open[index] = _ContentBlock(start)
        sink = self._sink
        match block.kind:
            case "text":
                sink.add_text(index, as_text(start.get("text")))
                for citation in as_dicts(start.get("citations")):
                    self._add_citation(index, block, citation)
            case "thinking":
                sink.add_thinking(index, as_text(start.get("thinking")))
            case "redacted_thinking":
                sink.add_extra(index, "thinking", redacted=start.get("data"))
            case "tool_use":
                sink.add_call(index, id=as_text(start.get("id")), name=as_text(start.get("name")))
                extra = {k: v for k, v in start.items() if k not in _CALL_KEYS and v is not None}
                if extra:
                    sink.add_extra(index, "call", **extra)
            case kind if kind and "input" not in start:
                sink.set_native(index, start)

    def _decode_delta(self, index: int, delta: dict[str, Any]) -> None:
        match delta.get("type"):
            case "text_delta":
                self._sink.add_text(index, as_text(delta.get("text")))
            case "thinking_delta":
                self._sink.add_thinking(index, as_text(delta.get("thinking")))
            case "input_json_delta":
                block = self._open.get(index)
                piece = as_text(delta.get("partial_json"))
                if block is not None and piece:
                    block.input.append(piece)
                    if block.kind == "tool_use":
                        self._sink.add_call(index, args=piece)
            case "signature_delta":
                block = self._open_block(index, "thinking")
                block.signature = as_text(delta.get("signature"))
                if block.kind not in _KNOWN:
                    block.start["signature"] = block.signature
            case "citations_delta":
                self._add_citation(index, self._open_block(index, "text"), delta.get("citation"))
            case _:
                self._grow_unknown(index, delta)

    def _open_block(self, index: int, kind: str) -> _ContentBlock:
        return self._open.setdefault(index, _ContentBlock({"type": kind}))

    def _add_citation(self, index: int, block: _ContentBlock, citation: Any) -> None:
        if not block.citations:
            self._sink.add_extra(index, "text", citations=block.citations)
        block.citations.append(citation)

    def _grow_unknown(self, index: int, delta: dict[str, Any]) -> None:
        """Apply a delta of an unknown kind to an unknown block: texts are appended, except in
        blocks that send all of their text at once."""
        block = self._open.get(index)
        if block is None or block.kind in _KNOWN:
            return
        for key, value in delta.items():
            before = block.start.get(key)
            adds = isinstance(value, str) and isinstance(before, str) and block.kind != "compaction"
            if key != "type" and value is not None:
                block.start[key] = before + value if adds else value

    def _stop_block(self, index: int) -> None:
        sink, block = self._sink, self._open.pop(index, _ContentBlock({}))
        match block.kind:
            case "thinking":
                # Even an empty signature says that the block is complete and may be sent back.
                sink.add_extra(index, "thinking", signature=block.signature)
            case "tool_use":
                if not block.input:
                    sink.add_call(index, args=encode_json(block.start.get("input") or {}).decode())
            case "text" | "redacted_thinking" | "":
                pass
            case _:
                if block.input:
                    block.start["input"] = parse_arguments("".join(block.input))
                sink.set_native(index, block.start)

    def _read_stop(self, delta: dict[str, Any]) -> None:
        self._reason = as_text(delta.get("stop_reason")) or self._reason
        details = as_dict(delta.get("stop_details"))
        explanation = as_text(details.get("explanation")) or as_text(details.get("category"))
        self._sink.detail = explanation or self._sink.detail

    def _count_usage(self, usage: Any) -> None:
        self._usage |= {k: v for k, v in as_dict(usage).items() if v is not None}
        usage = self._usage
        read = usage.get("cache_read_input_tokens")
        written = usage.get("cache_creation_input_tokens")
        self._sink.count_usage(
            input=sum_counts(usage.get("input_tokens"), read, written),
            output=usage.get("output_tokens"),
            cache_read=read,
            cache_write=written,
            reasoning=as_dict(usage.get("output_tokens_details")).get("thinking_tokens"),
        )

    def _end_answer(self, *, complete: bool) -> None:
        sink = self._sink
        if not (complete or self._done or self._reason):
            sink.stop = "died"
            return
        for index in list(self._open):
            self._stop_block(index)
        sink.stop = _STOPS.get(self._reason) or ("tool_use" if sink.call_names else "end")
        if self._reason == "model_context_window_exceeded" and has_no_content(sink):
            text = "the conversation does not fit into the model's context window"
            raise ProviderError(Failure(Kind.CONTEXT_OVERFLOW, text, code=self._reason))
