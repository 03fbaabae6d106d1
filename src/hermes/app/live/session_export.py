"""A stored conversation as text to read and to keep."""

import time
from collections.abc import AsyncIterator, Callable
from html import escape
from typing import Any, TypeAlias

import msgspec
import orjson

from hermes.core.message import Media, Native, Part, Text, Thinking, ToolCall, ToolReturn
from hermes.core.redaction.redactor import Redactor
from hermes.core.store import SessionMeta, Store, StoredMessage
from hermes.core.text import clean_value

_STYLE = (
    "body{font:15px/1.6 system-ui,sans-serif;max-width:760px;margin:2rem auto;padding:0 1rem}"
    "h2{font-size:13px;margin:1.5rem 0 .25rem}pre{white-space:pre-wrap;overflow-wrap:anywhere;"
    "font:inherit;margin:0}.tool pre{font:13px/1.55 monospace}"
)
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
    """The conversation without secrets, as Markdown, HTML, JSON or JSON lines."""
    if format_name == "html":
        async for line in _export_html(store, meta, redactor, format_call):
            yield line
        return
    if format_name == "json":
        head = redact_values(redactor, msgspec.to_builtins(meta))
        yield f'{{"session":{_encode_line(head)},"messages":['
        comma = ""
        async for item in store.sessions.stream_messages(meta.id):
            yield comma + _encode_line(_describe_item(item, redactor))
            comma = ","
        yield "]}"
        return
    if format_name == "markdown":
        yield redactor.redact(markdown_head(meta))
        async for item in store.sessions.stream_messages(meta.id):
            yield redactor.redact(message_markdown(item, format_call))
        return
    yield _encode_line(redact_values(redactor, {"type": "session", **msgspec.to_builtins(meta)}))
    async for item in store.sessions.stream_messages(meta.id):
        yield _encode_line({"type": "message", **_describe_item(item, redactor)})


def _describe_item(item: StoredMessage, redactor: Redactor) -> dict[str, Any]:
    head = {"seq": item.seq, "created": item.created}
    found: dict[str, Any] = redact_values(redactor, {**head, **msgspec.to_builtins(item.message)})
    return found


async def _export_html(
    store: Store, meta: SessionMeta, redactor: Redactor, format_call: FormatCall
) -> AsyncIterator[str]:
    """A page without scripts: every text is escaped."""
    title = escape(redactor.redact(" ".join(meta.title.split()) or meta.id))
    yield f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
    yield f"<style>{_STYLE}</style></head><body><h1>{title}</h1>"
    yield f"<p>{escape(redactor.redact(markdown_head(meta)).splitlines()[2])}</p>"
    async for item in store.sessions.stream_messages(meta.id):
        lines = redactor.redact(message_markdown(item, format_call)).split("\n", 2)
        name, text = lines[0].removeprefix("## "), lines[2] if len(lines) > 2 else ""
        yield f'<article class="{item.message.role}"><h2>{escape(name)}</h2>'
        yield f"<pre>{escape(text.rstrip())}</pre></article>"
    yield "</body></html>"


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
