"""Styled text: pieces with colours, cut or wrapped to a width, as terminal escape codes."""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TypeAlias

Piece: TypeAlias = tuple[str, str]
"""SGR parameters ("1;36", or "" for none) and the text they apply to."""
Line: TypeAlias = list[Piece]


class Style:
    """No blue, which is unreadable on black, and no yellow, which is unreadable on white."""

    BOLD, DIM, ITALIC, STRUCK = "1", "2", "3", "9"
    HEADING, CODE, LINK, MARK = "1;36", "36", "4;36", "36"
    GOOD, BAD, WARNING, SAID = "32", "31", "1;35", "1"


_WIDE_CHARS = (
    "\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\ua960-\ua97c\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f"
    "\uff00-\uff60\uffe0-\uffe6\U00020000-\U0003fffd"
)
_WORDS = re.compile(f"[ \t]+|[{_WIDE_CHARS}]|[^ \t{_WIDE_CHARS}]+")
_TAB = "    "


@lru_cache(maxsize=4096)
def _unicode_width(text: str) -> int:
    from wcwidth import wcswidth, wcwidth

    width = wcswidth(text)
    return width if width >= 0 else sum(max(0, wcwidth(c)) for c in text)


def cell_width(text: str) -> int:
    """How many columns the text takes."""
    return len(text) if text.isascii() else _unicode_width(text)


def paint_line(pieces: Iterable[Piece], *, colour: bool) -> str:
    """The pieces as text with escape codes, or as plain text."""
    if not colour:
        return "".join(text for _, text in pieces)
    out = []
    for style, text in pieces:
        out.append(f"\x1b[{style}m{text}\x1b[0m" if style and text else text)
    return "".join(out)


def join_styles(*styles: str) -> str:
    return ";".join(filter(None, styles))


def fit_text(text: str, width: int) -> str:
    """The text cut to the width, with … where it was cut."""
    if cell_width(text) <= width:
        return text
    out, used = [], 0
    for char in text:
        used += cell_width(char)
        if used >= width:
            break
        out.append(char)
    return "".join(out) + "…"


def wrap_line(
    pieces: Sequence[Piece], width: int, head: Sequence[Piece] = (), indent: str = ""
) -> list[Line]:
    """Lines of at most `width` columns, broken between words, between wide characters, or inside a
    word longer than a line. The first line begins with `head`, the others with `indent`."""
    first = sum(cell_width(text) for _, text in head)
    width = max(width, first + 4, len(indent) + 4)
    if len(pieces) == 1 and len(pieces[0][1]) + first <= width and pieces[0][1].isascii():
        return [[*head, (pieces[0][0], pieces[0][1].replace("\t", _TAB))]]
    return _LineWrapper(width, head, first, indent).wrap_pieces(pieces)


class _LineWrapper:
    """Fills lines word by word."""

    def __init__(self, width: int, head: Sequence[Piece], first: int, indent: str) -> None:
        self._width = width
        self._indent = indent
        self._lines: list[Line] = [list(head)]
        self._used = self._start = first
        self._space: Piece | None = None

    def wrap_pieces(self, pieces: Sequence[Piece]) -> list[Line]:
        for style, text in pieces:
            for word in _WORDS.findall(text.replace("\t", _TAB)):
                if word[0] == " ":
                    self._space = (style, word)
                else:
                    self._add_word(style, word)
        return self._lines

    def _add_word(self, style: str, word: str) -> None:
        size = cell_width(word)
        gap = len(self._space[1]) if self._space else 0
        if self._used + gap + size > self._width and self._used > self._start:
            self._start_line()
        elif self._space is not None:
            self._lines[-1].append(self._space)
            self._used += gap
        self._space = None
        if self._used + size > self._width:
            self._split_word(style, word)
        else:
            self._lines[-1].append((style, word))
            self._used += size

    def _split_word(self, style: str, word: str) -> None:
        piece: list[str] = []
        used = self._used
        for char in word:
            size = cell_width(char)
            if used + size > self._width and (piece or used > self._start):
                self._lines[-1].append((style, "".join(piece)))
                self._start_line()
                piece, used = [], self._used
            piece.append(char)
            used += size
        self._lines[-1].append((style, "".join(piece)))
        self._used = used

    def _start_line(self) -> None:
        self._lines.append([("", self._indent)] if self._indent else [])
        self._used = self._start = len(self._indent)
