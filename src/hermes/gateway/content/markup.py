"""Markdown in the dialects of messengers. The text is data: no markup of its own takes effect."""

from __future__ import annotations

import re
from functools import cache
from html import escape
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

_INLINE = {"strong": "b", "em": "i", "s": "s"}
_LANGUAGE = re.compile(r"[A-Za-z0-9_+#.-]{1,32}")


def render_html(text: str) -> str:
    """HTML with the few tags that Telegram knows: b, i, s, code, pre, a, blockquote."""
    return _HtmlWriter().write_blocks(_load_parser().parse(text))


@cache
def _load_parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    # Definitions of links stay text: they would vanish.
    parser = MarkdownIt("commonmark", {"html": False}).disable("reference")
    return parser.enable("strikethrough")


class _HtmlWriter:
    """Writes blocks with the white space between them; a list item begins with its mark."""

    def __init__(self) -> None:
        self._out: list[str] = []
        self._gap = ""
        """White space before the next text."""
        self._list_depth = 0
        self._quotes = 0

    def write_blocks(self, tokens: list[Token]) -> str:
        for token in tokens:
            self._write_block(token)
        return "".join(self._out)

    def _write_block(self, token: Token) -> None:
        match token.type:
            case "inline":
                self._put(self._write_inline(token.children or []))
            case "fence" | "code_block":
                self._put(_write_code(token))
                self._gap = "\n\n"
            case "heading_open":
                self._put("<b>")
            case "heading_close":
                self._out.append("</b>")
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
                self._begin_item(token)
            case "blockquote_open":
                self._quotes += 1
                if self._quotes == 1:
                    self._put("<blockquote>")
            case "blockquote_close":
                self._quotes -= 1
                if not self._quotes:
                    self._out.append("</blockquote>")
                self._gap = "\n\n"

    def _put(self, text: str) -> None:
        if self._out:
            self._out.append(self._gap)
        self._gap = ""
        self._out.append(text)

    def _begin_item(self, token: Token) -> None:
        """With the number that the text has, not the one that would follow."""
        mark = f"{token.info}{token.markup} " if token.info else "• "
        self._put("  " * (self._list_depth - 1) + mark)

    def _write_inline(self, tokens: list[Token]) -> str:
        out: list[str] = []
        links: list[bool] = []
        for token in tokens:
            kind, _, end = token.type.rpartition("_")
            match token.type:
                case "text":
                    out.append(escape(token.content, quote=False))
                case "code_inline":
                    out.append(f"<code>{escape(token.content, quote=False)}</code>")
                case "softbreak" | "hardbreak":
                    out.append("\n")
                case "image":
                    out.append(_write_link(str(token.attrGet("src") or ""), token.content))
                case "link_open":
                    target = str(token.attrGet("href") or "")
                    links.append(_is_linkable(target))
                    out.append(f'<a href="{escape(target)}">' if links[-1] else "")
                case "link_close":
                    out.append("</a>" if links.pop() else "")
                case _ if kind in _INLINE:
                    out.append(f"<{'/' if end == 'close' else ''}{_INLINE[kind]}>")
                case _:
                    out.append(escape(token.content, quote=False))
        return "".join(out)


def _write_code(token: Token) -> str:
    content = escape(token.content.rstrip("\n"), quote=False)
    language = _LANGUAGE.match(token.info.strip())
    if language is None:
        return f"<pre>{content}</pre>"
    return f'<pre><code class="language-{escape(language[0])}">{content}</code></pre>'


def _write_link(target: str, text: str) -> str:
    """A picture from elsewhere as a link: nothing is fetched before somebody follows it."""
    shown = escape(text or target, quote=False)
    return f'<a href="{escape(target)}">{shown}</a>' if _is_linkable(target) else shown


def _is_linkable(target: str) -> bool:
    try:
        return urlsplit(target).scheme in ("http", "https", "mailto", "tg")
    except ValueError:
        return False
