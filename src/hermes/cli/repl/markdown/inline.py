"""Markdown inside a line: code, emphasis, links."""

from __future__ import annotations

import re

from hermes.cli.repl.markdown.styled_text import BOLD, CODE, DIM, ITALIC, LINK, STRUCK, Piece, join
from hermes.cli.terminal.text import printable

_LONGEST = 20_000
"""Beyond it a line is no prose, and is shown as it is."""
_DEPTH = 3
_SPECIAL = re.compile(r"[`*_~\[\\<&]")
_INLINE = re.compile(
    r"""(?x)
    (?P<ticks>`{1,8})(?P<code>[^`](?:.{0,2000}?[^`])??)(?P=ticks)(?!`)
  | \\(?P<escaped>[!-/:-@\[-`{-~])
  | \*\*\*(?=[^\s*])(?P<both>.{1,2000}?)(?<=[^\s*])\*\*\*(?!\*)
  | \*\*(?=\S)(?P<bold>.{1,2000}?)(?<=\S)\*\*
  | (?<!\w)__(?=\S)(?P<bold2>.{1,2000}?)(?<=\S)__(?!\w)
  | ~~(?=\S)(?P<struck>.{1,2000}?)(?<=\S)~~
  | \*(?=[^\s*])(?P<italic>[^*]{0,1000}?[^\s*])\*(?!\*)
  | (?<!\w)_(?=[^\s_])(?P<italic2>[^_]{0,1000}?[^\s_])_(?!\w)
  | !?\[(?P<label>[^\]\n]{0,500})\]\((?P<target>(?:[^()\s]|\([^()\s]{0,200}\)){1,2000})
    (?:\s+"[^"]{0,500}")?\)
  | <(?P<address>https?://[^>\s]{1,2000})>
  | (?P<break><br[ ]?/?>)
  | (?P<entity>&(?:[a-zA-Z][a-zA-Z0-9]{1,30}|\#[0-9]{1,7}|\#[xX][0-9a-fA-F]{1,6});)"""
)


def pieces(text: str, style: str = "", depth: int = _DEPTH) -> list[Piece]:
    if len(text) > _LONGEST or not depth or not _SPECIAL.search(text):
        return [(style, text)]
    found: list[Piece] = []
    end = 0
    for match in _INLINE.finditer(text):
        if match.start() > end:
            found.append((style, text[end : match.start()]))
        found += _styled(match, style, depth)
        end = match.end()
    if end < len(text) or not found:
        found.append((style, text[end:]))
    return found


def _styled(match: re.Match[str], style: str, depth: int) -> list[Piece]:
    given = match.groupdict()
    if (code := given["code"]) is not None:
        return [(join(style, CODE), code.strip() or code)]
    if (escaped := given["escaped"]) is not None:
        return [(style, escaped)]
    if (entity := given["entity"]) is not None:
        from html import unescape  # two thousand names, seldom needed

        return [(style, printable(unescape(entity)))]
    if given["break"] is not None:
        return [(style, " ")]
    for names, more in (
        (("both",), join(BOLD, ITALIC)),
        (("bold", "bold2"), BOLD),
        (("italic", "italic2"), ITALIC),
        (("struck",), STRUCK),
    ):
        inner = next((given[n] for n in names if given[n] is not None), None)
        if inner is not None:
            return pieces(inner, join(style, more), depth - 1)
    if (address := given["address"]) is not None:
        return [(join(style, LINK), address)]
    label, target = given["label"], given["target"]
    if not label or label == target:
        return [(join(style, LINK), target)]
    return [*pieces(label, join(style, LINK), depth - 1), (join(style, DIM), f" ({target})")]
