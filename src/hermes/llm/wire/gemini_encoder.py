"""Requests of Google's generateContent protocol; each group is serialised once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from hermes.core.provider import Settings, ToolSpec
from hermes.llm.provider_spec import Quirks
from hermes.llm.wire.convert import BUDGETS, inline_data, open_list, parse_arguments
from hermes.llm.wire.lenient_json import encode_json
from hermes.llm.wire.message_buffer import MessageBuffer, MessageForms
from hermes.llm.wire.request_fields import HeadCache, RequestHead, shape_fields
from hermes.llm.wire.tool_schema import fit_schema

EMPTY = "[empty]"
UNSIGNED = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="
"""`skip_thought_signature_validator`, the documented stand-in for the signature of a call the
model did not make, as the base64 this field is declared as."""
_LEVELS = {
    "none": "minimal",
    "minimal": "minimal",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "high",
}
_MAX_STOPS = 5
_THINKING = frozenset(
    "thinking thinkingConfig thinkingLevel thinkingBudget thinking_config thinking_level "
    "thinking_budget".split()
)
"""The names that refusals use for the one field that asks for thoughts."""


class Encoder:
    """Each closed group is serialised once. The bytes before the contents stay the same as long as
    system prompt, tools and settings do."""

    def __init__(self, target: Target, quirks: Quirks) -> None:
        self._quirks = quirks
        self.messages = MessageBuffer()
        self._ids: Mapping[str, str] = {}
        """Ids that the provider itself gave to the calls of the last group."""
        self._heads = HeadCache(self._encode_head)

    def add_group(self, group: Message) -> None:
        encoded, self._ids = self._encode_group(group, self._ids)
        self.messages.add_messages([(encoded, b"")])

    def build_body(self, pending: Sequence[Message], head: RequestHead) -> bytes:
        fresh: list[MessageForms] = []
        ids = self._ids
        for group in pending:
            encoded, ids = self._encode_group(group, ids)
            fresh.append((encoded, b""))
        return self.messages.join_body(self._heads.get_bytes(head), fresh)

    def _encode_head(self, head: RequestHead) -> bytes:
        quirks, settings, tools = self._quirks, head.settings, head.tools
        fields: dict[str, Any] = {}
        if head.system.strip():
            fields["systemInstruction"] = {"parts": [{"text": head.system}]}
        if tools and quirks.tools:
            declared = [_encode_function(tool, quirks) for tool in tools]
            fields["tools"] = [{"functionDeclarations": declared}]
            if settings.tool_choice == "none":
                fields["toolConfig"] = {"functionCallingConfig": {"mode": "NONE"}}
            elif settings.tool_choice == "required":
                calling: dict[str, Any] = {"mode": "ANY"}
                if settings.tool:
                    calling["allowedFunctionNames"] = [settings.tool]
                fields["toolConfig"] = {"functionCallingConfig": calling}
        config = {
            k: v for k, v in _generation_config(quirks, settings).items() if k not in quirks.drop
        }
        if config:
            fields["generationConfig"] = config
        return open_list(shape_fields(fields, quirks), "contents")

    def _encode_group(
        self, group: Message, ids: Mapping[str, str]
    ) -> tuple[bytes, Mapping[str, str]]:
        if group.role == "assistant":
            parts, ids = self._encode_model(group.parts)
        else:
            parts, ids = _encode_user(group.parts, ids), {}
        role = "model" if group.role == "assistant" else "user"
        return encode_json({"role": role, "parts": parts or [{"text": EMPTY}]}), ids

    def _encode_model(
        self, parts: Sequence[Part]
    ) -> tuple[list[dict[str, Any]], Mapping[str, str]]:
        keep = self._quirks.thinking_replay == "keep"
        out: list[dict[str, Any]] = []
        ids: dict[str, str] = {}
        for part in parts:
            signed: dict[str, Any] = {}
            if keep and not isinstance(part, Native | Media | ToolReturn) and part.extra:
                signed = {k: v for k, v in part.extra.items() if k == "thoughtSignature"}
            match part:
                case Text(text=text) if text or signed:
                    out.append({"text": text, **signed})
                case Thinking(text=text):
                    out.append({"text": text, "thought": True, **signed})
                case ToolCall(id=id, name=name, args=args, extra=extra):
                    call: dict[str, Any] = {"name": name, "args": parse_arguments(args)}
                    if extra and extra.get("id"):
                        call["id"] = ids[id] = id
                    out.append({"functionCall": call, **signed})
                case Native(data=data):
                    out.append(data)
        self._sign_first_call(out)
        return out, ids

    def _sign_first_call(self, parts: list[dict[str, Any]]) -> None:
        """Add a stand-in signature to the first call: models with thinking levels refuse calls
        without one, and the calls of other models have none."""
        if self._quirks.effort != "level":
            return
        first = next((p for p in parts if "functionCall" in p), None)
        if first is not None:
            first.setdefault("thoughtSignature", UNSIGNED)


def _generation_config(quirks: Quirks, settings: Settings) -> dict[str, Any]:
    config: dict[str, Any] = {}
    if limit := settings.max_output or quirks.max_tokens_default:
        config["maxOutputTokens"] = limit
    if settings.temperature is not None:
        config["temperature"] = settings.temperature
    if settings.stop:
        config["stopSequences"] = list(settings.stop[:_MAX_STOPS])
    thinking = _thinking_config(quirks, settings)
    if thinking and not _THINKING & set(quirks.drop):
        config["thinkingConfig"] = thinking
    return config


def _thinking_config(quirks: Quirks, settings: Settings) -> dict[str, Any]:
    effort = settings.effort
    match quirks.effort:
        case "budget" if effort == "none":
            return {"thinkingBudget": 0}
        case "budget" | "level" if effort is None:
            return {"includeThoughts": True}
        case "budget" if effort is not None:
            return {"thinkingBudget": BUDGETS[effort], "includeThoughts": True}
        case "level" if effort is not None:
            return {"thinkingLevel": _LEVELS[effort], "includeThoughts": effort != "none"}
        case _:
            return {}


def _encode_function(tool: ToolSpec, quirks: Quirks) -> dict[str, Any]:
    """The declaration of a tool. JSON Schema goes into `parametersJsonSchema` unchanged;
    `parameters` is the older field, which takes a subset and no empty object."""
    out: dict[str, Any] = {"name": tool.name, "description": tool.description}
    schema = fit_schema(tool.parameters, quirks.schema)
    if quirks.schema != "gemini":
        out["parametersJsonSchema"] = schema
    elif schema.get("properties"):
        out["parameters"] = schema
    return out


def _encode_user(parts: Sequence[Part], ids: Mapping[str, str]) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    for part in parts:
        match part:
            case ToolReturn(call_id=id, name=name, content=content, error=failed):
                result: dict[str, Any] = {"name": name}
                if id in ids:
                    result["id"] = ids[id]
                result["response"] = {"error" if failed else "result": part.text}
                if media := [_encode_media(p) for p in content if isinstance(p, Media)]:
                    result["parts"] = media
                out.append({"functionResponse": result})
            case Text(text=text) if text:
                out.append({"text": text})
            case Media():
                out.append(_encode_media(part))
    return out


def _encode_media(media: Media) -> dict[str, Any]:
    held = inline_data(media)
    if held:
        return {"inlineData": {"mimeType": held[0], "data": held[1]}}
    return {"fileData": {"mimeType": media.mime, "fileUri": media.url}}
