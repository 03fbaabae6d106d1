"""Amazon Bedrock's Converse protocol: requests that serialise each group once, and answers."""

import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from msgspec import Struct, structs

from hermes.core.errors import Failure, Kind, ProviderError
from hermes.core.message import (
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
from hermes.core.provider import ResponseSink, Settings, ToolSpec
from hermes.llm.errors.classifier import classify_error
from hermes.llm.provider_spec import Quirks, WireFacts
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
    parse_document,
    sum_counts,
)
from hermes.llm.wire.event_frames import FrameParser
from hermes.llm.wire.lenient_json import decode_json, encode_json
from hermes.llm.wire.message_buffer import MessageForms
from hermes.llm.wire.request_fields import (
    LEVELS,
    MAX_TOKENS,
    BaseEncoder,
    RequestHead,
    TurnOpening,
    shape_fields,
    thinking_fields,
)
from hermes.llm.wire.tool_schema import describe_tool

__all__ = ["FACTS", "STREAM_TYPE", "Decoder", "Encoder", "build_url", "read_error"]

FACTS = WireFacts(url_pattern=r"^bedrock-runtime\.(?:[^/]*\.)?amazonaws\.com(?:/|$)", signed=True)
STREAM_TYPE = "application/vnd.amazon.eventstream"
_STOPS: dict[str, Stop] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "guardrail_intervened": "filtered",
    "content_filtered": "filtered",
}
_CITED = ("title", "source", "sourceContent", "location")
_MALFORMED = ("malformed_tool_use", "malformed_model_output")
EMPTY = "[empty]"
ATTACHED = "See the attached document."
"""Sent with documents, which Converse refuses without a text."""
_OFFICE = "application/vnd.openxmlformats-officedocument"
_KINDS = {
    "image/png": ("image", "png"),
    "image/jpeg": ("image", "jpeg"),
    "image/jpg": ("image", "jpeg"),
    "image/gif": ("image", "gif"),
    "image/webp": ("image", "webp"),
    "application/pdf": ("document", "pdf"),
    "text/csv": ("document", "csv"),
    "text/html": ("document", "html"),
    "text/markdown": ("document", "md"),
    "text/plain": ("document", "txt"),
    "application/msword": ("document", "doc"),
    f"{_OFFICE}.wordprocessingml.document": ("document", "docx"),
    "application/vnd.ms-excel": ("document", "xls"),
    f"{_OFFICE}.spreadsheetml.sheet": ("document", "xlsx"),
    "video/mp4": ("video", "mp4"),
    "video/webm": ("video", "webm"),
    "video/quicktime": ("video", "mov"),
    "video/x-matroska": ("video", "mkv"),
    "video/mpeg": ("video", "mpeg"),
}
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9()\[\]-]+")


def build_url(base_url: str, model: str, *, stream: bool) -> str:
    """The model id may be an ARN with slashes and colons: it is encoded as one path segment."""
    verb = "converse-stream" if stream else "converse"
    return f"{base_url.rstrip('/')}/model/{quote(model, safe='')}/{verb}"


def read_error(body: Any, headers: Mapping[str, str]) -> tuple[str, str, str]:
    """The error type is in a header, as `Name:address`, or in the body behind some gateways."""
    fields = as_dict(body)
    named = {k.lower(): v for k, v in headers.items()}.get("x-amzn-errortype", "")
    code = named or as_text(fields.get("__type")) or as_text(fields.get("code"))
    code = code.partition(":")[0].rpartition("#")[2]
    message = fields.get("message") or fields.get("Message")
    return code, as_text(message), ""


