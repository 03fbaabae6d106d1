"""Words of the shell as far as they are literal."""

import re
from pathlib import Path

from hermes.core.text import WordLists

UNKNOWN = "\0"
"""Stands in a word for a part that is known only at run time."""
_PIECE = re.compile(
    r"""\$'(?P<ansi>(?:[^'\\]|\\.)*)' | '(?P<raw>[^']*)' | \$?"(?P<quoted>(?:[^"\\]|\\.)*)"
      | \\(?P<escaped>.) | (?P<value>\$\w+|\$\{\w+\}) | (?P<wild>[*?\[\]])
      | (?P<plain>[^'"\\$*?\[\]]+|.)""",
    re.VERBOSE | re.DOTALL,
)
_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")
_MAX_BRACES = 32
_VALUE = re.compile(r"\$\w+|\$\{\w+\}")
_SPECIAL = re.compile(r"[\\'\"$*?\[\]]")
_TILDE = re.compile(r"(\A|=)~(?=/|\Z)")
LISTS = WordLists(Path(__file__).with_name("program_lists.txt"))
REMEMBERED_PREFIXES: frozenset[tuple[str, ...]] = frozenset(
    (name, subcommand) if subcommand else (name,)
    for names, subcommands in LISTS.get_table("remembered prefixes")
    for name in names.split()
    for subcommand in subcommands.split() or ("",)
)
"""What an answer allows whatever follows; of all other commands it allows the exact words."""


def unquote_word(source: str, user_home: str, wildcard: str = "") -> str:
    """The word that this source text stands for: without quotes, with the home for `~` and
    `$HOME`, `UNKNOWN` for other values, and `wildcard` (else themselves) for live wildcards."""
    if "~" in source:  # also in `dd of=~/x`
        source = _TILDE.sub(lambda found: found[1] + user_home, source, count=1)
    if not _SPECIAL.search(source):
        return source
    parts = []
    for found in _PIECE.finditer(source.replace("\\\n", "") if "\\\n" in source else source):
        kind = found.lastgroup or ""
        text = found[kind]
        if kind == "quoted":
            text = _VALUE.sub(lambda value: expand_value(value[0], user_home), text)
            text = re.sub(r'\\([$`"\\])', r"\1", text)
        elif kind == "value":
            text = expand_value(text, user_home)
        elif (kind == "ansi" and "\\" in text) or (kind == "wild" and wildcard):
            text = wildcard or UNKNOWN
        parts.append(text)
    return "".join(parts)


def expand_braces(word: str, user_home: str) -> list[str]:
    """The words that `{a,b}` stands for, at most a few."""
    words = [word]
    while len(words) < _MAX_BRACES and (found := _BRACES.search(words[0])):
        before, after = words[0][: found.start()], words[0][found.end() :]
        words = [*words[1:], *(before + part + after for part in found[1].split(","))]
    return [word] if words == [word] else [_TILDE.sub(rf"\1{user_home}", w) for w in words]


def expand_value(source: str, user_home: str) -> str:
    return user_home if source in ("$HOME", "${HOME}") else UNKNOWN


def display_argv(argv: tuple[str, ...]) -> tuple[str, ...]:
    """The words as a person would write them, with `…` for what is unknown."""
    unknown = UNKNOWN in "".join(argv)
    return tuple(word.replace(UNKNOWN, "…") for word in argv) if unknown else argv
