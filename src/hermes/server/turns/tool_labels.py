"""A tool call in a few words, for people who watch."""

from __future__ import annotations

import orjson

from hermes.core.message import ToolCall

_SHOWN = 80


def label(call: ToolCall, *, whole: bool = False) -> str:
    """The first argument that says something, in one line; `whole`: as it is."""
    try:
        args = orjson.loads(call.args or "{}")
    except orjson.JSONDecodeError:
        return call.args if whole else call.name
    values = args.values() if isinstance(args, dict) else ()
    text = next((v for v in values if isinstance(v, str) and v.strip()), call.name)
    return text if whole else " ".join(text.split())[:_SHOWN]
