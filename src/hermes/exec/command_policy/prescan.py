"""Refuses texts that are too costly to parse: the parser needs quadratic time after errors."""

import re

from hermes.exec.command_policy.types import TooComplexError

MAX_BYTES = 128 * 1024
_MAX_OPERATORS = 400
_MAX_DEPTH = 24
_MAX_STRAY = 60
_MAX_DOCUMENTS = 30
_MAX_WORDS = 4000
_LIMITS: dict[tuple[str, ...], int] = {
    tuple("|&;()<>{}`[]"): 8000,
    ('"', "'"): 8000,
    ("$",): 1500,
    ("[[",): 200,
    ("\\\n",): 300,
}
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
        self.operators = 0
        self.stray = 0
        self.words = 0
        self.documents = 0
        self.heredocs: list[str] = []

    def check(self) -> None:
        at, end = 0, len(self.text)
        while at < end:
            inside = bool(self.stack) and self.stack[-1] == '"'
            found = (_QUOTED if inside else _CODE).match(self.text, at)
            if found is None:
                raise TooComplexError("a quotation does not end")
            at = self._take_token(found[0], inside, found.end())
            if self.operators > _MAX_OPERATORS or self.words > _MAX_WORDS:
                raise TooComplexError("it has too many parts")
            if self.stray > _MAX_STRAY:
                raise TooComplexError("it has too many closing brackets")
            if len(self.stack) > _MAX_DEPTH:
                raise TooComplexError("it is nested too deeply")
        if self.stack:
            raise TooComplexError(f"something is never closed (missing {self.stack[-1]})")

    def _take_token(self, token: str, inside: bool, end: int) -> int:
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
            if top == token:
                self.stack.pop()
            elif token == ")":
                self.stray += 1
        elif token.startswith("<<") and token != "<<<" and not inside:
            self.documents += 1
            if self.documents > _MAX_DOCUMENTS:
                raise TooComplexError("it has too many here-documents")
            self.heredocs.append(re.sub(r"[\\'\"]", "", token.lstrip("<-").strip()))
        elif token == "\n":
            self.operators += 1
            return self._skip_heredocs(end)
        elif token[0] in "|&;<>":
            self.operators += 1
        elif not inside:
            self.words += token.count(" ")
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
