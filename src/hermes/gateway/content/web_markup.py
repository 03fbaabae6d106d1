"""Markdown as HTML for whatever shows web pages: mail programs and Matrix clients."""

import re

from hermes.gateway.content.markup import render_html

_CODE_BLOCK = re.compile(r"(<pre>.*?</pre>)", re.DOTALL)
_INDENT = re.compile(r"^ +", re.MULTILINE)


def render_web_html(text: str) -> str:
    """The same few tags, with line ends and indents that a browser does not swallow."""
    pieces = _CODE_BLOCK.split(render_html(text))
    pieces[::2] = [_mark_white_space(piece) for piece in pieces[::2]]
    return "".join(pieces)


def _mark_white_space(html: str) -> str:
    indented = _INDENT.sub(lambda found: "&nbsp;" * len(found[0]), html)
    return indented.replace("\n", "<br>")
