"""Amazon Bedrock's Converse protocol: where requests go, and what the answers mean."""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from hermes.core.errors import ConfigError, Failure, Kind, ProviderError
from hermes.core.message import Stop, Target
from hermes.core.response_sink import ResponseSink
from hermes.llm.auth import aws
from hermes.llm.errors.classifier import classify
from hermes.llm.provider_spec import Quirks, WireFacts
from hermes.llm.wire.bedrock_encoder import Encoder
from hermes.llm.wire.convert import arguments, parsed, record, records, string, total
from hermes.llm.wire.lenient_json import dumps, loads

__all__ = ["FACTS", "STREAM_TYPE", "Decoder", "Encoder", "can_stream", "error", "url"]

FACTS = WireFacts(url_pattern=r"^bedrock-runtime\.(?:[^/]*\.)?amazonaws\.com(?:/|$)", signed=True)
STREAM_TYPE = "application/vnd.amazon.eventstream"
_STOPS: dict[str, Stop] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "guardrail_intervened": "filtered",
    "content_filtered": "filtered",
}
_MALFORMED = ("malformed_tool_use", "malformed_model_output")


def url(base_url: str, model: str, *, stream: bool) -> str:
    """An id may be an ARN with slashes and colons: it is one path segment, encoded whole."""
    verb = "converse-stream" if stream else "converse"
    return f"{base_url.rstrip('/')}/model/{quote(model, safe='')}/{verb}"


def can_stream() -> bool:
    return aws.installed()


def error(body: Any, headers: Mapping[str, str]) -> tuple[str, str, str]:
    """The type is in a header, as `Name:address`; behind some gateways in the body."""
    fields = record(body)
    named = {k.lower(): v for k, v in headers.items()}.get("x-amzn-errortype", "")
    code = named or string(fields.get("__type")) or string(fields.get("code"))
    code = code.partition(":")[0].rpartition("#")[2]
    message = fields.get("message") or fields.get("Message")
    return code, string(message), ""


class _Block:
    """A content block under way, as far as the Answer does not hold it."""

    __slots__ = ("called", "citations", "input", "redacted", "signature", "start")

    def __init__(self, start: dict[str, Any]) -> None:
        self.start = start
        self.called = False
        self.input: list[str] = []
        self.signature = ""
        self.redacted: list[bytes] = []
        self.citations: list[Any] = []


