"""Requests of the Chat Completions protocol, each message serialised once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from hermes.core.message import Media, Message, Part, Target, Text, Thinking, ToolCall, ToolReturn
from hermes.core.provider import Settings, ToolSpec
from hermes.llm.provider_spec import Quirks
from hermes.llm.wire.convert import content_of, described, located, records
from hermes.llm.wire.lenient_json import dumps
from hermes.llm.wire.message_buffer import MARKER, Forms, Tail
from hermes.llm.wire.request_fields import Head, legal, shaped
from hermes.llm.wire.tool_schema import fit

_AUDIO = {"audio/mpeg": "mp3", "audio/mp3": "mp3", "audio/wav": "wav", "audio/x-wav": "wav"}


class Encoder:
    """Bytes of messages are only ever added, so consecutive requests share their prefix. Where
    the endpoint wants cache markers the last messages wait in both forms, marked and plain."""

    def __init__(self, target: Target, quirks: Quirks) -> None:
        self._model = target.model
        self._quirks = quirks
        self.tail = Tail(marks=quirks.cache == "envelope")
        self._head = Head()
        self._before = Message("user", ())

    def push(self, group: Message) -> None:
        self.tail.push(self._encode(group, self._before))
        self._before = group

    def body(
        self,
        pending: Sequence[Message],
        *,
        system: str,
        tools: Sequence[ToolSpec],
        settings: Settings,
        stream: bool,
    ) -> bytes:
        head = self._head.get(
            (system, tuple(tools), settings, stream),
            lambda: self._fields(system, tools, settings, stream),
        )
        fresh = (
            item
            for before, group in pairwise((self._before, *pending))
            for item in self._encode(group, before)
        )
        return self.tail.joined(head, fresh)

    def _fields(
        self, system: str, tools: Sequence[ToolSpec], settings: Settings, stream: bool
    ) -> bytes:
        quirks = self._quirks
        fields: dict[str, Any] = {"model": self._model, "stream": stream}
        if stream and quirks.usage_in_stream:
            fields["stream_options"] = {"include_usage": True}
        if limit := settings.max_output or quirks.max_tokens_default:
            fields[quirks.max_tokens_field] = limit
        if settings.temperature is not None:
            fields["temperature"] = settings.temperature
        if settings.stop:
            fields["stop"] = settings.stop
        fields.update(_effort(quirks, settings))
        if quirks.calling == "schema" and quirks.tools:
            return self._stepwise(fields, system, tools, settings)
        if tools and quirks.tools and settings.tool_choice != "none":
            fields["tools"] = [_tool(tool, quirks) for tool in tools]
            if settings.tool_choice == "required":
                named = {"type": "function", "function": {"name": settings.tool}}
                fields["tool_choice"] = named if settings.tool else "required"
        head = dumps(shaped(fields, quirks))[:-1] + b',"messages":['
        if not system:
            return head
        message = {"role": quirks.system_role, "content": system}
        return head + (self._mark(message) or dumps(message)) + b","

    def _stepwise(
        self, fields: dict[str, Any], system: str, tools: Sequence[ToolSpec], settings: Settings
    ) -> bytes:
        from hermes.llm.wire.chat.schema_tools import form, offered, opening

        quirks = self._quirks
        few = offered(tools, quirks.favourites)
        callable = few if settings.tool_choice != "none" else []
        fields["temperature"] = 0
        fields["response_format"] = form(callable)
        head = dumps(shaped(fields, quirks))[:-1] + b',"messages":['
        return head + b"".join([dumps(m) + b"," for m in opening(few, system)])

    # -- messages ----------------------------------------------------------------------------

    def _encode(self, group: Message, before: Message) -> Iterable[Forms]:
        messages: Iterable[dict[str, Any]]
        if self._quirks.calling == "schema" and self._quirks.tools:
            from hermes.llm.wire.chat.schema_tools import told

            messages = told(group, before)
        elif group.role == "assistant":
            messages = [_assistant(group.parts, self._quirks)]
        else:
            messages = _user(group.parts)
        for message in messages:
            yield dumps(message), self._mark(message)

    def _mark(self, message: dict[str, Any]) -> bytes:
        quirks = self._quirks
        if quirks.cache != "envelope" or (message["role"] == "tool" and not quirks.cache_results):
            return b""
        marked = _marked(message)
        return dumps(marked) if marked else b""


def _marked(message: dict[str, Any]) -> dict[str, Any] | None:
    """With a cache marker on its last content part; None when it has none that can carry it."""
    content = message["content"]
    if isinstance(content, str):
        content = [{"type": "text", "text": content}] if content.strip() else None
    if not content:
        return None
    last = content[-1]
    if last["type"] == "text" and not last["text"].strip():
        return None
    return {**message, "content": [*content[:-1], {**last, "cache_control": MARKER}]}


def _effort(quirks: Quirks, settings: Settings) -> dict[str, Any]:
    """Reasoning effort as this endpoint wants to be asked. Where there is a switch, that is what
    turns it off."""
    effort, switch = settings.effort, quirks.thinking_switch
    off = effort == "none"
    out: dict[str, Any] = {}
    if effort is not None and not (off and switch != "none"):
        match quirks.effort:
            case "effort":
                out = {"reasoning_effort": effort}
            case "object":
                out = {"reasoning": {"enabled": False} if off else {"effort": effort}}
            case "think":
                out = {**({"think": False} if off else {}), "reasoning_effort": effort}
            case _:
                pass
    asked = {"asked": effort is not None, "always": True, "alone": "reasoning_effort" not in out}
    if asked.get(switch, False):
        out["thinking"] = {"type": "disabled" if off else "enabled"}
    return out


def _tool(tool: ToolSpec, quirks: Quirks) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.name}
    if tool.description:
        function["description"] = tool.description
    function["parameters"] = fit(tool.parameters, quirks.schema)
    return {"type": "function", "function": function}


def _assistant(parts: Sequence[Part], quirks: Quirks) -> dict[str, Any]:
    text = "".join([p.text for p in parts if isinstance(p, Text)])
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    calls = [_call(p) for p in parts if isinstance(p, ToolCall)]
    if calls:
        message["tool_calls"] = calls
    thoughts = [p for p in parts if isinstance(p, Thinking)]
    if calls or not quirks.thinking_field:
        message.update(_thoughts(thoughts, text, quirks))
    if quirks.thinking_field and calls:
        # Where reasoning must come back with every call, calls of other models need it too.
        message.setdefault(quirks.thinking_field, "")
    return message


def _thoughts(thoughts: Sequence[Thinking], text: str, quirks: Quirks) -> dict[str, Any]:
    """Reasoning in the field it came in. What had been cut out of the visible text has none and
    is not sent back, unless the endpoint wants all reasoning in one field."""
    out: dict[str, Any] = {}
    listed: list[dict[str, Any]] = []
    for part in thoughts:
        extra = part.extra or {}
        field = quirks.thinking_field or extra.get("field", "")
        if details := records(extra.get("reasoning_details")):
            out["reasoning_details"] = [*out.get("reasoning_details", ()), *details]
            field = quirks.thinking_field
        if field == "content":
            listed.append({"type": "thinking", "thinking": [{"type": "text", "text": part.text}]})
        elif field and part.text:
            out[field] = out.get(field, "") + part.text
    if listed:
        out["content"] = [*listed, {"type": "text", "text": text}] if text else listed
    return out


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": legal(call.args)}
    return {"id": call.id, "type": "function", "function": function, **(call.extra or {})}


def _user(parts: Sequence[Part]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    rest: list[Text | Media] = []
    for part in parts:
        match part:
            case ToolReturn(call_id=id, content=content):
                joined = _content(content, "")
                messages.append({"role": "tool", "tool_call_id": id, "content": joined})
            case Text() | Media():
                rest.append(part)
    if rest:
        messages.append({"role": "user", "content": _content(rest, "\n\n")})
    return messages


def _content(parts: Sequence[Text | Media], seam: str) -> str | list[dict[str, Any]]:
    return content_of(parts, seam, kind="text", show=_media)


def _media(media: Media) -> dict[str, Any]:
    mime, address, data = located(media)
    if mime.startswith("image/"):
        detail = {"detail": media.detail} if media.detail else {}
        return {"type": "image_url", "image_url": {"url": address, **detail}}
    if data is not None and mime in _AUDIO:
        return {"type": "input_audio", "input_audio": {"data": data, "format": _AUDIO[mime]}}
    if data is not None and mime == "application/pdf":
        file = {"filename": media.name or "file.pdf", "file_data": address}
        return {"type": "file", "file": file}
    return {"type": "text", "text": described(media)}
