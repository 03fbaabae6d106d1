"""Amazon Bedrock's Converse protocol: request addresses, and the decoding of answers."""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from hermes.core.errors import ConfigError, Failure, Kind, ProviderError
from hermes.core.message import Stop
from hermes.core.response_sink import ResponseSink
from hermes.llm.auth import aws
from hermes.llm.errors.classifier import classify_error
from hermes.llm.provider_spec import Quirks, WireFacts
from hermes.llm.wire.bedrock_encoder import Encoder
from hermes.llm.wire.convert import (
    as_dict,
    as_dicts,
    as_text,
    has_no_content,
    parse_arguments,
    parse_document,
    sum_counts,
)
from hermes.llm.wire.lenient_json import decode_json, encode_json

__all__ = ["FACTS", "STREAM_TYPE", "Decoder", "Encoder", "build_url", "can_stream", "read_error"]

FACTS = WireFacts(url_pattern=r"^bedrock-runtime\.(?:[^/]*\.)?amazonaws\.com(?:/|$)", signed=True)
STREAM_TYPE = "application/vnd.amazon.eventstream"
_STOPS: dict[str, Stop] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "guardrail_intervened": "filtered",
    "content_filtered": "filtered",
}
_MALFORMED = ("malformed_tool_use", "malformed_model_output")


def build_url(base_url: str, model: str, *, stream: bool) -> str:
    """The model id may be an ARN with slashes and colons: it is encoded as one path segment."""
    verb = "converse-stream" if stream else "converse"
    return f"{base_url.rstrip('/')}/model/{quote(model, safe='')}/{verb}"


def can_stream() -> bool:
    return aws.is_installed()


def read_error(body: Any, headers: Mapping[str, str]) -> tuple[str, str, str]:
    """The error type is in a header, as `Name:address`, or in the body behind some gateways."""
    fields = as_dict(body)
    named = {k.lower(): v for k, v in headers.items()}.get("x-amzn-errortype", "")
    code = named or as_text(fields.get("__type")) or as_text(fields.get("code"))
    code = code.partition(":")[0].rpartition("#")[2]
    message = fields.get("message") or fields.get("Message")
    return code, as_text(message), ""


class _ConverseBlock:
    """What the sink does not hold of an open content block."""

    __slots__ = ("called", "citations", "input", "redacted", "signature", "start")

    def __init__(self, start: dict[str, Any]) -> None:
        self.start = start
        self.called = False
        self.input: list[str] = []
        self.signature = ""
        self.redacted: list[bytes] = []
        self.citations: list[Any] = []


