"""The shell's words: quoting undone, braces and tildes expanded, with marks for what is unknown.

A word is a string in which `UNKNOWN` stands for a part that is only known at run time, `FIELDS`
for such a part outside quotes (it may become several words or none), and live wildcards are
replaced by marks of their own, so that a quoted `*` is just a character.
"""

from __future__ import annotations

import re
from functools import cache

from hermes.exec.command_policy.types import TooComplexError

UNKNOWN = "\0"
FIELDS = "\x1e"
GAP = "\x1f"
"""Separates the fields of a known value that was expanded outside quotes."""
_LIVE = {"*": "\ue02a", "?": "\ue03f", "[": "\ue05b"}
_QUOTED = {"{": "\ue07b", "}": "\ue07d", ",": "\ue02c", "~": "\ue07e", "=": "\ue03d"}
_TO_LIVE = str.maketrans(_LIVE)
_TO_QUOTED = str.maketrans(_QUOTED)
_FROM_QUOTED = str.maketrans({v: k for k, v in _QUOTED.items()})
_FROM_LIVE = str.maketrans({v: k for k, v in _LIVE.items()})
_SHOWN = str.maketrans({UNKNOWN: "…", FIELDS: "…"})
WILD = re.compile("[\ue02a\ue03f\ue05b]")
_LIVELY = re.compile(r"[*?\[\\]")
_QUOTABLE = re.compile("[{},~=]")
_ESCAPES = re.compile(r"\\(.|\Z)", re.DOTALL)
_MAX_WORDS = 200
MAX_BRACES = 40


_ORDINARY = r"[^\s'\"\\$`*?\[\]{}()<>|&;#~!=^\x00-\x1f]"
_QUOTES = r"""'[^'\n]*'|"[^"$`\\\n!]*\""""
_PLAINLY = re.compile(rf"{_ORDINARY}+(?: (?:(?:{_ORDINARY}|=)+|{_QUOTES}))*")
_PLAIN_WORD = re.compile(rf"(?:{_ORDINARY}|=)+|{_QUOTES}")


def split_plain_words(source: str) -> tuple[str, ...] | None:
    """The words of a command without anything that the shell would expand, else None."""
    if not _PLAINLY.fullmatch(source):
        return None
    if "'" not in source and '"' not in source:
        return tuple(source.split(" "))
    words = _PLAIN_WORD.findall(source)
    return tuple(word[1:-1] if word[0] in "'\"" else word for word in words)


def is_vague(word: str) -> bool:
    """Part of it is only known at run time."""
    return UNKNOWN in word or FIELDS in word


def has_wildcard(word: str) -> bool:
    return WILD.search(word) is not None


def display_word(word: str) -> str:
    """As a person would write it, with `…` for what is unknown."""
    if word.isascii():
        return word.translate(_SHOWN) if UNKNOWN in word or FIELDS in word else word
    return literal_text(word).translate(_SHOWN)


def literal_text(word: str) -> str:
    return word if word.isascii() else word.translate(_FROM_LIVE)


def remove_marks(text: str) -> str:
    """Source text without our own marks."""
    return _marks_pattern().sub("?", text)


@cache
def _marks_pattern() -> re.Pattern[str]:
    marks = "".join([UNKNOWN, FIELDS, GAP, *_LIVE.values(), *_QUOTED.values()])
    return re.compile(f"[{marks}]")


def mark_unquoted(source: str) -> str:
    """Text outside quotes: a backslash quotes one character."""
    if not _LIVELY.search(source):
        return source
    if "\\" not in source:
        return source.translate(_TO_LIVE)
    if len(source) == 2:
        return "" if source[1] == "\n" else mark_quoted(source[1])
    parts = _ESCAPES.split(source)
    return "".join(
        ("" if part == "\n" else mark_quoted(part)) if at % 2 else part.translate(_TO_LIVE)
        for at, part in enumerate(parts)
    )


def mark_quoted(value: str) -> str:
    return value.translate(_TO_QUOTED) if _QUOTABLE.search(value) else value


def mark_double_quoted(source: str) -> str:
    if "\\" in source:
        source = re.sub(r'\\(?:([$`"\\])|\n)', lambda found: found[1] or "", source)
    return mark_quoted(source)


def split_fields(value: str) -> str:
    """A known value expanded outside quotes: fields and wildcards come to life."""
    return re.sub(r"[ \t\n]+", GAP, value.translate(_TO_QUOTED)).translate(_TO_LIVE)


