"""A stored conversation as text to read and to keep."""

import time
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeAlias

import msgspec
import orjson

from hermes.core.message import Media, Native, Part, Text, Thinking, ToolCall, ToolReturn
from hermes.core.redaction.redactor import Redactor
from hermes.core.store import SessionMeta, Store, StoredMessage
from hermes.core.text import clean_value

FormatCall: TypeAlias = Callable[[str, str], str]
"""A call on one line, from its name and its arguments."""


def join_call(name: str, arguments: str) -> str:
    return " ".join(f"{name} {arguments}".split())[:200]


async def export_lines(
    store: Store,
    meta: SessionMeta,
    redactor: Redactor,
    format_name: str,
    format_call: FormatCall = join_call,
) -> AsyncIterator[str]:
    """The conversation without secrets, as Markdown or as JSON lines."""
    if format_name == "markdown":
        yield redactor.redact(markdown_head(meta))
        async for item in store.sessions.stream_messages(meta.id):
            yield redactor.redact(message_markdown(item, format_call))
        return
    yield _encode_line(redact_values(redactor, {"type": "session", **msgspec.to_builtins(meta)}))
    async for item in store.sessions.stream_messages(meta.id):
        head = {"type": "message", "seq": item.seq, "created": item.created}
        yield _encode_line(redact_values(redactor, {**head, **msgspec.to_builtins(item.message)}))


def redact_values(redactor: Redactor, value: Any) -> Any:
    """The value without secrets that a tool may have brought to light."""
    match value:
        case str():
            return redactor.redact(value)
        case {"t": "media"}:
            return value
        case dict():
            return {key: redact_values(redactor, item) for key, item in value.items()}
        case list() | tuple():
            return [redact_values(redactor, item) for item in value]
        case _:
            return value


def markdown_head(meta: SessionMeta) -> str:
    began = time.strftime("%Y-%m-%d %H:%M", time.localtime(meta.created))
    title = " ".join(meta.title.split()) or meta.id
    return f"# {title}\n\nsession {meta.id}, {began}, {meta.model or 'no model'}, {meta.cwd}\n"


_ROLE_NAMES = {"user": "You", "assistant": "Hermes", "tool": "Tool"}


def message_markdown(item: StoredMessage, format_call: FormatCall = join_call) -> str:
    """One stored message under a heading that names its role."""
    message = item.message
    name = _ROLE_NAMES[message.role]
    if message.kind != "normal":
        name += f" ({message.kind})"
    blocks = [block for part in message.parts if (block := _part_markdown(part, format_call))]
    if message.stop in ("aborted", "died", "length"):
        blocks.append(f"*(cut off: {message.stop})*")
    return f"## {name}\n\n" + "\n\n".join(blocks) + "\n"


def _part_markdown(part: Part, format_call: FormatCall) -> str:
    match part:
        case Text(text=text):
            return text.strip("\n")
        case Thinking(text=text):
            return "\n".join(f"> {line}" for line in text.strip().splitlines())
        case Media(mime=mime, name=name, data=data):
            return f"*({mime} {name or 'attached'}, {len(data)} bytes)*"
        case ToolCall(name=name, args=args):
            return f"*calls* `{format_call(name, args)}`"
        case ToolReturn(name=name, error=error):
            head = f"*{name} {'failed' if error else 'returned'}*"
            return f"{head}\n\n{fence_text(part.text)}"
        case Native():
            return "*(a step the provider ran itself)*"


def fence_text(text: str) -> str:
    """The text in a code fence longer than any fence inside it."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{text.rstrip()}\n{fence}"


def _encode_line(value: Any) -> str:
    """The value as JSON, lone surrogates replaced."""
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        return orjson.dumps(clean_value(value)).decode()
