"""Requests of Bedrock's Converse protocol; each group is serialised once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from msgspec import structs

from hermes.core.message import (
    Media,
    Message,
    Native,
    Part,
    Target,
    Text,
    Thinking,
    ToolCall,
    ToolReturn,
)
from hermes.core.provider import Settings, ToolSpec
from hermes.llm.provider_spec import Quirks
from hermes.llm.wire.convert import (
    TurnOpening,
    as_dict,
    as_text,
    describe_media,
    inline_data,
    open_list,
    parse_arguments,
)
from hermes.llm.wire.lenient_json import encode_json
from hermes.llm.wire.message_buffer import MessageBuffer, MessageForms
from hermes.llm.wire.request_fields import (
    LEVELS,
    MAX_TOKENS,
    HeadCache,
    RequestHead,
    shape_fields,
    thinking_fields,
)
from hermes.llm.wire.tool_schema import fit_schema

EMPTY = "[empty]"
ATTACHED = "See the attached document."
"""Sent with documents, which Converse refuses without a text."""
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
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": (
        "document",
        "docx",
    ),
    "application/vnd.ms-excel": ("document", "xls"),
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": ("document", "xlsx"),
    "video/mp4": ("video", "mp4"),
    "video/webm": ("video", "webm"),
    "video/quicktime": ("video", "mov"),
    "video/x-matroska": ("video", "mkv"),
    "video/mpeg": ("video", "mpeg"),
}
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9()\[\]-]+")


class Encoder:
    """Each closed group is serialised once. The bytes before the messages stay the same as long as
    system prompt, tools and settings do."""

    def __init__(self, target: Target, quirks: Quirks) -> None:
        self._quirks = quirks
        self.messages = MessageBuffer()
        self._called: dict[str, None] = {}
        """Names of the tools that the history calls."""
        self._documents = 0
        """Documents in the history so far: their names must differ."""
        self._opening = TurnOpening()
        self._heads = HeadCache(self._encode_head)

    def add_group(self, group: Message) -> None:
        self.messages.add_messages([(_encode_group(group, self._documents), b"")])
        self._documents += _count_documents(group)
        self._called.update(_called_tools(group))
        self._opening.see_group(group)

    def build_body(self, pending: Sequence[Message], head: RequestHead) -> bytes:
        fresh: list[MessageForms] = []
        called, documents, opening = dict(self._called), self._documents, self._opening.copy()
        for i, group in enumerate(pending):
            fresh.append((_encode_group(group, documents, last=i == len(pending) - 1), b""))
            documents += _count_documents(group)
            called.update(_called_tools(group))
            opening.see_group(group)
        if opening.is_bare and self._quirks.effort == "budget":
            head = structs.replace(head, settings=structs.replace(head.settings, effort=None))
        # Converse cannot forbid calls, and refuses calls in the messages when no tool is declared:
        # tools that were called stay declared.
        if head.settings.tool_choice == "none" and not called:
            head = structs.replace(head, tools=())
        elif called and not head.tools:
            head = structs.replace(head, tools=_stub_tools(called))
        return self.messages.join_body(self._heads.get_bytes(head), fresh)

    def _encode_head(self, head: RequestHead) -> bytes:
        quirks, settings, tools = self._quirks, head.settings, head.tools
        fields: dict[str, Any] = {}
        if head.system.strip():
            fields["system"] = [{"text": head.system}]
        if tools and quirks.tools:
            fields["toolConfig"] = {"tools": [_encode_tool(tool, quirks) for tool in tools]}
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


def _encode_tool(tool: ToolSpec, quirks: Quirks) -> dict[str, Any]:
    spec: dict[str, Any] = {"name": tool.name}
    if tool.description:
        spec["description"] = tool.description
    spec["inputSchema"] = {"json": fit_schema(tool.parameters, quirks.schema)}
    return {"toolSpec": spec}


def _stub_tools(names: dict[str, None]) -> tuple[ToolSpec, ...]:
    schema = {"type": "object", "properties": {}}
    return tuple(ToolSpec(name, "No longer available.", schema) for name in names)


def _called_tools(group: Message) -> dict[str, None]:
    return {p.name: None for p in group.parts if isinstance(p, ToolCall)}


# -- messages ------------------------------------------------------------------------------------


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
    source: dict[str, Any]
    if held:
        source = {"bytes": held[1]}
    elif media.url.startswith("s3://"):
        source = {"s3Location": {"uri": media.url}}
    else:
        return {"text": describe_media(media)}
    kind, form = _KINDS.get(mime.lower(), ("", ""))
    if not kind:
        return {"text": describe_media(media)}
    block: dict[str, Any] = {"format": form}
    if kind == "document":
        name = _NOT_IN_NAMES.sub(" ", media.name.rpartition(".")[0] or media.name).strip()
        block["name"] = f"{name[:150] or 'document'} {number}"
    block["source"] = source
    return {kind: block}
