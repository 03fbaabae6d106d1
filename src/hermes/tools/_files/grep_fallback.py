"""A separate program: searches the files named on its input and prints what ripgrep would."""

# It is a process because an expression that takes forever can only be stopped from outside: the
# interpreter lock is held while it matches. It imports nothing from this package.

from __future__ import annotations

import base64
import codecs
import json
import os
import re
import resource
import stat
import sys
from collections.abc import Iterator
from typing import Any

_CPU_SECONDS = 60
"""Ends the program even when its parent is gone."""


def main() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS))
    names = _read_names()
    order = json.loads(next(names))
    try:
        pattern = re.compile(order["pattern"])
    except (re.error, RecursionError, OverflowError) as error:
        sys.stderr.write(f"error: {error}")
        sys.exit(2)
    for name in names:
        found = _search_file(name, pattern, order)
        if found:
            sys.stdout.write("".join(found))
            sys.stdout.flush()


def _read_names() -> Iterator[bytes]:
    partial = b""
    while block := os.read(0, 65536):
        *complete, partial = (partial + block).split(b"\0")
        yield from complete


def _search_file(name: bytes, pattern: re.Pattern[str], order: dict[str, Any]) -> list[str]:
    data = _read_file(name, order["largest"])
    text = _decode_text(data) if data else None
    if text is None or (order["literal"] and order["pattern"] not in text):
        return []
    rows = text.split("\n")
    if not rows[-1]:
        rows.pop()
    hits: dict[int, int] = {}
    for at, row in enumerate(rows):
        if (match := pattern.search(row.removesuffix("\r"))) is not None:
            hits[at] = len(row[: match.start()].encode("utf-8", "replace"))
            if len(hits) >= order["most"]:
                break
    around = order["context"]
    shown = sorted({at + n for at in hits for n in range(-around, around + 1)})
    path = _encode_text(name)
    return [_format_row(path, at, rows[at], hits.get(at)) for at in shown if 0 <= at < len(rows)]


def _read_file(name: bytes, largest: int) -> bytes | None:
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_size > largest:
            return None
        with os.fdopen(fd, "rb", closefd=False) as file:
            return file.read(largest)
    except OSError:
        return None
    finally:
        os.close(fd)


def _decode_text(data: bytes) -> str | None:
    """The text; None when the data is binary."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", "replace")
    if b"\0" in data:
        return None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _encode_text(data: bytes) -> dict[str, str]:
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"bytes": base64.b64encode(data).decode()}


def _format_row(path: dict[str, str], at: int, row: str, start: int | None) -> str:
    hits = [] if start is None else [{"start": start}]
    data = {"path": path, "lines": {"text": row}, "line_number": at + 1, "submatches": hits}
    return json.dumps({"type": "match" if hits else "context", "data": data}) + "\n"


if __name__ == "__main__":
    main()
