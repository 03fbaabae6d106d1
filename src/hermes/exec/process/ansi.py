"""Converts program output to plain text, without escape sequences and control characters."""

import re

from hermes.core.text import compile_pattern

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
    if not compile_pattern(f"[{_CONTROLS}\x00\r]").search(text):
        return text
    text = compile_pattern(_ESCAPE, re.VERBOSE).sub("", text.replace("\r\n", "\n"))
    if "\r" in text:
        text = compile_pattern(r"[^\n\r]*+\r(?=[^\n\r])").sub("", text).replace("\r", "")
    text = compile_pattern("\x00+").sub("\ufffd", text)
    return compile_pattern(f"[{_CONTROLS}]+").sub("", text)
