"""Source code in colours, line by line: the lexer's state is carried from one line to the next."""

from __future__ import annotations

from typing import Any

from hermes.cli.repl.markdown.styled_text import Piece

_COLOURS = {
    "Comment": "2",
    "Keyword": "35",
    "Keyword.Constant": "36",
    "Literal.String": "32",
    "Literal.Number": "36",
    "Name.Function": "1",
    "Name.Class": "1",
    "Name.Decorator": "35",
    "Name.Builtin": "36",
    "Name.Tag": "36",
    "Name.Attribute": "36",
    "Name.Variable": "36",
    "Operator.Word": "35",
    "Generic.Deleted": "31",
    "Generic.Inserted": "32",
    "Generic.Heading": "1",
    "Generic.Subheading": "36",
}
_ALONE = frozenset({"JSON", "YAML", "Makefile"})
"""Languages whose lexers keep their state to themselves, and whose lines tell enough alone."""
_NAMES = {"jsonc": "json", "jsonl": "json", "ndjson": "json", "env": "bash", "svelte": "html"}
_LONGEST = 2000
"""Longer lines are data, and are not coloured."""


class Highlighter:
    """Lines of one language, in order; one that the lexer cannot take is left plain."""

    def __init__(self, language: str) -> None:
        self._lexer = _lexer(language)
        self._stack: list[str] = ["root"]
        self._styles: dict[Any, str] = {}

    def line(self, text: str) -> list[Piece]:
        if self._lexer is None or len(text) > _LONGEST:
            return [("", text)]
        if self._lexer.name in _ALONE:
            found = [(self._style(token), v) for _, token, v in self._alone(text) if v]
            return found or [("", text)]
        from pygments.lexer import ExtendedRegexLexer, LexerContext

        context = LexerContext(text + "\n", 0, list(self._stack))
        found = []
        try:
            # Of all lexers this one alone tells in which state it ended.
            for _, token, value in ExtendedRegexLexer.get_tokens_unprocessed(
                self._lexer, context=context
            ):
                if value := value.rstrip("\n"):
                    found.append((self._style(token), value))
        except (TypeError, AttributeError, KeyError, IndexError, ValueError, AssertionError):
            self._lexer = None  # a lexer with code of its own: no colours rather than wrong ones
            return [("", text)]
        self._stack = context.stack
        return found or [("", text)]

    def _alone(self, text: str) -> list[tuple[int, Any, str]]:
        found = list(self._lexer.get_tokens_unprocessed(text))
        return found if "".join(value for _, _, value in found) == text else []

    def _style(self, token: Any) -> str:
        style = self._styles.get(token)
        if style is None:
            names = [".".join(token[:n]) for n in range(len(token), 0, -1)]
            style = next((_COLOURS[name] for name in names if name in _COLOURS), "")
            self._styles[token] = style
        return style


def _lexer(language: str) -> Any:
    if not language:
        return None
    from pygments.lexer import RegexLexer
    from pygments.lexers import get_lexer_by_name
    from pygments.util import ClassNotFound

    try:
        lexer = get_lexer_by_name(_NAMES.get(language.lower(), language))
    except ClassNotFound:
        return None
    return lexer if isinstance(lexer, RegexLexer) or lexer.name in _ALONE else None
