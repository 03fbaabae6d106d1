"""Markdown as WhatsApp reads it: nothing in the text is markup that the model did not write."""

import re

from hermes.gateway.content.markup import Emphasis, MarkupWriter

_BREAK = "\u200b"
"""Keeps a mark from taking effect: WhatsApp has no escapes."""
_MARKS: dict[Emphasis, str] = {"strong": "*", "em": "_", "s": "~"}
_ALL_MARKS = "*_~`"
_ADDRESS = re.compile(r"(https?://\S+)")
_MARK = re.compile(r"[*_~`](?=\S)")
_LINE_START = re.compile(r"^(?=>|[-*] |\d+\. )", re.MULTILINE)


def render_whatsapp(text: str) -> str:
    """Text with `*bold*`, `_italic_`, `~struck~` and code."""
    return _WhatsappWriter().render(text)


class _WhatsappWriter(MarkupWriter):
    def escape_text(self, text: str) -> str:
        pieces = _ADDRESS.split(text)
        for index in range(0, len(pieces), 2):
            marked = _MARK.sub(lambda found: found[0] + _BREAK, pieces[index])
            pieces[index] = _LINE_START.sub(_BREAK, marked)
        return "".join(pieces)

    def wrap_emphasis(self, kind: Emphasis, text: str) -> str:
        mark = _MARKS[kind]
        is_showable = text and text == text.strip() and "\n" not in text and mark not in text
        return f"{mark}{text}{mark}" if is_showable else text

    def write_inline_code(self, code: str) -> str:
        return self.escape_text(code) if "`" in code else f"`{code}`"

    def write_code(self, code: str, language: str) -> str:
        return "```" + code.replace("```", f"`{_BREAK}`{_BREAK}`") + "```"

    def wrap_link(self, target: str, text: str) -> str:
        return target if text in ("", target) else f"{text} ({target})"

    def join_inline(self, pieces: list[str]) -> str:
        """Marks count at the edge of a word only."""
        whole = ""
        for piece in filter(None, pieces):
            before, after = whole[-1:], piece[0]
            is_inside = (before in _ALL_MARKS and (after.isalnum() or after in _ALL_MARKS)) or (
                after in _ALL_MARKS and before.isalnum()
            )
            whole += f"{_BREAK}{piece}" if before and is_inside else piece
        return whole