class Decoder:
    """Blocks are identified by index; only tool blocks are announced. What the service ran itself
    becomes Native."""

    def __init__(self, sink: ResponseSink, quirks: Quirks) -> None:
        self.activity = 0
        self._sink = sink
        self._frames: aws.FrameParser | None = None
        self._open: dict[int, _ConverseBlock] = {}
        self._reason = ""

    @property
    def is_finished(self) -> bool:
        """After the stop reason only the usage follows."""
        return self._reason != ""

    def feed(self, data: bytes) -> None:
        if self._frames is None:
            try:
                self._frames = aws.FrameParser()
            except ConfigError as missing:
                raise ProviderError(Failure(Kind.STREAM_UNSUPPORTED, str(missing))) from None
        for headers, payload in self._frames.feed(data):
            self.activity += 1
            try:
                event = as_dict(decode_json(payload)) if payload else {}
            except ValueError:
                event = {}
            if headers.get(":message-type", "event") == "event":
                self._decode_event(as_text(headers.get(":event-type")), event)
            else:
                self._raise_error(headers, event)

    def close(self) -> None:
        self._end_answer(complete=bool(self._reason))

    def decode_document(self, body: bytes) -> None:
        document = parse_document(body)
        self.activity += 1
        message = as_dict(as_dict(as_dict(document).get("output")).get("message"))
        if not message:
            code, text, param = read_error(document, {})
            if not text:
                text = "the answer is not a Converse answer"
                raise ProviderError(Failure(Kind.NOT_API, text))
            raise ProviderError(classify_error(status=None, code=code, message=text, param=param))
        for index, block in enumerate(as_dicts(message.get("content"))):
            self._decode_block(index, block)
        self._reason = as_text(document.get("stopReason"))
        self._count_usage(document.get("usage"))
        self._end_answer(complete=True)

    def _decode_event(self, kind: str, event: dict[str, Any]) -> None:
        index = event.get("contentBlockIndex")
        index = index if isinstance(index, int) else 0
        match kind:
            case "contentBlockDelta":
                self._decode_delta(index, as_dict(event.get("delta")))
            case "contentBlockStart":
                self._start_block(index, as_dict(event.get("start")))
            case "contentBlockStop":
                self._stop_block(index)
            case "messageStop":
                self._reason = as_text(event.get("stopReason")) or "end_turn"
            case "metadata":
                self._count_usage(event.get("usage"))

    def _raise_error(self, headers: Mapping[str, Any], event: dict[str, Any]) -> None:
        code = as_text(headers.get(":exception-type")) or as_text(headers.get(":error-code"))
        text = (
            as_text(event.get("originalMessage"))
            or read_error(event, {})[1]
            or as_text(headers.get(":error-message"))
        )
        status = event.get("originalStatusCode")
        status = status if isinstance(status, int) else None
        raise ProviderError(classify_error(status=status, code=code, message=text))

    # -- blocks of a plain answer ------------------------------------------------------------

    def _decode_block(self, index: int, block: dict[str, Any]) -> None:
        sink = self._sink
        use, cited = as_dict(block.get("toolUse")), as_dict(block.get("citationsContent"))
        if isinstance(block.get("text"), str):
            sink.add_text(index, block["text"])
        elif use and use.get("type") != "server_tool_use":
            args = encode_json(use.get("input") or {}).decode()
            self._add_call(index, use)
            sink.add_call(index, args=args)
        elif "reasoningContent" in block:
            self._decode_reasoning(index, as_dict(block["reasoningContent"]))
        elif cited:
            sink.add_text(
                index, "".join(as_text(c.get("text")) for c in as_dicts(cited.get("content")))
            )
            if cited.get("citations"):
                sink.add_extra(index, "text", citations=cited["citations"])
        else:
            sink.set_native(index, block)

    def _decode_reasoning(self, index: int, content: dict[str, Any]) -> None:
        text = as_dict(content.get("reasoningText"))
        if redacted := as_text(content.get("redactedContent")):
            self._sink.add_extra(index, "thinking", redacted=redacted)
        elif text:
            self._sink.add_thinking(index, as_text(text.get("text")))
            if signature := as_text(text.get("signature")):
                self._sink.add_extra(index, "thinking", signature=signature)

    def _add_call(self, index: int, use: dict[str, Any]) -> None:
        self._sink.add_call(index, id=as_text(use.get("toolUseId")), name=as_text(use.get("name")))

    # -- blocks of a stream ------------------------------------------------------------------

    def _start_block(self, index: int, start: dict[str, Any]) -> None:
        block = self._open[index] = _ConverseBlock(start)
        use = as_dict(start.get("toolUse"))
        if use and use.get("type") != "server_tool_use":
            block.called = True
            self._add_call(index, use)

    def _decode_delta(self, index: int, delta: dict[str, Any]) -> None:
        if isinstance(delta.get("text"), str):
            self._sink.add_text(index, delta["text"])
            return
        block = self._open.get(index)
        if block is None:
            block = self._open[index] = _ConverseBlock({})
        if "toolUse" in delta:
            piece = as_text(as_dict(delta["toolUse"]).get("input"))
            if piece:
                block.input.append(piece)
                if block.called:
                    self._sink.add_call(index, args=piece)
        elif "reasoningContent" in delta:
            self._decode_thought(index, block, as_dict(delta["reasoningContent"]))
        elif "citation" in delta:
            if not block.citations:
                self._sink.add_extra(index, "text", citations=block.citations)
            block.citations.append(_read_citation(as_dict(delta["citation"])))
        else:
            _grow_block(block.start, delta)

    def _decode_thought(self, index: int, block: _ConverseBlock, delta: dict[str, Any]) -> None:
        if isinstance(delta.get("text"), str):
            self._sink.add_thinking(index, delta["text"])
        block.signature += as_text(delta.get("signature"))
        if redacted := as_text(delta.get("redactedContent")):
            try:
                block.redacted.append(b64decode(redacted, validate=True))
            except Base64Error:
                return

    def _stop_block(self, index: int) -> None:
        block = self._open.pop(index, None)
        if block is None:
            return
        if block.called:
            if not block.input:
                self._sink.add_call(index, args="{}")
        elif block.redacted:
            joined = b64encode(b"".join(block.redacted)).decode()
            self._sink.add_extra(index, "thinking", redacted=joined)
        elif block.signature:
            self._sink.add_extra(index, "thinking", signature=block.signature)
        elif use := as_dict(block.start.get("toolUse")):
            ran = {**use, "input": parse_arguments("".join(block.input))}
            self._sink.set_native(index, {"toolUse": ran})
        elif block.start:
            self._sink.set_native(index, block.start)

    # -- the end -----------------------------------------------------------------------------

    def _count_usage(self, usage: Any) -> None:
        """The cache counts have two names each; only one of them counts."""
        usage = as_dict(usage)
        read, written = (
            next((n for end in ("s", "Count") if (n := usage.get(name + end)) is not None), None)
            for name in ("cacheReadInputToken", "cacheWriteInputToken")
        )
        self._sink.count_usage(
            input=sum_counts(usage.get("inputTokens"), read, written),
            output=usage.get("outputTokens"),
            cache_read=read,
            cache_write=written,
        )

    def _end_answer(self, *, complete: bool) -> None:
        sink, reason = self._sink, self._reason
        if not complete:
            sink.stop = "died"
            return
        for index in list(self._open):
            self._stop_block(index)
        sink.stop = _STOPS.get(reason) or ("tool_use" if sink.call_names else "end")
        if reason == "model_context_window_exceeded" and has_no_content(self._sink):
            text = "the conversation does not fit into the model's context window"
            raise ProviderError(Failure(Kind.CONTEXT_OVERFLOW, text, code=reason))
        if reason in _MALFORMED and not sink.call_names:
            # The call that the model wrote is lost, so the text before it is no complete answer.
            if has_no_content(self._sink):
                raise ProviderError(Failure(Kind.EMPTY, reason, code=reason))
            sink.stop = "died"


def _read_citation(delta: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in delta.items() if k in ("title", "source", "sourceContent", "location")}


def _grow_block(start: dict[str, Any], delta: dict[str, Any]) -> None:
    """Add to a result or an image that the service made: lists are joined, objects merged."""
    for key, value in delta.items():
        inner = start.setdefault(key, {})
        if not isinstance(inner, dict):
            continue
        if isinstance(value, list):
            content = inner.get("content")
            inner["content"] = [*(content if isinstance(content, list) else ()), *value]
        elif isinstance(value, dict):
            inner.update(value)
