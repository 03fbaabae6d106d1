"""Choices on the terminal: yes or no, or a row of a list that is searched while typing."""

import os
import re
import sys
from collections.abc import Sequence
from shutil import get_terminal_size

from msgspec import Struct

from hermes.cli.main import EXIT_USAGE, print_stderr
from hermes.cli.terminal.text import strip_controls
from hermes.config.env import get_environment

_ROWS = 12
_STEPS = {"\x1b[A": -1, "\x1bOA": -1, "\x10": -1, "\x1b[B": 1, "\x1bOB": 1, "\x0e": 1}
_STEPS |= {"\x1b[5~": -_ROWS, "\x1b[6~": _ROWS}  # Page Up and Page Down
_KEY = re.compile(r"\x1b[\[O](?=.)[^a-zA-Z~]*[a-zA-Z~]?|.", re.DOTALL)
"""A key as the terminal sends it: an escape sequence or a character."""
_CANCEL = ("\x1b", "\x03", "\x04")
_PLAIN_ROWS = 30


class PickerRow(Struct, frozen=True):
    """A value to choose, and what is said about it."""

    value: str
    detail: str = ""


def ask_yes_no(question: str) -> bool:
    """Asks on the terminal; Enter and end of input mean no."""
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def confirm_change(command: str, question: str, refusal: str) -> int | None:
    """None for yes, otherwise the exit status; without a terminal the command needs --yes."""
    if not sys.stdin.isatty():
        print_stderr(f"without a terminal, `{command}` needs --yes")
        return EXIT_USAGE
    if ask_yes_no(question):
        return None
    print(refusal, file=sys.stderr)
    return 0


def pick_row(title: str, rows: Sequence[PickerRow], current: str = "") -> str | None:
    """The value the user chose, or None. Call it only with somebody at the terminal."""
    environ = get_environment()
    if environ.get("TERM", "dumb") == "dumb" or not (os.isatty(0) and os.isatty(2)):
        return _pick_by_number(title, rows)
    import termios
    import tty

    saved = termios.tcgetattr(0)
    try:
        tty.setraw(0)
        return _PickerScreen(title, rows, current).run()
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, saved)


def match_rows(rows: Sequence[PickerRow], text: str) -> list[PickerRow]:
    """The rows that contain every word of the text, those that begin with it first."""
    words = text.lower().split()
    found = [row for row in rows if all(word in row.value.lower() for word in words)]
    first = words[0] if words else ""
    return sorted(found, key=lambda row: not row.value.lower().startswith(first))


class _PickerScreen:
    """Drawn below the cursor, redrawn in place, and erased at the end."""

    def __init__(self, title: str, rows: Sequence[PickerRow], current: str) -> None:
        self._title = title
        self._rows = rows
        self._text = ""
        self._found = list(rows)
        self._at = next((i for i, row in enumerate(rows) if row.value == current), 0)
        self._drawn = 0

    def run(self) -> str | None:
        try:
            while True:
                self._draw_rows()
                data = os.read(0, 1024).decode("utf-8", "ignore")
                if not data:
                    return None
                for key in _KEY.findall(data):
                    if key in _CANCEL:
                        return None
                    if key in "\r\n":
                        return self._found[self._at].value if self._found else None
                    self._handle_key(key)
        finally:
            _write_stderr(f"\r\x1b[{self._drawn}A\x1b[J" if self._drawn else "\r\x1b[J")

    def _handle_key(self, key: str) -> None:
        if step := _STEPS.get(key):
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
        self._found = match_rows(self._rows, self._text)
        self._at = 0

    def _draw_rows(self) -> None:
        width = get_terminal_size().columns - 1
        first = max(0, min(self._at - _ROWS // 2, len(self._found) - _ROWS))
        lines = [f"{self._title}  {len(self._found)} of {len(self._rows)}", f"> {self._text}"]
        for at, row in enumerate(self._found[first : first + _ROWS], first):
            mark = "\x1b[7m" if at == self._at else ""
            line = f"  {strip_controls(row.value):<44} {strip_controls(row.detail)}"[:width]
            lines.append(f"{mark}{line}\x1b[0m")
        lines.append("type to search · ↑↓ and Enter to choose · Esc to cancel"[:width])
        back = f"\r\x1b[{self._drawn}A" if self._drawn else "\r"
        _write_stderr(back + "\x1b[J" + "\r\n".join(lines))
        self._drawn = len(lines) - 1


def _write_stderr(text: str) -> None:
    data = text.encode()
    while data:
        data = data[os.write(2, data) :]


def _pick_by_number(title: str, rows: Sequence[PickerRow]) -> str | None:
    """Asks for a number or part of a name, line by line."""
    shown = list(rows)
    print(title, file=sys.stderr)
    while True:
        for number, row in enumerate(shown[:_PLAIN_ROWS], 1):
            text = f"{number:>4}  {strip_controls(row.value)}  {strip_controls(row.detail)}"
            print(text.rstrip(), file=sys.stderr)
        if len(shown) > _PLAIN_ROWS:
            print(f"      and {len(shown) - _PLAIN_ROWS} more", file=sys.stderr)
        print("Number or part of a name (Enter: no change): ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline().strip()
        if not line:
            return None
        if line.isdecimal() and 1 <= int(line) <= min(len(shown), _PLAIN_ROWS):
            return shown[int(line) - 1].value
        found = match_rows(rows, line)
        if len(found) == 1:
            return found[0].value
        if not found:
            print(f"Nothing matches {line!r}.", file=sys.stderr)
        shown = found or list(rows)