class Encoder(BaseEncoder):
    """Each closed group is serialised once. The bytes before the messages stay the same as long as
    system prompt, tools and settings do."""

    def __init__(self, target: Target, quirks: Quirks) -> None:
        super().__init__(target, quirks)
        self._called: dict[str, None] = {}
        """Names of the tools that the history calls."""
        self._documents = 0
        """Documents in the history so far: their names must differ."""
        self._opening = TurnOpening()

    def add_group(self, group: Message) -> None:
        self.messages.add_messages([(_encode_group(group, self._documents), b"")])
        self._documents += _count_documents(group)
        self._called |= {call.name: None for call in group.calls}
        self._opening = self._opening.after_group(group)

    def build_body(self, pending: Sequence[Message], head: RequestHead) -> bytes:
        fresh: list[MessageForms] = []
        called, documents, opening = dict(self._called), self._documents, self._opening
        for i, group in enumerate(pending):
            fresh.append((_encode_group(group, documents, last=i == len(pending) - 1), b""))
            documents += _count_documents(group)
            called |= {call.name: None for call in group.calls}
            opening = opening.after_group(group)
        head = opening.fit_head(head, self._quirks)
        # Converse cannot forbid calls, and refuses calls in the messages when no tool is declared:
        # tools that were called stay declared.
        if head.settings.tool_choice == "none" and not called:
            head = structs.replace(head, tools=())
        elif called and not head.tools:
            schema = {"type": "object", "properties": {}}
            stubs = [ToolSpec(name, "No longer available.", schema) for name in called]
            head = structs.replace(head, tools=tuple(stubs))
        return self._join_body(head, fresh)

    def _encode_head(self, head: RequestHead) -> bytes:
        quirks, settings, tools = self._quirks, head.settings, head.tools
        fields: dict[str, Any] = {}
        if head.system.strip():
            fields["system"] = [{"text": head.system}]
        if tools and quirks.tools:
            specs = [describe_tool(tool, quirks.schema, "inputSchema") for tool in tools]
            listed = [{"toolSpec": {**s, "inputSchema": {"json": s["inputSchema"]}}} for s in specs]
            fields["toolConfig"] = {"tools": listed}
            if settings.tool_choice == "required":
                choice = {"tool": {"name": settings.tool}} if settings.tool else {"any": {}}
                fields["toolConfig"]["toolChoice"] = choice
        limit = settings.max_output or quirks.max_tokens_default
        extra = _thinking_fields(quirks, settings, limit or MAX_TOKENS)
        thinks = as_dict(extra.get("thinking")).get("type") in ("enabled", "adaptive")
        config: dict[str, Any] = {}
        if limit or thinks:
            config["maxTokens"] = limit or MAX_TOKENS
        if settings.temperature is not None and not thinks:
            config["temperature"] = settings.temperature
        if settings.top_p is not None and settings.temperature is None and not thinks:
            config["topP"] = settings.top_p
        if settings.stop:
            config["stopSequences"] = list(settings.stop)
        for name, inner in (("inferenceConfig", config), ("additionalModelRequestFields", extra)):
            kept = {k: v for k, v in inner.items() if k not in quirks.drop}
            if kept:
                fields[name] = kept
        return open_list(shape_fields(fields, quirks), "messages")


def _thinking_fields(quirks: Quirks, settings: Settings, limit: int) -> dict[str, Any]:
    """The fields that ask for reasoning, which differ by model family; Converse passes them on."""
    effort = settings.effort
    if effort is None:
        return {}
    match quirks.effort:
        case "budget" | "adaptive":
            return thinking_fields(quirks, settings, limit)
        case "object" if effort == "none":
            return {"reasoningConfig": {"type": "disabled"}}
        case "object":
            level = {"maxReasoningEffort": LEVELS[effort]}
            return {"reasoningConfig": {"type": "enabled", **level}}
        case "effort" if effort != "none":
            return {"reasoning_effort": LEVELS[effort]}
        case _:
            return {}


def _encode_group(group: Message, documents: int, *, last: bool = False) -> bytes:
    if group.role == "assistant":
        blocks = _encode_assistant(group.parts, last)
    else:
        blocks = _encode_user(group.parts, documents)
        if any("document" in b for b in blocks) and not any("text" in b for b in blocks):
            blocks.append({"text": ATTACHED})
    return encode_json({"role": group.role, "content": blocks or [{"text": EMPTY}]})


def _encode_assistant(parts: Sequence[Part], last: bool) -> list[dict[str, Any]]:
    ran = _sendable_pairs(parts, last)
    out: list[dict[str, Any]] = []
    for part in parts:
        match part:
            case Text(text=text, extra=extra) if text.strip():
                if extra and extra.get("citations"):
                    cited = {"content": [{"text": text}], "citations": extra["citations"]}
                    out.append({"citationsContent": cited})
                else:
                    out.append({"text": text})
            case Thinking(text=text, extra=extra) if extra and extra.get("signature"):
                signed = {"text": text, "signature": extra["signature"]}
                out.append({"reasoningContent": {"reasoningText": signed}})
            case Thinking(extra=extra) if extra and extra.get("redacted"):
                out.append({"reasoningContent": {"redactedContent": extra["redacted"]}})
            case ToolCall(id=id, name=name, args=args):
                call = {"toolUseId": id, "name": name, "input": parse_arguments(args)}
                out.append({"toolUse": call})
            case Native(data=data) if _tool_pair_id(data) in ran:
                out.append(data)
    return out


def _sendable_pairs(parts: Sequence[Part], last: bool) -> set[str]:
    """Ids of the service's own calls that have their result in the same answer. Only such pairs may
    be sent, except in the answer that the service is to continue."""
    natives = [p.data for p in parts if isinstance(p, Native)]
    calls = {_tool_pair_id(d) for d in natives if "toolUse" in d}
    results = {_tool_pair_id(d) for d in natives if "toolResult" in d}
    return {"", *(calls if last else calls & results), *(calls & results)}


def _tool_pair_id(data: dict[str, Any]) -> str:
    block = as_dict(data.get("toolUse")) or as_dict(data.get("toolResult"))
    return as_text(block.get("toolUseId"))


