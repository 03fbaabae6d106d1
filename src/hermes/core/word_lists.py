"""Lists and tables of words that are kept in a text file beside the code."""

from __future__ import annotations

import re
from pathlib import Path


class WordLists:
    """The lists of one file. `[name]` begins a list; the rows of a table have columns, separated by
    bars."""

    def __init__(self, file: Path) -> None:
        parts = (part.partition("]\n") for part in file.read_text("utf-8").split("\n[")[1:])
        self._rows = {name: rows.splitlines() for name, _, rows in parts}

    def get_words(self, name: str) -> frozenset[str]:
        return frozenset(" ".join(self._rows[name]).split())

    def get_table(self, name: str) -> list[list[str]]:
        return [row.split("|") for row in self._rows[name]]

    def compile_pattern(self, name: str, pattern: str) -> re.Pattern[str]:
        """A pattern with the expressions of a list in the place of `{}`."""
        return re.compile(pattern.format("|".join(sorted(self.get_words(name)))))
