"""Checks a command's text before parsing: misleading characters, and shapes too costly to parse.

The parser takes quadratic time to recover from errors and cannot be interrupted. So text that is
unbalanced, nested too deeply or has too many operators never reaches it.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache

from hermes.exec.command_policy.types import TooComplexError

MAX_BYTES = 128 * 1024
_MAX_OPERATORS = 900
_MAX_MARKS = 8000
_MAX_DEPTH = 24
_MAX_STRAY = 60
_MAX_TESTS = 200
_MAX_VARIABLES = 1500
_MAX_JOINED = 500
_MAX_DOCUMENTS = 30
_MAX_WORDS = 6000
_MAX_WORD = 1500
_MAX_PLAIN = 8000
_EXPECTING = frozenset("| || && |& ; & < > >> >| <& >& <<<".split())
_FOLLOWING = frozenset([*"| || && |& ; ;; & )".split(), "\n"])
_LOOK_ALIKES = str.maketrans("аеорсухіјѕһԁԛԝкмтнвгӏοαερτυνικχ", "aeopcyxijshdqwkmthbrloaeptuvikx")
"""Letters of other alphabets that are taken for Latin ones."""
_OPENING = {"(": ")", "$(": ")", "<(": ")", ">(": ")", "$((": "))", "((": "))", "${": "}"}


def explain_misleading(text: str) -> str:
    """Why a person could mistake this text for another one; empty when not."""
    if text.isascii() and not _compile_pattern("control").search(text):
        return ""
    for char in dict.fromkeys(text):
        if char in "\t\n" or " " <= char <= "~":
            continue
        category = unicodedata.category(char)
        if category in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"):
            return f"contains the invisible or control character U+{ord(char):04X}"
        if category[0] in "LN" and unicodedata.normalize("NFKC", char).isascii():
            return f"contains the look-alike {char!r} (U+{ord(char):04X})"
    mixed = _compile_pattern("mixed").search(text)
    return f"mixes alphabets in {mixed[0][:40]!r}" if mixed else ""


def normalize_look(text: str) -> str:
    """The text as it looks to a person: look-alikes replaced, invisible characters removed."""
    chars = unicodedata.normalize("NFKC", text[:_MAX_PLAIN]).translate(_LOOK_ALIKES)
    shown = {char: _visible_form(char) for char in set(chars)}
    return "".join([shown[char] for char in chars])


def _visible_form(char: str) -> str:
    category = unicodedata.category(char)
    if category in ("Cc", "Cf", "Cs", "Co", "Cn") and char not in "\t\n":
        return ""
    return " " if category == "Zs" else char


def join_lines(text: str) -> str:
    """The text with lines joined as the shell does, where the parser does not: inside a word, and
    at the start of a line."""
    if "\\\n" not in text or text.count("\\\n") > _MAX_JOINED:
        return text
    return _compile_pattern("joined").sub(r"\1\2", _compile_pattern("line start").sub("", text))


def avoid_parser_bugs(text: str) -> str:
    """The same command, rewritten where the parser has known bugs."""
    if ":$" in text:
        text = _compile_pattern("after colon").sub(r":${\1}", text)
    if "- <<" in text:
        text = _compile_pattern("dash").sub(r" \-\1", text)
    if "{" in text:
        text = _compile_pattern("braces first").sub(r"\1''{", text)
    return text


def check_shape(text: str) -> None:
    """Raise TooComplex when parsing could take long."""
    marks = sum(map(text.count, "|&;()<>{}`[]"))
    quotes = text.count('"') + text.count("'")
    if (
        marks > _MAX_MARKS
        or quotes > _MAX_MARKS
        or text.count("$") > _MAX_VARIABLES
        or text.count("\\\n") > _MAX_JOINED
        or text.count("[[") > _MAX_TESTS
    ):
        raise TooComplexError("it has too many operators")
    _ShapeCheck(text).check()


class _ShapeCheck:
    """Follows quotes, here-documents and brackets, roughly as the shell does."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.stack: list[str] = []
        self.operators = 0
        self.stray = 0
        self.words = 0
        self.documents = 0
        self.heredocs: list[str] = []
        self.waiting = ""
        """An operator that something must follow."""

    def check(self) -> None:
        at, end = 0, len(self.text)
        code, quoted = _compile_pattern("code"), _compile_pattern("quoted")
        while at < end:
            inside = bool(self.stack) and self.stack[-1] == '"'
            found = (quoted if inside else code).match(self.text, at)
            if found is None:
                raise TooComplexError("a quotation does not end")
            at = self._take_token(found[0], inside, found.end())
            if self.operators > _MAX_OPERATORS or self.words > _MAX_WORDS:
                raise TooComplexError("it has too many parts")
            if len(self.stack) > _MAX_DEPTH:
                raise TooComplexError("it is nested too deeply")
        if self.stack:
            raise TooComplexError(f"something is never closed (missing {self.stack[-1]})")

    def _check_order(self, token: str) -> None:
        """Raise TooComplex for an operator where none can be: bash would not run this."""
        if token.isspace() and token != "\n":
            return
        if self.waiting and token in _FOLLOWING and (token != "\n" or self.waiting[0] in "<>"):
            raise TooComplexError(f"{token!r} after {self.waiting!r} makes no sense")
        self.waiting = token if token in _EXPECTING else ""

    def _take_token(self, token: str, inside: bool, end: int) -> int:
        if not inside:
            self._check_order(token)
        top = self.stack[-1] if self.stack else ""
        if token in ('"', "`"):
            if top == token:
                self.stack.pop()
            else:
                self.stack.append(token)
        elif token in _OPENING:
            self.operators += 1
            self.stack.append(_OPENING[token])
        elif token in (")", "}"):
            return self._close_bracket(token, top, end)
        elif token.startswith("<<") and token != "<<<" and not inside:
            self.documents += 1
            if self.documents > _MAX_DOCUMENTS:
                raise TooComplexError("it has too many here-documents")
            self.heredocs.append(_compile_pattern("unquote").sub("", token.lstrip("<-").strip()))
        elif token == "\n":
            self.operators += 1
            return self._skip_heredocs(end)
        elif token[0] in "|&;<>":
            self.operators += 1
        elif not inside:
            self.words += token.count(" ")
            if len(token) > _MAX_WORD and _compile_pattern("long").search(token):
                raise TooComplexError("a word is too long")
        return end

    def _close_bracket(self, token: str, top: str, end: int) -> int:
        if top == "))" and token == ")":
            if self.text[end : end + 1] == ")":
                self.stack.pop()
                return end + 1
            self.stack[-1] = ")"  # it was `( (…) …)`, or `$( (…) …)`
        elif top == token:
            self.stack.pop()
        elif token == ")":
            self.stray += 1
            if self.stray > _MAX_STRAY:
                raise TooComplexError("it has too many closing brackets")
        return end

    def _skip_heredocs(self, at: int) -> int:
        for delimiter in self.heredocs:
            closing = re.compile(rf"^\t*{re.escape(delimiter)}$", re.MULTILINE)
            found = closing.search(self.text, at)
            if found is None:
                raise TooComplexError("a here-document does not end")
            at = found.end()
        self.heredocs.clear()
        return at


