"""Text made fit for showing: one line, no control characters, valid JSON."""

from __future__ import annotations

from typing import Any

import orjson

from hermes.core.text import clean

_CONTROL = {code: None for code in (*range(0x20), 0x7F, *range(0x80, 0xA0)) if code not in (9, 10)}


def printable(text: str) -> str:
    """Without control characters: what a model or a tool wrote must not drive the terminal."""
    return text.translate(_CONTROL)


def one_line(text: str, limit: int = 120) -> str:
    line = " ".join(printable(text).split())
    return line if len(line) <= limit else line[: limit - 3] + "..."


def parsed(arguments: str) -> Any:
    """The object the model wrote; its raw text when it is not JSON."""
    try:
        return orjson.loads(arguments) if arguments.strip() else {}
    except ValueError:
        return arguments


def dump(value: Any) -> str:
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        return orjson.dumps(_cleaned(value)).decode()


def _cleaned(value: Any) -> Any:
    """Lone surrogates are not text for JSON."""
    match value:
        case str():
            return clean(value)
        case dict():
            return {clean(str(key)): _cleaned(item) for key, item in value.items()}
        case list():
            return [_cleaned(item) for item in value]
        case _:
            return value


def call_line(name: str, arguments: str) -> str:
    """A call on one line: its name and the argument that says most."""
    values = parsed(arguments)
    if not isinstance(values, dict):
        return one_line(f"{name} {arguments}")
    for key in ("command", "path", "query", "url", "question"):
        if isinstance(values.get(key), str):
            return one_line(f"{name}: {values[key]}")
    return one_line(f"{name} {arguments}" if values else name)
