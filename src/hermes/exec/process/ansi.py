"""Converts program output to plain text, without escape sequences and control characters."""

from __future__ import annotations

import re
from functools import cache

_ESCAPE = r"""
    \x1b\[ [0-?]* [ -/]* [@-~]                       # CSI: colours, cursor
  | (?: \x1b\] | \x9d ) [^\x07\x1b\x9c]*+ (?: \x07 | \x1b\\ | \x9c )   # OSC: titles, clipboard
  | \x1b[PX^_] [^\x1b\x9c]*+ (?: \x1b\\ | \x9c )      # DCS, SOS, PM, APC
  | \x9b [0-?]* [ -/]* [@-~]
  | \x1b [ -/]* [0-~]
"""
_CONTROLS = "\x01-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"
"""Of a terminal. Characters that merely hide text are kept; `inert` makes them visible."""


def to_plain_text(text: str) -> str:
    """The text as a person would have seen it: of a progress line only the last state remains."""
    if not _compile_pattern("suspect").search(text):
        return text
    text = _compile_pattern("escape").sub("", text.replace("\r\n", "\n"))
    if "\r" in text:
        text = _compile_pattern("overwritten").sub("", text).replace("\r", "")
    text = _compile_pattern("nul").sub("\ufffd", text)
    return _compile_pattern("controls").sub("", text)


@cache
def _compile_pattern(name: str) -> re.Pattern[str]:
    patterns = {
        "suspect": f"[{_CONTROLS}\x00\r]",
        "escape": _ESCAPE,
        "overwritten": r"[^\n\r]*+\r(?=[^\n\r])",
        "nul": "\x00+",
        "controls": f"[{_CONTROLS}]+",
    }
    return re.compile(patterns[name], re.VERBOSE if name == "escape" else 0)
