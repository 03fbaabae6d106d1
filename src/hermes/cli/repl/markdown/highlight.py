"""Source code in colours, line by line, with the lexer's state carried from one to the next."""

from typing import Any

from hermes.cli.repl.markdown.styled_text import Line

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
_LINEWISE = frozenset({"JSON", "YAML", "Makefile"})
"""Languages whose lexers hide their state, and whose lines can be coloured one by one."""
_LANGUAGE_ALIASES = dict.fromkeys(("jsonc", "jsonl", "ndjson"), "json")
_LANGUAGE_ALIASES |= {"env": "bash", "svelte": "html"}
_MAX_LINE = 2000
"""Longer lines are data and stay plain."""


class Highlighter:
    """Colours lines of one language, in order; a line that the lexer cannot read stays plain."""

    def __init__(self, language: str) -> None:
        self._lexer = _find_lexer(language)
        self._stack: list[str] = ["root"]
        self._styles: dict[Any, str] = {}

    def highlight_line(self, text: str) -> Line:
        if self._lexer is None or len(text) > _MAX_LINE:
            return [("", text)]
        if self._lexer.name in _LINEWISE:
            tokens = list(self._lexer.get_tokens_unprocessed(text))
            if "".join(value for _, _, value in tokens) != text:
                return [("", text)]
            found = [(self._token_style(token), value) for _, token, value in tokens if value]
            return found or [("", text)]
        from pygments.lexer import ExtendedRegexLexer, LexerContext

        context = LexerContext(text + "\n", 0, list(self._stack))
        # The only lexer class that tells in which state it ended.
        read_tokens = ExtendedRegexLexer.get_tokens_unprocessed
        found = []
        try:
            for _, token, value in read_tokens(self._lexer, context=context):
                if value := value.rstrip("\n"):
                    found.append((self._token_style(token), value))
        except (TypeError, AttributeError, KeyError, IndexError, ValueError, AssertionError):
            self._lexer = None  # a lexer with its own code: no colours are better than wrong ones
            return [("", text)]
        self._stack = context.stack
        return found or [("", text)]

    def _token_style(self, token: Any) -> str:
        style = self._styles.get(token)
        if style is None:
            names = [".".join(token[:n]) for n in range(len(token), 0, -1)]
            style = next((_COLOURS[name] for name in names if name in _COLOURS), "")
            self._styles[token] = style
        return style


def _find_lexer(language: str) -> Any:
    if not language:
        return None
    from pygments.lexer import RegexLexer
    from pygments.lexers import get_lexer_by_name
    from pygments.util import ClassNotFound

    try:
        lexer = get_lexer_by_name(_LANGUAGE_ALIASES.get(language.lower(), language))
    except ClassNotFound:
        return None
    return lexer if isinstance(lexer, RegexLexer) or lexer.name in _LINEWISE else None