_SIMPLE = {
    "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t",
    "v": "\v", "\\": "\\", "'": "'", '"': '"', "?": "?",
}  # fmt: skip


@cache
def _ansi_pattern() -> re.Pattern[str]:
    return re.compile(
        r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|([0-7]{1,3})"
        r"|c(.)|(.))",
        re.DOTALL,
    )


def decode_escapes(source: str) -> str:
    r"""The value of the inside of `$'…'`; also of a format of printf."""

    def replace(found: re.Match[str]) -> str:
        code = found[1] or found[2] or found[3]
        if code:
            number = int(code, 16)
        elif found[4]:
            number = int(found[4], 8) & 0xFF
        elif found[5]:
            number = ord(found[5]) & 0x1F
        else:
            return _SIMPLE.get(found[6], "\\" + found[6])
        return chr(number) if 0 < number < 0x110000 and not 0xD800 <= number < 0xE000 else "?"

    return _ansi_pattern().sub(replace, source)


def expand_words(text: str, home: str, *, keep_empty: bool) -> list[str]:
    """Braces, fields and the tilde: the words a piece of text becomes."""
    if text and text.isascii() and "~" not in text and "{" not in text and GAP not in text:
        return [text]
    words: list[str] = []
    braces = "{" in text and ("," in text or ".." in text)
    for piece in _expand_braces(text) if braces else [text]:
        fields = [f for f in piece.split(GAP) if f] if GAP in piece else [piece]
        words += [_expand_tilde(field, home).translate(_FROM_QUOTED) for field in fields]
        if len(words) > _MAX_WORDS:
            raise TooComplexError("a word expands to too many words")
    return [word for word in words if word or keep_empty]


def _expand_tilde(word: str, home: str) -> str:
    if not word.startswith("~"):
        name, equals, value = word.partition("=~")  # also in `dd of=~/x`
        if equals and name.isidentifier():
            return f"{name}={_expand_tilde('~' + value, home)}"
        return word
    name, slash, rest = word[1:].partition("/")
    if not name:
        return home + slash + rest
    if name in ("+", "-") or not re.fullmatch(r"[A-Za-z_][\w.-]*", name):
        return (UNKNOWN if name in ("+", "-") else word[: len(name) + 1]) + slash + rest
    return ("/root" if name == "root" else f"/home/{name}") + slash + rest


def _expand_braces(text: str, depth: int = 0) -> list[str]:
    found = _first_braces(text)
    if found is None or depth > 6:
        return [text]
    start, end, options = found
    tails = _expand_braces(text[end:], depth + 1)
    if len(options) * len(tails) > _MAX_WORDS:
        raise TooComplexError("a word expands to too many words")
    heads = [h for option in options for h in _expand_braces(option, depth + 1)]
    return [text[:start] + head + tail for head in heads for tail in tails]


def _first_braces(text: str) -> tuple[int, int, list[str]] | None:
    """Start, end and alternatives of the first `{a,b}` or `{1..3}`."""
    if text.count("{") > MAX_BRACES:
        raise TooComplexError("a word has too many braces")
    start = text.find("{")
    while start >= 0:
        depth, begin, options = 0, start + 1, []
        for at in range(start, len(text)):
            char = text[at]
            if char == "{":
                depth += 1
            elif char == "," and depth == 1:
                options.append(text[begin:at])
                begin = at + 1
            elif char == "}":
                depth -= 1
                if depth == 0:
                    inside = text[begin:at]
                    if options:
                        return start, at + 1, [*options, inside]
                    if series := _expand_series(inside):
                        return start, at + 1, series
                    break
        start = text.find("{", start + 1)
    return None


def _expand_series(inside: str) -> list[str]:
    found = re.fullmatch(r"(-?\d+|[A-Za-z])\.\.(-?\d+|[A-Za-z])(?:\.\.-?\d+)?", inside)
    if not found:
        return []
    first, last = found[1], found[2]
    if first.isalpha() != last.isalpha():
        return []
    if first.isalpha():
        low, high = sorted((ord(first), ord(last)))
        return [chr(n) for n in range(low, high + 1)]
    if len(first) > 9 or len(last) > 9:
        return [UNKNOWN]
    low, high = sorted((int(first), int(last)))
    return [UNKNOWN] if high - low > 60 else [str(n) for n in range(low, high + 1)]
