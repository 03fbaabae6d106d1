"""Markdown as Slack's mrkdwn: nothing in the text mentions anybody or becomes a link by itself."""

import re
from html import escape

from hermes.gateway.content.markup import Emphasis, MarkupWriter

_BREAK = "\u200b"
"""Keeps a mark from taking effect: mrkdwn has no escapes."""
_MARKS: dict[Emphasis, str] = {"strong": "*", "em": "_", "s": "~"}
_ADDRESS = re.compile(r"(https?://[^\s<>&]+)")
_MARK = re.compile(r"`|[*_~](?=\S)")
_LINE_START = re.compile(r"^&gt;", re.MULTILINE)


def count_slack(text: str) -> int:
    """The length of a text as Slack counts it: three characters are written as entities."""
    return len(text) + 4 * text.count("&") + 3 * (text.count("<") + text.count(">"))


def escape_slack(text: str) -> str:
    """Plain text in which nothing is a mention, a link or markup."""
    pieces = _ADDRESS.split(text)
    for index in range(0, len(pieces), 2):
        pieces[index] = _MARK.sub(lambda found: found[0] + _BREAK, pieces[index])
    return _LINE_START.sub(f"{_BREAK}&gt;", escape("".join(pieces), quote=False))


def render_slack(text: str) -> str:
    """mrkdwn."""
    return _SlackWriter().render(text)


class _SlackWriter(MarkupWriter):
    def escape_text(self, text: str) -> str:
        return escape_slack(text)

    def wrap_emphasis(self, kind: Emphasis, text: str) -> str:
        mark = _MARKS[kind]
        if mark in text or "\n" in text or text != text.strip() or not text:
            return text  # mrkdwn has no such nesting, and would show the marks
        return f"{mark}{text}{mark}"

    def write_inline_code(self, code: str) -> str:
        return escape_slack(code) if "`" in code else f"`{escape(code, quote=False)}`"

    def write_code(self, code: str, language: str) -> str:
        safe = escape(code, quote=False).replace("```", f"`{_BREAK}`{_BREAK}`")
        return f"```\n{safe}\n```"

    def wrap_link(self, target: str, text: str) -> str:
        shown = text.replace("\n", " ")
        address = escape(target, quote=False).replace("|", "%7C")
        return f"<{address}|{shown}>" if shown.strip() else f"<{address}>"

    def join_inline(self, pieces: list[str]) -> str:
        """Marks count at the edge of a word only."""
        whole = ""
        for piece in pieces:
            is_joined = whole and piece and not whole[-1].isspace() and not piece[0].isspace()
            if is_joined and (whole[-1] in "*_~`" or piece[0] in "*_~`"):
                whole += _BREAK
            whole += piece
        return whole
