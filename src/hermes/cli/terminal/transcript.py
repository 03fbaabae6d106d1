"""A stored message as Markdown for people."""

from __future__ import annotations

from hermes.cli.terminal.text import call_line
from hermes.core.message import Media, Native, Part, Text, Thinking, ToolCall, ToolReturn
from hermes.core.store import Stored

_NAMES = {"user": "You", "assistant": "Hermes", "tool": "Tool"}


def markdown(item: Stored) -> str:
    message = item.message
    name = _NAMES[message.role]
    if message.kind != "normal":
        name += f" ({message.kind})"
    pieces = [piece for part in message.parts if (piece := _piece(part))]
    if message.stop in ("aborted", "died", "length"):
        pieces.append(f"*(broken off: {message.stop})*")
    return f"## {name}\n\n" + "\n\n".join(pieces) + "\n"


def _piece(part: Part) -> str:
    match part:
        case Text(text=text):
            return text.strip("\n")
        case Thinking(text=text):
            return "\n".join(f"> {line}" for line in text.strip().splitlines())
        case Media(mime=mime, name=name, data=data):
            return f"*({mime} {name or 'attached'}, {len(data)} bytes)*"
        case ToolCall(name=name, args=args):
            return f"*calls* `{call_line(name, args)}`"
        case ToolReturn(name=name, error=error):
            head = f"*{name} {'failed' if error else 'returned'}*"
            return f"{head}\n\n{fenced(part.text)}"
        case Native():
            return "*(something the provider ran itself)*"


def fenced(text: str) -> str:
    """In a fence longer than any inside."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{text.rstrip()}\n{fence}"
