"""Requests of the Chat Completions protocol; each message is serialised once."""

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import structs
from typing_extensions import override

from hermes.core.message import Media, Message, Part, Target, Text, Thinking, ToolCall, ToolReturn
from hermes.core.provider import Settings
from hermes.llm.provider_spec import Quirks
from hermes.llm.wire.convert import as_dicts, build_content, describe_media, locate_media, open_list
from hermes.llm.wire.lenient_json import encode_json
from hermes.llm.wire.message_buffer import MARKER, MessageForms
from hermes.llm.wire.request_fields import BaseEncoder, RequestHead, legal_arguments, shape_fields
from hermes.llm.wire.tool_schema import describe_tool

_AUDIO = {"audio/mpeg": "mp3", "audio/mp3": "mp3", "audio/wav": "wav", "audio/x-wav": "wav"}


class Encoder(BaseEncoder):
    """Messages are only ever appended, so consecutive requests share their prefix. If the endpoint
    wants cache markers, the last messages are kept both with and without one."""

    def __init__(self, target: Target, quirks: Quirks) -> None:
        super().__init__(target, quirks, marks=quirks.cache == "envelope")
        self._earlier = self._before

    @override
    def add_group(self, group: Message) -> None:
        self._earlier = self._before
        super().add_group(group)

    @override
    def build_body(self, pending: Sequence[Message], head: RequestHead) -> bytes:
        if self._quirks.calling == "schema":
            from hermes.llm.wire.chat.schema_tools import has_answer, is_unfinished

            before, last = (self._earlier, self._before, *pending)[-2:]
            choice = head.settings.tool_choice
            if self._quirks.small and has_answer(last, before):
                choice = "none"
            elif is_unfinished(last) and choice != "none":
                choice = "required"
            head = structs.replace(
                head, settings=structs.replace(head.settings, tool_choice=choice)
            )
        return super().build_body(pending, head)

    def _encode_head(self, head: RequestHead) -> bytes:
        quirks, settings, tools = self._quirks, head.settings, head.tools
        fields: dict[str, Any] = {"model": self._model, "stream": head.stream}
        if head.stream and quirks.usage_in_stream:
            fields["stream_options"] = {"include_usage": True}
        if limit := settings.max_output or quirks.max_tokens_default:
            fields[quirks.max_tokens_field] = limit
        if settings.temperature is not None:
            fields["temperature"] = settings.temperature
        if settings.top_p is not None:
            fields["top_p"] = settings.top_p
        if settings.seed is not None:
            fields["seed"] = settings.seed
        if settings.stop:
            fields["stop"] = settings.stop
        wanted = settings.answer_schema
        if wanted is not None and quirks.accepts_schema(has_tools=bool(tools)):
            fields["response_format"] = {"type": "json_schema", "json_schema": wanted}
        fields.update(_effort_fields(quirks, settings))
        fields.update({"service_tier": "priority"} if settings.fast and quirks.fast else {})
        if quirks.calling == "schema" and quirks.tools:
            return self._encode_schema_head(fields, head)
        if tools and quirks.tools and settings.tool_choice != "none":
            functions = [describe_tool(tool, quirks.schema, "parameters") for tool in tools]
            fields["tools"] = [{"type": "function", "function": f} for f in functions]
            if settings.tool_choice == "required":
                named = {"type": "function", "function": {"name": settings.tool}}
                fields["tool_choice"] = named if settings.tool else "required"
        start = open_list(shape_fields(fields, quirks), "messages")
        if not head.system:
            return start
        message = {"role": quirks.system_role, "content": head.system}
        return start + (self._encode_with_marker(message) or encode_json(message)) + b","

    def _encode_schema_head(self, fields: dict[str, Any], head: RequestHead) -> bytes:
        from hermes.llm.wire.chat import schema_tools

        quirks = self._quirks
        selected = schema_tools.select_tools(head.tools, quirks.favourites)
        choice = head.settings.tool_choice
        callable = selected if choice != "none" else []
        fields["temperature"] = 0
        form = schema_tools.response_format(
            callable, has_results=bool(selected), must_call=choice == "required"
        )
        fields["response_format"] = form
        opening = schema_tools.opening_messages(selected, head.system, small=quirks.small)
        start = open_list(shape_fields(fields, quirks), "messages")
        return start + b"".join([encode_json(message) + b"," for message in opening])

    def _encode_group(self, group: Message, before: Message) -> Iterable[MessageForms]:
        messages: Iterable[dict[str, Any]]
        if self._quirks.calling == "schema" and self._quirks.tools:
            from hermes.llm.wire.chat.schema_tools import encode_group

            messages = encode_group(group, before)
        elif group.role == "assistant":
            messages = [_encode_assistant(group.parts, self._quirks)]
        else:
            messages = _encode_user(group.parts)
        for message in messages:
            yield encode_json(message), self._encode_with_marker(message)

    def _encode_with_marker(self, message: dict[str, Any]) -> bytes:
        """The message with a cache marker on its last content part; empty: it carries none."""
        quirks = self._quirks
        if quirks.cache != "envelope" or (message["role"] == "tool" and not quirks.cache_results):
            return b""
        content = message["content"]
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        if not content or (content[-1]["type"] == "text" and not content[-1]["text"].strip()):
            return b""
        marked = {**content[-1], "cache_control": MARKER}
        return encode_json({**message, "content": [*content[:-1], marked]})


