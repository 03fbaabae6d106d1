"""Text that every wire and every store accepts."""

from __future__ import annotations

import re
from functools import cache

_UNSAFE_IN_NAME = re.compile(r"[^A-Za-z0-9_-]")
_BAD = re.compile("[\x00\ud800-\udfff]")


@cache
def compile_pattern(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """Compiled at first use: most runs need few of the patterns."""
    return re.compile(pattern, flags)


def replace_invalid(text: str) -> str:
    """Replace lone surrogates and NULs."""
    try:
        if not text.isascii():
            text.encode()
    except UnicodeEncodeError:
        return _BAD.sub("\ufffd", text)
    return text.replace("\x00", "\ufffd") if "\x00" in text else text


def format_plural(number: int, thing: str, things: str = "") -> str:
    """`1 file`, `2 files`."""
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"


def safe_name(text: str, fallback: str) -> str:
    """Part of a file name from any text: no separators, no dots, at most 64 characters."""
    return _UNSAFE_IN_NAME.sub("_", text)[:64] or fallback