class Decoder:
    """Blocks are known by their index; only tool blocks are announced. What the service ran
    itself becomes Native."""

    def __init__(self, sink: ResponseSink, quirks: Quirks) -> None:
        self.activity = 0
        self._sink = sink
        self._frames: aws.Frames | None = None
        self._open: dict[int, _Block] = {}
        self._reason = ""

    @property
    def ended(self) -> bool:
        """Usage follows the reason, but nothing of the answer does."""
        return self._reason != ""

    def feed(self, data: bytes) -> None:
        if self._frames is None:
            try:
                self._frames = aws.Frames()
            except ConfigError as missing:
                raise ProviderError(Failure(Kind.STREAM_UNSUPPORTED, str(missing))) from None
        for headers, payload in self._frames.feed(data):
            self.activity += 1
            try:
                event = record(loads(payload)) if payload else {}
            except ValueError:
                event = {}
            if headers.get(":message-type", "event") == "event":
                self._event(string(headers.get(":event-type")), event)
            else:
                self._fail(headers, event)

    def close(self) -> None:
        self._end(complete=bool(self._reason))

    def whole(self, body: bytes) -> None:
        document = parsed(body)
        self.activity += 1
        message = record(record(record(document).get("output")).get("message"))
        if not message:
            code, said, param = error(document, {})
            if not said:
                said = "the answer is not a Converse answer"
                raise ProviderError(Failure(Kind.NOT_API, said))
            raise ProviderError(classify(status=None, code=code, message=said, param=param))
        for index, block in enumerate(records(message.get("content"))):
            self._whole(index, block)
        self._reason = string(document.get("stopReason"))
        self._count(document.get("usage"))
        self._end(complete=True)

    def _event(self, kind: str, event: dict[str, Any]) -> None:
        index = event.get("contentBlockIndex")
        index = index if isinstance(index, int) else 0
        match kind:
            case "contentBlockDelta":
                self._delta(index, record(event.get("delta")))
            case "contentBlockStart":
                self._start(index, record(event.get("start")))
            case "contentBlockStop":
                self._stop(index)
            case "messageStop":
                self._reason = string(event.get("stopReason")) or "end_turn"
            case "metadata":
                self._count(event.get("usage"))

    def _fail(self, headers: Mapping[str, Any], event: dict[str, Any]) -> None:
        code = string(headers.get(":exception-type")) or string(headers.get(":error-code"))
        said = (
            string(event.get("originalMessage"))
            or error(event, {})[1]
            or string(headers.get(":error-message"))
        )
        status = event.get("originalStatusCode")
        status = status if isinstance(status, int) else None
        raise ProviderError(classify(status=status, code=code, message=said))

    # -- blocks of a plain answer ------------------------------------------------------------

    def _whole(self, index: int, block: dict[str, Any]) -> None:
        sink = self._sink
        use, cited = record(block.get("toolUse")), record(block.get("citationsContent"))
        if isinstance(block.get("text"), str):
            sink.add_text(index, block["text"])
        elif use and use.get("type") != "server_tool_use":
            args = dumps(use.get("input") or {}).decode()
            self._call(index, use)
            sink.add_call(index, args=args)
        elif "reasoningContent" in block:
            self._reasoning(index, record(block["reasoningContent"]))
        elif cited:
            sink.add_text(
                index, "".join(string(c.get("text")) for c in records(cited.get("content")))
            )
            if cited.get("citations"):
                sink.add_extra(index, "text", citations=cited["citations"])
        else:
            sink.set_native(index, block)

    def _reasoning(self, index: int, content: dict[str, Any]) -> None:
        text = record(content.get("reasoningText"))
        if redacted := string(content.get("redactedContent")):
            self._sink.add_extra(index, "thinking", redacted=redacted)
        elif text:
            self._sink.add_thinking(index, string(text.get("text")))
            if signature := string(text.get("signature")):
                self._sink.add_extra(index, "thinking", signature=signature)

    def _call(self, index: int, use: dict[str, Any]) -> None:
        self._sink.add_call(index, id=string(use.get("toolUseId")), name=string(use.get("name")))

    # -- blocks of a stream ------------------------------------------------------------------

    def _start(self, index: int, start: dict[str, Any]) -> None:
        block = self._open[index] = _Block(start)
        use = record(start.get("toolUse"))
        if use and use.get("type") != "server_tool_use":
            block.called = True
            self._call(index, use)

    def _delta(self, index: int, delta: dict[str, Any]) -> None:
        if isinstance(delta.get("text"), str):
            self._sink.add_text(index, delta["text"])
            return
        block = self._open.get(index)
        if block is None:
            block = self._open[index] = _Block({})
        if "toolUse" in delta:
            piece = string(record(delta["toolUse"]).get("input"))
            if piece:
                block.input.append(piece)
                if block.called:
                    self._sink.add_call(index, args=piece)
        elif "reasoningContent" in delta:
            self._thought(index, block, record(delta["reasoningContent"]))
        elif "citation" in delta:
            if not block.citations:
                self._sink.add_extra(index, "text", citations=block.citations)
            block.citations.append(_citation(record(delta["citation"])))
        else:
            _grow(block.start, delta)

    def _thought(self, index: int, block: _Block, delta: dict[str, Any]) -> None:
        if isinstance(delta.get("text"), str):
            self._sink.add_thinking(index, delta["text"])
        block.signature += string(delta.get("signature"))
        if redacted := string(delta.get("redactedContent")):
            try:
                block.redacted.append(b64decode(redacted, validate=True))
            except Base64Error:
                return

    def _stop(self, index: int) -> None:
        block = self._open.pop(index, None)
        if block is None:
            return
        if block.called:
            if not block.input:
                self._sink.add_call(index, args="{}")
        elif block.redacted:
            whole = b64encode(b"".join(block.redacted)).decode()
            self._sink.add_extra(index, "thinking", redacted=whole)
        elif block.signature:
            self._sink.add_extra(index, "thinking", signature=block.signature)
        elif use := record(block.start.get("toolUse")):
            ran = {**use, "input": arguments("".join(block.input))}
            self._sink.set_native(index, {"toolUse": ran})
        elif block.start:
            self._sink.set_native(index, block.start)

    # -- the end -----------------------------------------------------------------------------

    def _count(self, usage: Any) -> None:
        """The same cache counts come under two names; each is looked at once."""
        usage = record(usage)
        read, written = (
            next((n for end in ("s", "Count") if (n := usage.get(name + end)) is not None), None)
            for name in ("cacheReadInputToken", "cacheWriteInputToken")
        )
        self._sink.count_usage(
            input=total(usage.get("inputTokens"), read, written),
            output=usage.get("outputTokens"),
            cache_read=read,
            cache_write=written,
        )

    def _end(self, *, complete: bool) -> None:
        sink, reason = self._sink, self._reason
        if not complete:
            sink.stop = "died"
            return
        for index in list(self._open):
            self._stop(index)
        sink.stop = _STOPS.get(reason) or ("tool_use" if sink.call_names else "end")
        if reason == "model_context_window_exceeded" and self._nothing():
            said = "the conversation does not fit into the model's context window"
            raise ProviderError(Failure(Kind.CONTEXT_OVERFLOW, said, code=reason))
        if reason in _MALFORMED and not sink.call_names:
            # The call the model meant to write is lost: text before it is not a whole answer.
            if self._nothing():
                raise ProviderError(Failure(Kind.EMPTY, reason, code=reason))
            sink.stop = "died"

    def _nothing(self) -> bool:
        message = self._sink.build_message(Target("", "", ""))
        return not message.calls and not message.text.strip()


def _citation(delta: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in delta.items() if k in ("title", "source", "sourceContent", "location")}


def _grow(start: dict[str, Any], delta: dict[str, Any]) -> None:
    """Content of a result or an image the service made: lists add up, objects are merged."""
    for key, value in delta.items():
        inner = start.setdefault(key, {})
        if not isinstance(inner, dict):
            continue
        if isinstance(value, list):
            content = inner.get("content")
            inner["content"] = [*(content if isinstance(content, list) else ()), *value]
        elif isinstance(value, dict):
            inner.update(value)