def _effort_fields(quirks: Quirks, settings: Settings) -> dict[str, Any]:
    """The fields that ask this endpoint for a reasoning effort. If there is a switch, it turns
    reasoning off."""
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
    asked = {"asked": effort is not None, "always": True, "alone": "reasoning_effort" not in out}
    if asked.get(switch, False):
        out["thinking"] = {"type": "disabled" if off else "enabled"}
    return out


def _encode_assistant(parts: Sequence[Part], quirks: Quirks) -> dict[str, Any]:
    text = "".join([p.text for p in parts if isinstance(p, Text)])
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    calls = [_encode_call(p) for p in parts if isinstance(p, ToolCall)]
    if calls:
        message["tool_calls"] = calls
    thoughts = [p for p in parts if isinstance(p, Thinking)]
    if calls or not quirks.thinking_field:
        message.update(_encode_thoughts(thoughts, text, quirks))
    if quirks.thinking_field and calls:
        # If reasoning must be sent back with every call, calls of other models need it, too.
        message.setdefault(quirks.thinking_field, "")
    return message


def _encode_thoughts(thoughts: Sequence[Thinking], text: str, quirks: Quirks) -> dict[str, Any]:
    """Reasoning in the field it came in. Reasoning that was cut out of the text has no field and is
    not sent back, unless the endpoint wants all reasoning in one field."""
    out: dict[str, Any] = {}
    listed: list[dict[str, Any]] = []
    for part in thoughts:
        extra = part.extra or {}
        field = quirks.thinking_field or extra.get("field", "")
        if details := as_dicts(extra.get("reasoning_details")):
            out["reasoning_details"] = [*out.get("reasoning_details", ()), *details]
            field = quirks.thinking_field
        if field == "content":
            listed.append({"type": "thinking", "thinking": [{"type": "text", "text": part.text}]})
        elif field and part.text:
            out[field] = out.get(field, "") + part.text
    if listed:
        out["content"] = [*listed, {"type": "text", "text": text}] if text else listed
    return out


def _encode_call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": legal_arguments(call.args)}
    return {"id": call.id, "type": "function", "function": function, **(call.extra or {})}


def _encode_user(parts: Sequence[Part]) -> Iterable[dict[str, Any]]:
    for part in parts:
        if isinstance(part, ToolReturn):
            content = build_content(part.content, "", kind="text", show=_encode_media)
            yield {"role": "tool", "tool_call_id": part.call_id, "content": content}
    if rest := [part for part in parts if isinstance(part, Text | Media)]:
        content = build_content(rest, "\n\n", kind="text", show=_encode_media)
        yield {"role": "user", "content": content}


def _encode_media(media: Media) -> dict[str, Any]:
    mime, address, data = locate_media(media)
    if mime.startswith("image/"):
        detail = {"detail": media.detail} if media.detail else {}
        return {"type": "image_url", "image_url": {"url": address, **detail}}
    if data is not None and mime in _AUDIO:
        return {"type": "input_audio", "input_audio": {"data": data, "format": _AUDIO[mime]}}
    if data is not None and mime == "application/pdf":
        file = {"filename": media.name or "file.pdf", "file_data": address}
        return {"type": "file", "file": file}
    return {"type": "text", "text": describe_media(media)}
