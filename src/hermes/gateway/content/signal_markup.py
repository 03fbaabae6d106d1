"""Markdown as Signal's styled text: the plain text, and which ranges of it have which style."""

import re

from hermes.gateway.content.markup import Emphasis, MarkupWriter
from hermes.gateway.content.render import count_units

_MARKS = {"\ufdd0": "BOLD", "\ufdd1": "ITALIC", "\ufdd2": "STRIKETHROUGH", "\ufdd3": "MONOSPACE"}
"""Stand for the beginning of a style in rendered text; characters that no text has."""
_END = "\ufdd4"
_MARK = re.compile(f"([\ufdd0-{_END}])")
_EMPHASIS: dict[Emphasis, str] = {"strong": "\ufdd0", "em": "\ufdd1", "s": "\ufdd2"}


def render_signal(text: str) -> str:
    """Text with marks, which `split_styles` takes apart."""
    return _SignalWriter().render(text)


def split_styles(markup: str) -> tuple[str, list[str]]:
    """The text that is shown, and its styles as `START:LENGTH:STYLE` in UTF-16 units."""
    shown, at = "", 0
    opened: list[tuple[str, int]] = []
    styles: list[tuple[int, int, str]] = []
    for piece in _MARK.split(markup):
        if piece in _MARKS:
            opened.append((_MARKS[piece], at))
        elif piece == _END:
            style, start = opened.pop()
            styles.append((start, at - start, style))
        else:
            shown += piece
            at += count_units(piece)
    return shown, [f"{start}:{size}:{style}" for start, size, style in sorted(styles) if size]


class _SignalWriter(MarkupWriter):
    def escape_text(self, text: str) -> str:
        return _MARK.sub("", text)

    def wrap_emphasis(self, kind: Emphasis, text: str) -> str:
        return f"{_EMPHASIS[kind]}{text}{_END}"

    def write_inline_code(self, code: str) -> str:
        return f"\ufdd3{self.escape_text(code)}{_END}"

    def write_code(self, code: str, language: str) -> str:
        return self.write_inline_code(code)

    def wrap_link(self, target: str, text: str) -> str:
        address = self.escape_text(target)
        return address if text in ("", address) else f"{text} ({address})"
