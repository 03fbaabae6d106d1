"""Numbers as text: short forms, tables and bars that fit the terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

_GREEN, _RESET = "\x1b[32m", "\x1b[0m"
NARROWEST = 40
USUAL = 80


def width() -> int:
    """Columns of the terminal; of a file or a pipe, the usual 80."""
    if sys.stdout.isatty():
        try:
            return max(NARROWEST, os.get_terminal_size(sys.stdout.fileno()).columns)
        except OSError:
            return USUAL
    return USUAL


def compact(number: float) -> str:
    """1234567 is 1.2M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size * 0.9995:
            value = number / size
            return f"{value:.0f}{unit}" if value >= 100 else f"{value:.1f}{unit}"
    return f"{number:.0f}"


def money(dollars: float) -> str:
    return f"${dollars:,.2f}" if dollars >= 0.1 or dollars == 0 else f"${dollars:.4f}"


def percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "-"


def bars(rows: Sequence[tuple[str, float, str]], room: int, *, colour: bool = False) -> list[str]:
    """Name, bar and value on a line each; the longest bar takes the room there is."""
    names = max((len(name) for name, _, _ in rows), default=0)
    values = max((len(text) for _, _, text in rows), default=0)
    most = max((value for _, value, _ in rows), default=0)
    longest = max(1, room - names - values - 4)
    out = []
    for name, value, text in rows:
        length = round(value / most * longest) if most > 0 else 0
        bar = "#" * max(length, 1 if value > 0 else 0)
        space = " " * (longest - len(bar))
        shown = f"{_GREEN}{bar}{_RESET}" if colour and bar else bar
        out.append(f"{name:<{names}}  {shown}{space}  {text:>{values}}".rstrip())
    return out


def table(head: Sequence[str], rows: Sequence[Sequence[str]], room: int) -> list[str]:
    """The first column to the left, the others to the right; too wide, the first is cut."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    over = sum(widths) + 2 * (len(widths) - 1) - room
    if over > 0:
        widths[0] = max(8, widths[0] - over)
    out = []
    for first, *rest in (head, *rows):
        name = first if len(first) <= widths[0] else first[: widths[0] - 3] + "..."
        cells = [f"{cell:>{size}}" for cell, size in zip(rest, widths[1:], strict=True)]
        out.append("  ".join([f"{name:<{widths[0]}}", *cells]).rstrip())
    return out
