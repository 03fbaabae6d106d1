"""Figures as text: short numbers, ages and paths, and tables and bars that fit the terminal."""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

_GREEN, _RESET = "\x1b[32m", "\x1b[0m"
NARROWEST = 40
USUAL_WIDTH = 80


def terminal_width() -> int:
    """Columns of the terminal, or 80 for a file or a pipe."""
    if sys.stdout.isatty():
        with suppress(OSError):
            return max(NARROWEST, os.get_terminal_size(sys.stdout.fileno()).columns)
    return USUAL_WIDTH


def format_count(number: float) -> str:
    """A short form: 1234567 is 1.2M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size * 0.9995:
            value = number / size
            return f"{value:.0f}{unit}" if value >= 100 else f"{value:.1f}{unit}"
    return f"{number:.0f}"


def format_money(dollars: float) -> str:
    return f"${dollars:,.2f}" if dollars >= 0.1 or dollars == 0 else f"${dollars:.4f}"


def format_percent(part: float, total: float) -> str:
    return f"{100 * part / total:.0f} %" if total else "-"


def format_age(seconds: float) -> str:
    """How long ago, in the largest unit that fits."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{max(0, int(seconds))}s"


def shorten_path(path: str) -> str:
    """The path with ~ for the home directory."""
    home = str(Path.home())
    return "~" + path[len(home) :] if path == home or path.startswith(home + "/") else path


def align_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """A line per row, each cell padded to the width of its column."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = (map(str.ljust, row, widths) for row in rows)
    return ["  ".join(row).rstrip() for row in padded]


def draw_bars(
    rows: Sequence[tuple[str, float, str]], room: int, *, colour: bool = False
) -> list[str]:
    """Name, bar and value on a line each; the longest bar takes all the room."""
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


def format_table(head: Sequence[str], rows: Sequence[Sequence[str]], room: int) -> list[str]:
    """The first column left-aligned and cut where it must be, the others right-aligned."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    over = sum(widths) + 2 * (len(widths) - 1) - room
    if over > 0:
        widths[0] = max(8, widths[0] - over)
    out = []
    for first, *others in (head, *rows):
        name = first if len(first) <= widths[0] else first[: widths[0] - 3] + "..."
        cells = [f"{cell:>{size}}" for cell, size in zip(others, widths[1:], strict=True)]
        out.append("  ".join([f"{name:<{widths[0]}}", *cells]).rstrip())
    return out
