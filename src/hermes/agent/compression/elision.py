"""Shortens older messages: a tool result becomes one line that says where the full text is."""

import json
from typing import Any

from msgspec import structs

from hermes.core.message import Media, Message, Native, Part, Text, Thinking, ToolCall, ToolReturn

LINE = 320
"""Characters up to which a result stays as it is; the lines made here are shorter."""
_ARGUMENT = 200
_ARGUMENTS = 400
_GLIMPSE = 80
_OPAQUE = 400


def describe_place(session: str, index: int) -> str:
    return f"message {index} of session {session}"


def elide_message(message: Message, where: str, text: int | None = None) -> Message:
    """The message without results, long arguments, images and reasoning. `text`: the number of
    characters to which prose is cut too."""
    parts: list[Part] = []
    for part in message.parts:
        match part:
            case ToolReturn():
                parts.append(_elide_result(part, where))
            case ToolCall():
                parts.append(_elide_call(part, where))
            case Media(mime=mime):
                parts.append(Text(f"[{mime}: {where}]"))
            case Native():
                parts.append(Text(f"[something the provider ran itself: {where}]"))
            case Thinking():
                if short := _shorten_thinking(part):
                    parts.append(short)
            case Text() if text is not None and len(part.text) > text:
                parts.append(Text(cut_middle(part.text, text, where)))
            case _:
                parts.append(part)
    return structs.replace(message, parts=tuple(parts), usage=None)


def trim_results(message: Message, limit: int, where: str) -> Message:
    """The message with the middle cut out of results longer than `limit`."""

    def trim(part: Part) -> Part:
        if not isinstance(part, ToolReturn):
            return part
        texts = (
            Text(cut_middle(c.text, limit, where)) if isinstance(c, Text) else c
            for c in part.content
        )
        return structs.replace(part, content=tuple(texts))

    return structs.replace(message, parts=tuple(map(trim, message.parts)), usage=None)


def cut_middle(text: str, limit: int, where: str) -> str:
    if len(text) <= limit:
        return text
    half = max(0, limit // 2 - 60)
    gone = len(text) - 2 * half
    note = f"\n[… {gone} characters cut; the full text is {where} …]\n"
    return text[:half] + note + text[len(text) - half :] if len(note) < gone else text


def _elide_result(part: ToolReturn, where: str) -> ToolReturn:
    size = len(part.text)
    images = sum(isinstance(c, Media) for c in part.content)
    if size <= LINE and not images:
        return part
    start = " ".join(part.text[: 4 * _GLIMPSE].split())[:_GLIMPSE]
    what = f"{size} characters" + (f", {images} images" if images else "")
    name = part.name[:64]
    line = f'[{name} returned {what}, beginning "{start}"; the full text is {where}]'
    return ToolReturn(part.call_id, part.name, (Text(line),), part.error)


def _elide_call(part: ToolCall, where: str) -> ToolCall:
    if len(part.args) <= _ARGUMENTS:
        return part
    try:
        args = json.loads(part.args)
    except (ValueError, RecursionError):
        args = None
    if not isinstance(args, dict):
        args = {"arguments": f"[{len(part.args)} characters: {where}]"}
    short = json.dumps(_shorten_value(args, where), ensure_ascii=False)
    return structs.replace(part, args=short) if len(short) < len(part.args) else part


def _shorten_value(value: Any, where: str) -> Any:
    match value:
        case str() if len(value) > _ARGUMENT:
            return f"{value[:_GLIMPSE]}[… {len(value)} characters: {where}]"
        case dict():
            return {k: _shorten_value(v, where) for k, v in value.items()}
        case list() if len(value) > 20:
            first = [_shorten_value(v, where) for v in value[:5]]
            return [*first, f"[… {len(value)} items: {where}]"]
        case list():
            return [_shorten_value(v, where) for v in value]
    return value


def _shorten_thinking(part: Thinking) -> Thinking | None:
    """Some endpoints require reasoning to be sent back with every call. Signed or encrypted
    reasoning cannot be shortened, so it is kept or left out."""
    extra = part.extra or {}
    if set(extra) - {"field"}:
        return part if len(part.text) + len(str(extra)) <= _OPAQUE else None
    if len(part.text) <= _ARGUMENT:
        return part
    return structs.replace(part, text=part.text[: _ARGUMENT - 1] + "…")
