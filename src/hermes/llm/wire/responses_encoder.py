"""Requests of the Responses protocol; each item is serialised once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

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
from hermes.core.provider import ToolSpec
from hermes.llm.provider_spec import Quirks
from hermes.llm.wire.convert import as_text, build_content, describe_media, locate_media, open_list
from hermes.llm.wire.lenient_json import encode_json
from hermes.llm.wire.message_buffer import MessageBuffer
from hermes.llm.wire.request_fields import HeadCache, RequestHead, legal_arguments, shape_fields
from hermes.llm.wire.tool_schema import fit_schema

ENCRYPTED = "reasoning.encrypted_content"
_NAMELESS = frozenset({"web_search_call", "tool_search_call", "tool_search_output", "compaction"})
"""Items of the provider's own that are accepted without their id; others need it."""
_DROPPED = frozenset({"created_by"})
"""Keys of answers that are refused in requests."""


class Encoder:
    """Items are only ever appended, so consecutive requests share their prefix. Messages, calls and
    sealed reasoning are sent without their ids: an endpoint that stores no answers would not find
    them."""

    def __init__(self, target: Target, quirks: Quirks) -> None:
        self._model = target.model
        self._quirks = quirks
        self.messages = MessageBuffer()
        self._heads = HeadCache(self._encode_head)

    def add_group(self, group: Message) -> None:
        self.messages.add_messages([(encode_json(item), b"") for item in _encode_items(group)])

    def build_body(self, pending: Sequence[Message], head: RequestHead) -> bytes:
        fresh = [(encode_json(item), b"") for group in pending for item in _encode_items(group)]
        return self.messages.join_body(self._heads.get_bytes(head), fresh)

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
    out: dict[str, Any] = {"type": "function", "name": tool.name}
    if tool.description:
        out["description"] = tool.description
    out["parameters"] = fit_schema(tool.parameters, quirks.schema)
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
    rest: list[Text | Media] = []
    for part in parts:
        match part:
            case ToolReturn(call_id=id, content=content):
                output = _encode_content(content, "")
                yield {"type": "function_call_output", "call_id": id, "output": output}
            case Text() | Media():
                rest.append(part)
    if rest:
        yield {"role": "user", "content": _encode_content(rest, "\n\n")}


def _encode_content(parts: Sequence[Text | Media], seam: str) -> str | list[dict[str, Any]]:
    return build_content(parts, seam, kind="input_text", show=_encode_media)


def _encode_media(media: Media) -> dict[str, Any]:
    mime, address, data = locate_media(media)
    if mime.startswith("image/"):
        return {"type": "input_image", "image_url": address, "detail": media.detail or "auto"}
    if mime.startswith(("audio/", "video/")):
        return {"type": "input_text", "text": describe_media(media)}
    if data is not None:
        return {"type": "input_file", "filename": media.name or "file", "file_data": address}
    return {"type": "input_file", "file_url": address}
