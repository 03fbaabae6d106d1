"""Anthropic's Messages protocol: request addresses, and the decoding of answers."""

from __future__ import annotations

from typing import Any

from hermes.core.errors import Failure, Kind, ProviderError
from hermes.core.message import Stop
from hermes.core.response_sink import ResponseSink
from hermes.llm.provider_spec import Quirks, WireFacts
from hermes.llm.wire.anthropic_encoder import Encoder
from hermes.llm.wire.base_decoder import BaseDecoder, can_stream, raise_error, read_error
from hermes.llm.wire.convert import (
    as_dict,
    as_dicts,
    as_text,
    has_no_content,
    parse_arguments,
    sum_counts,
)
from hermes.llm.wire.lenient_json import decode_json, encode_json
from hermes.llm.wire.request_fields import MAX_TOKENS, append_path

__all__ = ["FACTS", "STREAM_TYPE", "Decoder", "Encoder", "build_url", "can_stream", "read_error"]

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


def build_url(base_url: str, model: str, *, stream: bool) -> str:
    versioned = base_url.partition("?")[0].rstrip("/").endswith(("/v1", "/messages"))
    return append_path(base_url, "/messages" if versioned else "/v1/messages")


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
        self._reason = ""

    @property
    def is_finished(self) -> bool:
        return self._done or self._reason != ""

    def _decode_events(self, events: list[tuple[str, bytes]]) -> None:
        for name, raw in events:
            try:
                event = decode_json(raw)
            except ValueError:
                event = self._decode_odd_event(raw)
            if self._done:
                return
            if isinstance(event, dict):
                self.activity += 1
                self._decode_event(name, event)

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
        match event.get("type") or name:
            case "content_block_delta":
                self._decode_delta(_block_index(event), as_dict(event.get("delta")))
            case "content_block_start":
                self._start_block(_block_index(event), as_dict(event.get("content_block")))
            case "content_block_stop":
                self._stop_block(_block_index(event))
            case "message_start":
                self._count_usage(as_dict(event.get("message")).get("usage"))
            case "message_delta":
                self._read_stop(as_dict(event.get("delta")))
                self._count_usage(event.get("usage"))
            case "message_stop":
                self._done = True
            case "error":
                raise_error(event)
            case _ if "error" in event:
                raise_error(event)

    # -- blocks ------------------------------------------------------------------------------

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
        block = self._open.pop(index, None)
        if block is None:
            return
        sink = self._sink
        match block.kind:
            case "thinking":
                # Even an empty signature says that the block is complete and may be sent back.
                sink.add_extra(index, "thinking", signature=block.signature)
            case "tool_use":
                if not block.input:
                    sink.add_call(index, args=encode_json(block.start.get("input") or {}).decode())
            case "text" | "redacted_thinking" | "":
                pass
            case _ if not block.input:
                sink.set_native(index, block.start)
            case _:
                sink.set_native(
                    index, {**block.start, "input": parse_arguments("".join(block.input))}
                )

    # -- the end -----------------------------------------------------------------------------

    def _read_stop(self, delta: dict[str, Any]) -> None:
        self._reason = as_text(delta.get("stop_reason")) or self._reason
        details = as_dict(delta.get("stop_details"))
        explanation = as_text(details.get("explanation")) or as_text(details.get("category"))
        self._sink.detail = explanation or self._sink.detail

    def _count_usage(self, usage: Any) -> None:
        for key, value in as_dict(usage).items():
            if value is not None:
                self._usage[key] = value
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


def _block_index(event: dict[str, Any]) -> int:
    index = event.get("index")
    return index if isinstance(index, int) else 0
