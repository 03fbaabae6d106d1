"""A first look at a command's text: characters that mislead, and shapes too costly to parse.

The parser takes quadratic time to recover from errors, and it cannot be interrupted. So what is
unbalanced, nested too deeply or has too many operators never reaches it.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache

from hermes.exec.gate.values import TooComplex

MAX_BYTES = 128 * 1024
_MAX_OPERATORS = 1500
_MAX_MARKS = 8000
_MAX_DEPTH = 24
_MAX_STRAY = 60
_OPENING = {"(": ")", "$(": ")", "<(": ")", ">(": ")", "$((": "))", "((": "))", "${": "}"}


def misleading(text: str) -> str:
    """Why a person could take this text for another one, or empty."""
    if text.isascii() and not _pattern("control").search(text):
        return ""
    for char in set(text):
        if char in "\t\n" or " " <= char <= "~":
            continue
        category = unicodedata.category(char)
        if category in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"):
            return f"contains the invisible or control character U+{ord(char):04X}"
        if category[0] in "LN" and unicodedata.normalize("NFKC", char).isascii():
            return f"contains the look-alike {char!r} (U+{ord(char):04X})"
    mixed = _pattern("mixed").search(text)
    return f"mixes alphabets in {mixed[0][:40]!r}" if mixed else ""


def joined(text: str) -> str:
    """The text with lines joined inside a word, as the shell reads it (the parser does not)."""
    return _pattern("joined").sub(r"\1\2", text)


def check_shape(text: str) -> None:
    """Raise TooComplex when parsing could take long."""
    if sum(map(text.count, "|&;()<>{}`[]")) > _MAX_MARKS:
        raise TooComplex("it has too many operators")
    _Shape(text).check()


class _Shape:
    """Follows quotes, here-documents and brackets, roughly as the shell does."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.stack: list[str] = []
        self.operators = 0
        self.stray = 0
        self.heredocs: list[str] = []

    def check(self) -> None:
        at, end = 0, len(self.text)
        code, quoted = _pattern("code"), _pattern("quoted")
        while at < end:
            inside = bool(self.stack) and self.stack[-1] == '"'
            found = (quoted if inside else code).match(self.text, at)
            if found is None:
                raise TooComplex("a quotation does not end")
            at = self._token(found[0], inside, found.end())
            if self.operators > _MAX_OPERATORS or len(self.stack) > _MAX_DEPTH:
                raise TooComplex("it has too many operators or is nested too deeply")
        if self.stack:
            raise TooComplex(f"something is never closed (missing {self.stack[-1]})")

    def _token(self, token: str, inside: bool, end: int) -> int:
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
            return self._close(token, top, end)
        elif token.startswith("<<") and token != "<<<" and not inside:
            self.heredocs.append(_pattern("unquote").sub("", token.lstrip("<-").strip()))
        elif token == "\n":
            self.operators += 1
            return self._skip_heredocs(end)
        elif token[0] in "|&;<>":
            self.operators += 1
        return end

    def _close(self, token: str, top: str, end: int) -> int:
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
                raise TooComplex("it has too many closing brackets")
        return end

    def _skip_heredocs(self, at: int) -> int:
        for delimiter in self.heredocs:
            closing = re.compile(rf"^\t*{re.escape(delimiter)}$", re.MULTILINE)
            found = closing.search(self.text, at)
            if found is None:
                raise TooComplex("a here-document does not end")
            at = found.end()
        self.heredocs.clear()
        return at


@cache
def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(_PATTERNS[name], re.DOTALL)


_PATTERNS = {
    "control": r"[^\t\n -~]",
    "mixed": r"[A-Za-z0-9_./-]*(?:[A-Za-z][Ͱ-ϿЀ-ԯ]|[Ͱ-ϿЀ-ԯ][A-Za-z])[A-Za-z0-9_./-]*",
    "joined": r"(?<!\\)((?:\\\\)*(?<=[^\s\\]))\\\n(\S)",
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