def _encode_user(parts: Sequence[Part], documents: int) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    for part in parts:
        match part:
            case ToolReturn(call_id=id, content=content, error=failed):
                inner = _encode_user(content, documents)
                documents += sum("document" in b for b in inner)
                status = "error" if failed else "success"
                result = {"toolUseId": id, "content": inner or [{"text": EMPTY}], "status": status}
                out.append({"toolResult": result})
            case Text(text=text) if text.strip():
                out.append({"text": text})
            case Media():
                block = _encode_media(part, documents + 1)
                documents += "document" in block
                out.append(block)
    return out


def _count_documents(group: Message) -> int:
    """How many of the group's media are documents, whose names must differ in a request."""
    contents: list[Part] = []
    for part in group.parts:
        contents.extend(part.content if isinstance(part, ToolReturn) else (part,))
    return sum("document" in _encode_media(p, 1) for p in contents if isinstance(p, Media))


def _encode_media(media: Media, number: int) -> dict[str, Any]:
    held = inline_data(media)
    mime = held[0] if held else media.mime
    kind, form = _KINDS.get(mime.lower(), ("", ""))
    if not kind or not (held or media.url.startswith("s3://")):
        return {"text": describe_media(media)}
    block: dict[str, Any] = {"format": form}
    if kind == "document":
        name = _NOT_IN_NAMES.sub(" ", media.name.rpartition(".")[0] or media.name).strip()
        block["name"] = f"{name[:150] or 'document'} {number}"
    block["source"] = {"bytes": held[1]} if held else {"s3Location": {"uri": media.url}}
    return {kind: block}


class _ConverseBlock(Struct):
    """What the sink does not hold of an open content block."""

    start: dict[str, Any]
    called: bool = False
    input: list[str] = []
    signature: str = ""
    redacted: list[bytes] = []
    citations: list[Any] = []


class Decoder:
    """Blocks are identified by index; only tool blocks are announced. What the service ran itself
    becomes Native."""

    def __init__(self, sink: ResponseSink, quirks: Quirks) -> None:
        self.activity = 0
        self._sink = sink
        self._frames = FrameParser()
        self._open: dict[int, _ConverseBlock] = {}
        self._reason = ""

    @property
    def is_finished(self) -> bool:
        """After the stop reason only the usage follows."""
        return self._reason != ""

    def feed(self, data: bytes) -> None:
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
        index = as_index(event.get("contentBlockIndex"))
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
        text = as_text(event.get("originalMessage")) or read_error(event, {})[1]
        text = text or as_text(headers.get(":error-message"))
        status = event.get("originalStatusCode")
        status = status if isinstance(status, int) else None
        raise ProviderError(classify_error(status=status, code=code, message=text))

    def _decode_block(self, index: int, block: dict[str, Any]) -> None:
        sink = self._sink
        use, cited = as_dict(block.get("toolUse")), as_dict(block.get("citationsContent"))
        if isinstance(block.get("text"), str):
            sink.add_text(index, block["text"])
        elif use and use.get("type") != "server_tool_use":
            self._add_call(index, use)
            sink.add_call(index, args=encode_json(use.get("input") or {}).decode())
        elif "reasoningContent" in block:
            self._decode_reasoning(index, as_dict(block["reasoningContent"]))
        elif cited:
            texts = [as_text(c.get("text")) for c in as_dicts(cited.get("content"))]
            sink.add_text(index, "".join(texts))
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
        block = self._open.get(index) or self._open.setdefault(index, _ConverseBlock({}))
        if "toolUse" in delta:
            if piece := as_text(as_dict(delta["toolUse"]).get("input")):
                block.input.append(piece)
                if block.called:
                    self._sink.add_call(index, args=piece)
        elif "reasoningContent" in delta:
            self._decode_thought(index, block, as_dict(delta["reasoningContent"]))
        elif "citation" in delta:
            if not block.citations:
                self._sink.add_extra(index, "text", citations=block.citations)
            citation = as_dict(delta["citation"])
            block.citations.append({k: v for k, v in citation.items() if k in _CITED})
        else:
            _grow_block(block.start, delta)

    def _decode_thought(self, index: int, block: _ConverseBlock, delta: dict[str, Any]) -> None:
        if isinstance(delta.get("text"), str):
            self._sink.add_thinking(index, delta["text"])
        block.signature += as_text(delta.get("signature"))
        if redacted := as_text(delta.get("redactedContent")):
            with suppress(Base64Error):
                block.redacted.append(b64decode(redacted, validate=True))

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
            args = parse_arguments("".join(block.input))
            self._sink.set_native(index, {"toolUse": {**use, "input": args}})
        elif block.start:
            self._sink.set_native(index, block.start)

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
            if has_no_content(sink):
                raise ProviderError(Failure(Kind.EMPTY, reason, code=reason))
            sink.stop = "died"


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