@cache
def _compile_pattern(name: str) -> re.Pattern[str]:
    return re.compile(_PATTERNS[name], re.DOTALL)


_PATTERNS = {
    "control": r"[^\t\n -~]",
    "mixed": r"[A-Za-z0-9_./-]*(?:[A-Za-z][Ͱ-ϿЀ-ԯ]|[Ͱ-ϿЀ-ԯ][A-Za-z])[A-Za-z0-9_./-]*",
    "joined": r"(?<!\\)((?:\\\\)*(?<=[^\s\\]))\\\n(\S)",
    "after colon": r":\$([A-Za-z_]\w*)",
    "braces first": r"((?:^|[;&|(\n])[ \t]*)\{(?=[^\s{}]*,[^\s{}]*\})",
    "dash": r" -( <<)",
    "line start": r"(?<=\n)(?:[ \t]*\\\n)+|\A(?:[ \t]*\\\n)+",
    "long": rf"\S{{{_MAX_WORD + 1}}}",
    "unquote": r"[\\'\"]",
    "code": r"""(?x)
        \\. | \$?'(?:(?<=\$')(?:[^'\\]|\\.)*|(?<!\$')[^']*)'
      | \#(?:(?<=[\s;&|(]\#)|(?<=\A\#))[^\n]*
      | <<<
      | <<-?[ \t]*(?:'[^'\n]*'|"[^"\n]*"|[^\s<>&|;()'"`]+)
      | \$\(\( | \(\( | \$\( | <\( | >\( | \$\{ | [()}"`\n]
      | \|[|&]? | &&? | ;[;&]? | >[>|&]? | <[&>]?
      | [^\\'"$\#()}`\n|&;<>]+ | [$\#]""",
    "quoted": r"""(?x) \\. | " | \$\(\( | \$\( | \$\{ | ` | [)}] | [^\\"$`)}]+ | \$""",
}
