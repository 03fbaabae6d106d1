"""Finds what may be commands in the words of a program that runs texts, or that nobody knows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

from hermes.exec.gate.blocks import HARD, named
from hermes.exec.gate.scan import suspects
from hermes.exec.gate.words import literal

_MAX_TEXT = 20_000
_MAX_WORDS = 60
_MAX_COMMANDS = 4
_HARD = frozenset(HARD)
_BLANKS = re.compile(r"\$\{?IFS\b\}?(?:\$\d)?")
_APART = str.maketrans(dict.fromkeys("\"'`(){}!=", "\n"))
_UNQUOTED = str.maketrans({**dict.fromkeys("\"'\\", ""), **dict.fromkeys("()`!", "\n")})
_TOGETHER = str.maketrans({**dict.fromkeys("\"'`,[]", " "), **dict.fromkeys("(){}!", "\n")})


def commands_in(argv: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """What stands behind a program if it is a wrapper: the words from a name of the hard list."""
    found = 0
    for at in range(1, min(len(argv), _MAX_WORDS)):
        if found < _MAX_COMMANDS and literal(argv[at]).rpartition("/")[2] in _HARD:
            found += 1
            yield argv[at : at + _MAX_WORDS]


def disguises(name: str) -> tuple[str, ...]:
    """The programs that may be behind a name with wildcards in it, or one that is not known; only
    those whose words give them away."""
    pattern = name.rpartition("/")[2]
    if any(mark in pattern for mark in "*?["):
        return tuple(known for known in HARD if fnmatchcase(known, pattern))
    return ("rm", "dd", "shred", "chmod", "kill")


def texts_in(text: str) -> list[str]:
    """The simple commands of the hard list in a text of any language: as one string of it, or as
    a list of strings."""
    text = _BLANKS.sub(" ", text[:_MAX_TEXT])
    if not named(text):
        return []
    found: dict[str, None] = {}
    for reading in (_APART, _TOGETHER, _UNQUOTED):
        found |= dict.fromkeys(suspects(text.translate(reading) + "\n"))
    return list(found)
