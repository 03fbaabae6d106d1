"""Choosing one of many on the terminal: typing searches, arrows move; a plain list elsewhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from shutil import get_terminal_size

from msgspec import Struct

from hermes.cli.terminal.text import printable
from hermes.config.env import get_environment

_ROWS = 12
_UP, _DOWN, _PAGE_UP, _PAGE_DOWN = "\x1b[A", "\x1b[B", "\x1b[5~", "\x1b[6~"
_MOVES = {_UP: -1, "\x1bOA": -1, "\x10": -1, _DOWN: 1, "\x1bOB": 1, "\x0e": 1}
_JUMPS = {_PAGE_UP: -_ROWS, _PAGE_DOWN: _ROWS}
_CANCEL = ("\x1b", "\x03", "\x04")
_LISTED = 30


class Row(Struct, frozen=True):
    value: str
    detail: str = ""


def pick(title: str, rows: Sequence[Row], current: str = "") -> str | None:
    """The value of the chosen row; None: nothing was chosen. Only with somebody at the terminal."""
    environ = get_environment()
    if environ.get("TERM", "dumb") == "dumb" or not (os.isatty(0) and os.isatty(2)):
        return _plain(title, rows)
    import termios
    import tty

    saved = termios.tcgetattr(0)
    try:
        tty.setraw(0)
        return _Screen(title, rows, current).run()
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, saved)


def matching(rows: Sequence[Row], text: str) -> list[Row]:
    """Those that have every word of it, the ones that begin with it first."""
    words = text.lower().split()
    found = [row for row in rows if all(word in row.value.lower() for word in words)]
    if not words:
        return found
    return sorted(found, key=lambda row: not row.value.lower().startswith(words[0]))


class _Screen:
    """Drawn below where the cursor is, over itself, and wiped at the end."""

    def __init__(self, title: str, rows: Sequence[Row], current: str) -> None:
        self._title = title
        self._rows = rows
        self._text = ""
        self._found = list(rows)
        self._at = next((i for i, row in enumerate(rows) if row.value == current), 0)
        self._drawn = 0

    def run(self) -> str | None:
        try:
            while True:
                self._draw()
                data = os.read(0, 1024).decode("utf-8", "ignore")
                if not data:
                    return None
                for key in _keys(data):
                    if key in _CANCEL:
                        return None
                    if key in "\r\n":
                        return self._found[self._at].value if self._found else None
                    self._take(key)
        finally:
            self._write(f"\r\x1b[{self._drawn}A\x1b[J" if self._drawn else "\r\x1b[J")

    def _take(self, key: str) -> None:
        step = _MOVES.get(key) or _JUMPS.get(key)
        if step:
            self._at = max(0, min(len(self._found) - 1, self._at + step))
            return
        if key in ("\x7f", "\x08"):
            self._text = self._text[:-1]
        elif key == "\x15":
            self._text = ""
        elif key.isprintable():
            self._text += key
        else:
            return
        self._found = matching(self._rows, self._text)
        self._at = 0

    def _draw(self) -> None:
        width = get_terminal_size().columns - 1
        first = max(0, min(self._at - _ROWS // 2, len(self._found) - _ROWS))
        lines = [f"{self._title}  {len(self._found)} of {len(self._rows)}", f"> {self._text}"]
        for at, row in enumerate(self._found[first : first + _ROWS], first):
            mark = "\x1b[7m" if at == self._at else ""
            line = f"  {printable(row.value):<44} {printable(row.detail)}"[:width]
            lines.append(f"{mark}{line}\x1b[0m")
        lines.append("type to search, arrows and Enter to choose, Esc to leave"[:width])
        back = f"\r\x1b[{self._drawn}A" if self._drawn else "\r"
        self._write(back + "\x1b[J" + "\r\n".join(lines))
        self._drawn = len(lines) - 1

    def _write(self, text: str) -> None:
        data = text.encode()
        while data:
            data = data[os.write(2, data) :]


def _keys(data: str) -> list[str]:
    """What was pressed: escape sequences stay whole."""
    found: list[str] = []
    while data:
        size = 1
        if data.startswith(("\x1b[", "\x1bO")) and len(data) > 2:
            size = 3
            while size < len(data) and not data[size - 1].isalpha() and data[size - 1] != "~":
                size += 1
        found.append(data[:size])
        data = data[size:]
    return found


def _plain(title: str, rows: Sequence[Row]) -> str | None:
    """Numbers and parts of names, line by line."""
    shown = list(rows)
    print(title, file=sys.stderr)
    while True:
        for number, row in enumerate(shown[:_LISTED], 1):
            text = f"{number:>4}  {printable(row.value)}  {printable(row.detail)}"
            print(text.rstrip(), file=sys.stderr)
        if len(shown) > _LISTED:
            print(f"      and {len(shown) - _LISTED} more", file=sys.stderr)
        print("number, or part of a name (Enter: no change): ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline().strip()
        if not line:
            return None
        if line.isdecimal() and 1 <= int(line) <= min(len(shown), _LISTED):
            return shown[int(line) - 1].value
        found = matching(rows, line)
        if len(found) == 1:
            return found[0].value
        if not found:
            print(f"nothing matches {line!r}", file=sys.stderr)
        shown = found or list(rows)
