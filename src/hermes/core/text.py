"""Text that every wire and every store accepts, and lists of words kept in files."""

import re
from collections.abc import Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

_UNSAFE_IN_NAME = re.compile(r"[^A-Za-z0-9_-]")
_MAX_DESCRIPTION = 300
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


def clean_value(value: Any, clean_other: Callable[[Any], Any] = lambda other: other) -> Any:
    """The value with every text in it, names included, passed through `replace_invalid`; what is
    neither text nor a container is passed through `clean_other`."""
    match value:
        case str():
            return replace_invalid(value)
        case dict():
            return {replace_invalid(str(k)): clean_value(v, clean_other) for k, v in value.items()}
        case list() | tuple():
            return [clean_value(v, clean_other) for v in value]
        case _:
            return clean_other(value)


def take_text(value: str) -> str:
    """The characters of a text whose class may do anything when it is used; TypeError if it only
    says that it is one."""
    return str.__str__(value)


def describe_exception(error: BaseException) -> str:
    """The kind of an exception and its text, on one line; in the code of others even these can
    fail."""
    try:
        words = " ".join(f"{type(error).__name__}: {error}".split())
    except Exception:  # noqa: BLE001 - its text is code of others as well
        return "an exception without a text"
    return take_text(words)[:_MAX_DESCRIPTION]


def format_plural(number: int, thing: str, things: str = "") -> str:
    """`1 file`, `2 files`."""
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"


def safe_name(text: str, fallback: str) -> str:
    """Part of a file name from any text: no separators, no dots, at most 64 characters."""
    return _UNSAFE_IN_NAME.sub("_", text)[:64] or fallback


class WordLists:
    """The lists of one file. `[name]` begins a list; the rows of a table have columns, separated by
    bars."""

    def __init__(self, file: "Path") -> None:
        parts = (part.partition("]\n") for part in file.read_text("utf-8").split("\n[")[1:])
        self._rows = {name: rows.splitlines() for name, _, rows in parts}

    def get_lines(self, name: str) -> list[str]:
        return self._rows[name]

    def list_tables(self) -> Iterable[tuple[str, list[str]]]:
        return self._rows.items()

    def get_words(self, name: str) -> frozenset[str]:
        return frozenset(" ".join(self._rows[name]).split())

    def get_table(self, name: str) -> list[list[str]]:
        return [row.split("|") for row in self._rows[name]]

    def compile_pattern(self, name: str, pattern: str) -> re.Pattern[str]:
        """A pattern with the expressions of a list in the place of `{}`."""
        return re.compile(pattern.format("|".join(sorted(self.get_words(name)))))
