"""Markdown inside a line: code, emphasis and links."""

import re

from hermes.cli.repl.markdown.styled_text import Line, Style, join_styles
from hermes.cli.terminal.text import strip_controls

_MAX_LINE = 20_000
"""A longer line is not prose and is shown as it is."""
_MAX_DEPTH = 3
_SPECIAL = re.compile(r"[`*_~\[\\<&]")
_AFTER_ADDRESS = ".,;:!?'*_~"
"""What ends a sentence or an emphasis and not the address before it."""
_PAIRS = {")": "(", "]": "["}
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
  | (?<![\w/])(?P<bare>https?://[!-~]{1,2000})
  | (?P<break><br[ ]?/?>)
  | (?P<entity>&(?:[a-zA-Z][a-zA-Z0-9]{1,30}|\#[0-9]{1,7}|\#[xX][0-9a-fA-F]{1,6});)"""
)


def parse_inline(text: str, style: str = "", depth: int = _MAX_DEPTH) -> Line:
    """Styled pieces of one line; `depth` limits how deep emphasis may nest."""
    is_plain = "://" not in text and not _SPECIAL.search(text)
    if is_plain or not depth or len(text) > _MAX_LINE:
        return [(style, text)]
    found: Line = []
    end = 0
    for match in _INLINE.finditer(text):
        if match.start() > end:
            found.append((style, text[end : match.start()]))
        found += _match_pieces(match, style, depth)
        end = match.end()
    if end < len(text) or not found:
        found.append((style, text[end:]))
    return found


def _match_pieces(match: re.Match[str], style: str, depth: int) -> Line:
    groups = match.groupdict()
    if (code := groups["code"]) is not None:
        return [(join_styles(style, Style.CODE), code.strip() or code)]
    if (escaped := groups["escaped"]) is not None:
        return [(style, escaped)]
    if (entity := groups["entity"]) is not None:
        from html import unescape  # two thousand names, rarely needed

        return [(style, strip_controls(unescape(entity)))]
    if groups["break"] is not None:
        return [(style, " ")]
    for names, more in (
        (("both",), join_styles(Style.BOLD, Style.ITALIC)),
        (("bold", "bold2"), Style.BOLD),
        (("italic", "italic2"), Style.ITALIC),
        (("struck",), Style.STRUCK),
    ):
        inner = next((groups[n] for n in names if groups[n] is not None), None)
        if inner is not None:
            return parse_inline(inner, join_styles(style, more), depth - 1)
    if (address := groups["address"]) is not None:
        return [(join_styles(style, Style.LINK), address)]
    if (bare := groups["bare"]) is not None:
        if Style.LINK in style:
            return [(style, bare)]
        length = _address_length(bare)
        rest = parse_inline(bare[length:], style, depth - 1)
        return [(join_styles(style, Style.LINK), bare[:length]), *rest]
    label, target = groups["label"], groups["target"]
    if not label or label == target:
        return [(join_styles(style, Style.LINK), target)]
    shown = parse_inline(label, join_styles(style, Style.LINK), depth - 1)
    return [*shown, (join_styles(style, Style.DIM), f" ({target})")]


def _address_length(text: str) -> int:
    """How much of a text without spaces belongs to the address that it begins with."""
    address = re.split(r"[<>\"`\\]", text, maxsplit=1)[0]
    while address:
        last = address[-1]
        opening = _PAIRS.get(last)
        is_unpaired = opening is not None and address.count(last) > address.count(opening)
        if not is_unpaired and last not in _AFTER_ADDRESS:
            break
        address = address[:-1]
    return len(address)
