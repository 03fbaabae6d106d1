"""Requests of Anthropic's Messages protocol; each group is serialised once."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Sequence
from typing import Any

from msgspec import structs

from hermes.core.message import (
    Extra,
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
from hermes.llm.wire.convert import (
    TurnOpening,
    as_dict,
    as_dicts,
    as_text,
    describe_media,
    inline_data,
    open_list,
    parse_arguments,
)
from hermes.llm.wire.lenient_json import encode_json
from hermes.llm.wire.message_buffer import MARKER, MessageBuffer, MessageForms
from hermes.llm.wire.request_fields import (
    MAX_TOKENS,
    HeadCache,
    RequestHead,
    shape_fields,
    thinking_fields,
)
from hermes.llm.wire.tool_schema import fit_schema

EMPTY = "[empty]"
_THOUGHTS = ("thinking", "redacted_thinking")
_CARRIERS = ("text", "image", "document", "compaction", "container_upload")
"""Blocks that may carry a cache marker, besides calls and results."""


class Encoder:
    """Each closed group is serialised once, the last ones with and without a cache marker. The
    bytes before the messages stay the same as long as system prompt, tools and settings do."""

    def __init__(self, target: Target, quirks: Quirks) -> None:
        self._model = target.model
        self._quirks = quirks
        self._marks = quirks.cache == "native"
        self.messages = MessageBuffer(marks=self._marks)
        self._state = _GroupState()
        self._heads = HeadCache(self._encode_head)

    def add_group(self, group: Message) -> None:
        self.messages.add_messages(
            [self._encode_forms(self._state.encode_group(group, self._quirks))]
        )

    def build_body(self, pending: Sequence[Message], head: RequestHead) -> bytes:
        state = self._state.copy()
        last = len(pending) - 1
        fresh = [state.encode_group(g, self._quirks, last=i == last) for i, g in enumerate(pending)]
        if state.opening.is_bare and self._quirks.effort == "budget":
            head = structs.replace(head, settings=structs.replace(head.settings, effort=None))
        return self.messages.join_body(self._heads.get_bytes(head), map(self._encode_forms, fresh))

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
        if stops := [s for s in settings.stop if s.strip()]:
            fields["stop_sequences"] = stops
        if system.strip():
            marked = [{"type": "text", "text": system, "cache_control": MARKER}]
            fields["system"] = marked if self._marks else system
        if head.tools and quirks.tools:
            fields["tools"] = [_encode_tool(tool, quirks) for tool in head.tools]
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


def _encode_tool(tool: ToolSpec, quirks: Quirks) -> dict[str, Any]:
    out: dict[str, Any] = {"name": tool.name}
    if tool.description:
        out["description"] = tool.description
    out["input_schema"] = fit_schema(tool.parameters, quirks.schema)
    return out


class _GroupState:
    """What the encoding of a group depends on in the groups before it."""

    __slots__ = ("opening", "running")

    def __init__(self) -> None:
        self.opening = TurnOpening()
        self.running: frozenset[str] = frozenset()
        """Calls that the provider runs itself and whose results come in a later answer."""

    def copy(self) -> _GroupState:
        out = _GroupState()
        out.opening, out.running = self.opening.copy(), self.running
        return out

    def encode_group(self, group: Message, quirks: Quirks, *, last: bool = False) -> dict[str, Any]:
        self.opening.see_group(group)
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
        return {
            "type": kind,
            "source": {"type": "text", "media_type": "text/plain", "data": text},
        }
    if kind == "document" and mime != "application/pdf":
        return {"type": "text", "text": describe_media(media)}
    if held:
        source = {"type": "base64", "media_type": mime, "data": held[1]}
    else:
        source = {"type": "url", "url": media.url}
    return {"type": kind, "source": source}
