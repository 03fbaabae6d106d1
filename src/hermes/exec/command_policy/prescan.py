"""Refuses texts that are too costly to parse: the parser needs quadratic time after errors."""

import re
from collections import Counter

from hermes.exec.command_policy.types import TooComplexError

MAX_BYTES = 128 * 1024
_MAX_DEPTH = 24
_MAX_COUNTS = {"parts": 400, "words": 4000, "closing brackets": 60, "here-documents": 30}
_LIMITS: dict[tuple[str, ...], int] = {
    tuple("|&;()<>{}`[]"): 8000, ('"', "'"): 8000, ("$",): 1500, ("[[",): 200, ("\\\n",): 300
}  # fmt: skip
"""How often these may occur in all."""
_CODE = re.compile(
    r"""
        \\. | \$?'(?:(?<=\$')(?:[^'\\]|\\.)*|(?<!\$')[^']*)'
      | \#(?:(?<=[\s;&|(]\#)|(?<=\A\#))[^\n]*
      | <<<
      | <<-?[ \t]*(?:'[^'\n]*'|"[^"\n]*"|[^\s<>&|;()'"`]+)
      | \$\( | <\( | >\( | \$\{ | [()}"`\n]
      | \|[|&]? | &&? | ;[;&]? | >[>|&]? | <[&>]?
      | [^\\'"$\#()}`\n|&;<>]+ | [$\#]""",
    re.VERBOSE | re.DOTALL,
)
_QUOTED = re.compile(r"""\\.|"|\$\(|\$\{|`|[)}]|[^\\"$`)}]+|\$""", re.DOTALL)
_OPENING = {"(": ")", "$(": ")", "<(": ")", ">(": ")", "${": "}"}


def check_shape(text: str) -> None:
    """Raise TooComplex when parsing could take long."""
    if any(sum(map(text.count, marks)) > limit for marks, limit in _LIMITS.items()):
        raise TooComplexError("it has too many operators")
    _ShapeCheck(text).check()


class _ShapeCheck:
    """Follows quotes, here-documents and brackets, roughly as the shell does."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.stack: list[str] = []
        self.counts: Counter[str] = Counter()
        self.heredocs: list[str] = []

    def check(self) -> None:
        at, end = 0, len(self.text)
        while at < end:
            inside = bool(self.stack) and self.stack[-1] == '"'
            found = (_QUOTED if inside else _CODE).match(self.text, at)
            if found is None:
                raise TooComplexError("a quotation does not end")
            at = self._take_token(found[0], inside, found.end())
            if len(self.stack) > _MAX_DEPTH:
                raise TooComplexError("it is nested too deeply")
        if self.stack:
            raise TooComplexError(f"something is never closed (missing {self.stack[-1]})")

    def _take_token(self, token: str, inside: bool, end: int) -> int:
        top = self.stack[-1] if self.stack else ""
        if token == top:
            self.stack.pop()
        elif token in ('"', "`"):
            self.stack.append(token)
        elif token in _OPENING:
            self._count("parts")
            self.stack.append(_OPENING[token])
        elif token in (")", "}"):
            self._count("closing brackets", token == ")")
        elif token.startswith("<<") and token != "<<<" and not inside:
            self._count("here-documents")
            self.heredocs.append(re.sub(r"[\\'\"]", "", token.lstrip("<-").strip()))
        elif token == "\n":
            self._count("parts")
            return self._skip_heredocs(end)
        elif token[0] in "|&;<>":
            self._count("parts")
        elif not inside:
            self._count("words", token.count(" "))
        return end

    def _count(self, what: str, number: int = 1) -> None:
        self.counts[what] += number
        if self.counts[what] > _MAX_COUNTS[what]:
            raise TooComplexError(f"it has too many {what}")

    def _skip_heredocs(self, at: int) -> int:
        for delimiter in self.heredocs:
            closing = re.compile(rf"^\t*{re.escape(delimiter)}$", re.MULTILINE)
            found = closing.search(self.text, at)
            if found is None:
                raise TooComplexError("a here-document does not end")
            at = found.end()
        self.heredocs.clear()
        return at
