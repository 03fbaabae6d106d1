"""Program output as plain text: no escape sequences, no controlling characters."""

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
"""Of a terminal. Characters that only hide text are not dropped here: `inert` shows them."""


def plain(text: str) -> str:
    """What a person would have seen: progress lines end as their last state."""
    if not _compiled("suspect").search(text):
        return text
    text = _compiled("escape").sub("", text.replace("\r\n", "\n"))
    if "\r" in text:
        text = _compiled("overwritten").sub("", text).replace("\r", "")
    text = _compiled("nul").sub("\ufffd", text)
    return _compiled("controls").sub("", text)


@cache
def _compiled(name: str) -> re.Pattern[str]:
    patterns = {
        "suspect": f"[{_CONTROLS}\x00\r]",
        "escape": _ESCAPE,
        "overwritten": r"[^\n\r]*+\r(?=[^\n\r])",
        "nul": "\x00+",
        "controls": f"[{_CONTROLS}]+",
    }
    return re.compile(patterns[name], re.VERBOSE if name == "escape" else 0)
