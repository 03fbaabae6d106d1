"""Styled text for the scrollback: pieces with colours, wrapped at a width, as escape codes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TypeAlias

Piece: TypeAlias = tuple[str, str]
"""SGR parameters ("1;36", or "" for none) and the text they are for."""

PLAIN, BOLD, DIM, ITALIC, STRUCK = "", "1", "2", "3", "9"
HEADING, CODE, LINK, MARK = "1;36", "36", "4;36", "36"
GOOD, BAD, WARNING, SAID = "32", "31", "1;35", "1"
"""Neither blue, which is not to be read on black, nor yellow, which is not on white."""

_WIDE = (
    "\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\ua960-\ua97c\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f"
    "\uff00-\uff60\uffe0-\uffe6\U00020000-\U0003fffd"
)
_WORDS = re.compile(f"[ \t]+|[{_WIDE}]|[^ \t{_WIDE}]+")
_TAB = "    "


@lru_cache(maxsize=4096)
def _wide(text: str) -> int:
    from wcwidth import wcswidth, wcwidth

    width = wcswidth(text)
    return width if width >= 0 else sum(max(0, wcwidth(c)) for c in text)


def cells(text: str) -> int:
    """How many columns it takes."""
    return len(text) if text.isascii() else _wide(text)


def painted(pieces: Iterable[Piece], *, colour: bool) -> str:
    if not colour:
        return "".join(text for _, text in pieces)
    out = []
    for style, text in pieces:
        out.append(f"\x1b[{style}m{text}\x1b[0m" if style and text else text)
    return "".join(out)


def join(*styles: str) -> str:
    return ";".join(filter(None, styles))


def fit(text: str, width: int) -> str:
    """Cut to the width, with a sign that it was."""
    if cells(text) <= width:
        return text
    out, used = [], 0
    for char in text:
        used += cells(char)
        if used >= width:
            break
        out.append(char)
    return "".join(out) + "…"


def wrap(
    pieces: Sequence[Piece], width: int, head: Sequence[Piece] = (), indent: str = ""
) -> list[list[Piece]]:
    """Lines of at most `width` columns, broken between words, between wide characters, or where
    a word is longer than a line. The first begins with `head`, the others with `indent`."""
    first = sum(cells(text) for _, text in head)
    width = max(width, first + 4, len(indent) + 4)
    if len(pieces) == 1 and len(pieces[0][1]) + first <= width and pieces[0][1].isascii():
        return [[*head, (pieces[0][0], pieces[0][1].replace("\t", _TAB))]]
    return _Wrapping(width, head, first, indent).of(pieces)


class _Wrapping:
    def __init__(self, width: int, head: Sequence[Piece], first: int, indent: str) -> None:
        self._width = width
        self._indent = indent
        self._lines: list[list[Piece]] = [list(head)]
        self._used = self._start = first
        self._space: Piece | None = None

    def of(self, pieces: Sequence[Piece]) -> list[list[Piece]]:
        for style, text in pieces:
            for word in _WORDS.findall(text.replace("\t", _TAB)):
                if word[0] == " ":
                    self._space = (style, word)
                else:
                    self._word(style, word)
        return self._lines

    def _word(self, style: str, word: str) -> None:
        size = cells(word)
        gap = len(self._space[1]) if self._space else 0
        if self._used + gap + size > self._width and self._used > self._start:
            self._break()
        elif self._space is not None:
            self._lines[-1].append(self._space)
            self._used += gap
        self._space = None
        if self._used + size > self._width:
            self._long(style, word)
        else:
            self._lines[-1].append((style, word))
            self._used += size

    def _long(self, style: str, word: str) -> None:
        piece: list[str] = []
        used = self._used
        for char in word:
            size = cells(char)
            if used + size > self._width and (piece or used > self._start):
                self._lines[-1].append((style, "".join(piece)))
                self._break()
                piece, used = [], self._used
            piece.append(char)
            used += size
        self._lines[-1].append((style, "".join(piece)))
        self._used = used

    def _break(self) -> None:
        self._lines.append([("", self._indent)] if self._indent else [])
        self._used = self._start = len(self._indent)
