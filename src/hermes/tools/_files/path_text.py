"""The path a model wrote, without what it put around it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from unicodedata import normalize
from urllib.parse import unquote

_FILE = "file://"
_QUOTES = "\"'`"


def written(raw: str, cwd: Path) -> Path:
    """What it says when that is there; else without quotes, white space, `file://`, or with its
    accents composed otherwise, where that is there or a name could not be meant so."""
    plain = _bare(raw)
    first = _place(raw, cwd)
    # What leads away means the same whatever is there: it was judged before it is used.
    if os.path.lexists(first) and (plain == raw or not _leads_away(plain)):
        return first
    readings = [_place(one, cwd) for one in _readings(plain)]
    return next((p for p in readings if os.path.lexists(p)), readings[0])


def _place(raw: str, cwd: Path) -> Path:
    return cwd / os.path.expanduser(raw)  # noqa: PTH111 - Path's own fails on `~name`


def _bare(raw: str) -> str:
    text = raw.strip()
    while len(text) > 2 and text[0] == text[-1] and text[0] in _QUOTES:
        text = text[1:-1].strip()
    if text[: len(_FILE)].casefold() == _FILE:
        text = unquote(text[len(_FILE) :].removeprefix("localhost"))
    return text or raw


def _readings(plain: str) -> Iterator[str]:
    yield plain
    if not plain.isascii():
        yield normalize("NFC", plain)
        yield normalize("NFD", plain)
    if plain.startswith("@") and not _leads_away(plain[1:]):
        yield plain[1:]


def _leads_away(text: str) -> bool:
    return text.startswith(("/", "~")) or ".." in Path(text).parts
