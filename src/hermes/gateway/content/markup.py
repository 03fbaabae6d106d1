"""Markdown in the dialects of messengers. The text is data: no markup of its own takes effect."""

from __future__ import annotations

import re
from contextvars import ContextVar
from functools import cache
from html import escape
from typing import TYPE_CHECKING, Literal, TypeAlias
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

Emphasis: TypeAlias = Literal["strong", "em", "s"]
_TAGS: dict[Emphasis, str] = {"strong": "b", "em": "i", "s": "s"}
_PLAIN_LINE = re.compile(r"[^\W\d_](?:[^\0\r\n\\`*_~\[\]<>&]*[^\0\s\\`*_~\[\]<>&])?")
"""Nothing in it means anything in Markdown."""
_LANGUAGE = re.compile(r"[A-Za-z0-9_+#.-]{1,32}")


BARE_LINKS: ContextVar[bool] = ContextVar("BARE_LINKS", default=False)
"""Whether a link is text that says where it leads: others may have told the model what to write."""


@cache
def _load_parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    # Definitions of links stay text: they would vanish.
    parser = MarkdownIt("commonmark", {"html": False}).disable("reference")
    return parser.enable("strikethrough")


class MarkupWriter:
    """Writes blocks with the white space between them; a list item begins with its mark. A dialect
    says how text is escaped and how each kind of markup is written."""

    bullet = "• "
    schemes: frozenset[str] = frozenset({"http", "https", "mailto"})
    """Links to these are links; others are text."""

    def __init__(self) -> None:
        self._out: list[str] = []
        self._gap = ""
        """White space before the next text."""
        self._list_depth = 0
        self._outer: list[list[str]] = []
        """What was written before the quotes that are open."""
        self._heading = 0
        """The level of the heading that is being written."""

    def render(self, text: str) -> str:
        if _PLAIN_LINE.fullmatch(text):
            return self.join_inline([self.escape_text(text)])
        for token in _load_parser().parse(text):
            self._write_block(token)
        return "".join(self._out)

    def escape_text(self, text: str) -> str:
        return escape(text, quote=False)

    def wrap_emphasis(self, kind: Emphasis, text: str) -> str:
        raise NotImplementedError

    def write_inline_code(self, code: str) -> str:
        raise NotImplementedError

    def write_code(self, code: str, language: str) -> str:
        raise NotImplementedError

    def wrap_heading(self, text: str, level: int) -> str:
        return self.wrap_emphasis("strong", text)

    def wrap_quote(self, text: str) -> str:
        return "\n".join(f"> {line}".rstrip() for line in text.split("\n"))

    def wrap_link(self, target: str, text: str) -> str:
        raise NotImplementedError

    def write_number(self, number: str, mark: str) -> str:
        return f"{number}{mark} "

    def join_inline(self, pieces: list[str]) -> str:
        return "".join(pieces)

    def _write_block(self, token: Token) -> None:
        match token.type:
            case "inline":
                text = self._write_inline(token.children or [])
                self._put(self.wrap_heading(text, self._heading) if self._heading else text)
            case "fence" | "code_block":
                language = _LANGUAGE.match(token.info.strip())
                code = token.content.rstrip("\n")
                self._put(self.write_code(code, language[0] if language else ""))
                self._gap = "\n\n"
            case "heading_open":
                self._heading = int(token.tag[1:])
            case "heading_close":
                self._heading = 0
                self._gap = "\n\n"
            case "paragraph_close":
                self._gap = "\n" if token.hidden else "\n\n"
            case "hr":
                self._put("———")
                self._gap = "\n\n"
            case _:
                self._write_container(token)

    def _write_container(self, token: Token) -> None:
        match token.type:
            case "bullet_list_open" | "ordered_list_open":
                self._gap = "\n" if self._list_depth and self._gap else self._gap
                self._list_depth += 1
            case "bullet_list_close" | "ordered_list_close":
                self._list_depth -= 1
                self._gap = "\n" if self._list_depth else "\n\n"
            case "list_item_open":
                # With the number that the text has, not the one that would follow.
                mark = self.write_number(token.info, token.markup) if token.info else self.bullet
                self._put("  " * (self._list_depth - 1) + mark)
            case "blockquote_open":
                self._put("")
                self._outer.append(self._out)
                self._out = []
            case "blockquote_close":
                text, self._out = "".join(self._out), self._outer.pop()
                self._out.append(text if self._outer else self.wrap_quote(text))
                self._gap = "\n\n"

    def _put(self, text: str) -> None:
        if self._out:
            self._out.append(self._gap)
        self._gap = ""
        self._out.append(text)

    def _write_inline(self, tokens: list[Token]) -> str:
        stack: list[list[str]] = [[]]
        targets: list[str] = []
        for token in tokens:
            match token.type:
                case "code_inline":
                    stack[-1].append(self.write_inline_code(token.content))
                case "softbreak" | "hardbreak":
                    stack[-1].append("\n")
                case "image":
                    target = str(token.attrGet("src") or "")
                    text = self.escape_text(token.content or target)
                    stack[-1].append(self._write_link(target, text))
                case "link_open":
                    targets.append(str(token.attrGet("href") or ""))
                    stack.append([])
                case "link_close":
                    text = self.join_inline(stack.pop())
                    stack[-1].append(self._write_link(targets.pop(), text))
                case "strong_open" | "em_open" | "s_open":
                    stack.append([])
                case "strong_close" | "em_close" | "s_close":
                    kind: Emphasis = "em"
                    if token.type != "em_close":
                        kind = "strong" if token.type == "strong_close" else "s"
                    text = self.join_inline(stack.pop())
                    stack[-1].append(self.wrap_emphasis(kind, text))
                case _:
                    stack[-1].append(self.escape_text(token.content))
        return self.join_inline(stack[0])

    def _write_link(self, target: str, text: str) -> str:
        """A picture from elsewhere is a link too: nothing is fetched before somebody follows it."""
        try:
            is_linkable = urlsplit(target).scheme in self.schemes
        except ValueError:
            is_linkable = False
        if not is_linkable:
            return text
        address = self.escape_text(target)
        if BARE_LINKS.get():
            return address if text in ("", address) else f"{text} ({address})"
        return self.wrap_link(target, text)


class _HtmlWriter(MarkupWriter):
    def wrap_emphasis(self, kind: Emphasis, text: str) -> str:
        return f"<{_TAGS[kind]}>{text}</{_TAGS[kind]}>"

    def write_inline_code(self, code: str) -> str:
        return f"<code>{escape(code, quote=False)}</code>"

    def write_code(self, code: str, language: str) -> str:
        content = escape(code, quote=False)
        if not language:
            return f"<pre>{content}</pre>"
        return f'<pre><code class="language-{escape(language)}">{content}</code></pre>'

    def wrap_quote(self, text: str) -> str:
        return f"<blockquote>{text}</blockquote>"

    def wrap_link(self, target: str, text: str) -> str:
        return f'<a href="{escape(target)}">{text}</a>'


def render_html(text: str) -> str:
    """HTML with the few tags that Telegram knows: b, i, s, code, pre, a, blockquote."""
    return _HtmlWriter().render(text)
