"""Filters reasoning tags out of text, alike for the live stream and the stored message."""

import re
from collections.abc import Sequence

TAG_NAMES = ("think", "thinking", "reasoning", "thought", "reasoning_scratchpad")
# ASCII: otherwise letters like the Kelvin sign would pass for a k.
_OPEN = re.compile(r"<(" + "|".join(TAG_NAMES) + r")>", re.I | re.A)
_CLOSE = {f"</{n}>": re.compile(f"</{n}>", re.I | re.A) for n in TAG_NAMES}
_OPENERS = tuple(f"<{n}>" for n in TAG_NAMES)
_LONGEST = max(map(len, TAG_NAMES)) + 3
_QUOTES = ("`", '"', "'")

Piece = tuple[bool, str]
"""(is reasoning, text)"""


class ThinkFilter:
    """A closed pair of tags is reasoning anywhere, an unclosed tag only at the start of the text or
    of a line. A tag in mid-line is held back until its pair closes or the text ends; one right
    after a quote or back-tick is prose. The result does not depend on how the text is cut."""

    def __init__(self) -> None:
        self._tail = ""
        """Possible start of a tag at the end of the last piece."""
        self._closer = ""
        """The closing tag to wait for, in lower case; empty outside reasoning."""
        self._held: list[str] = []
        """Pieces since an opening tag in mid-line: reasoning if it closes, else text."""
        self._sure = False
        self._noted = ""
        """The last text passed on, evaluated only when the next tag comes."""
        self._line_start = True
        self._last = ""
        self._blank = True
        self._trim = False
        """Drop white space after a reasoning block that opened the answer."""

    @property
    def is_idle(self) -> bool:
        return not self._tail and not self._closer and not self._trim

    def note_text(self, text: str) -> None:
        """Note text without `<` that bypassed the filter; evaluated when the next `<` comes."""
        if text.isspace():
            self._settle_noted_text()
        self._noted = text

    def _settle_noted_text(self) -> None:
        text, self._noted = self._noted, ""
        if text:
            _, newline, line = text.rpartition("\n")
            self._line_start = not line.strip() and (newline != "" or self._line_start)
            self._last = text[-1]
            self._blank = self._blank and text.isspace()

    def feed(self, text: str) -> list[Piece]:
        out: list[Piece] = []
        text, self._tail = self._tail + text, ""
        while text:
            text = self._feed_inside(text, out) if self._closer else self._feed_outside(text, out)
        return out

    def close(self) -> list[Piece]:
        out: list[Piece] = []
        rest, self._tail = self._tail, ""
        if self._closer and self._sure:
            _append_piece(out, True, rest)
        else:
            self._pass_text("".join(self._held) + rest, out)
        self._closer, self._held = "", []
        return out

    def _feed_outside(self, text: str, out: list[Piece]) -> str:
        match = _OPEN.search(text)
        if match is None:
            cut = _find_open_tag(text, _OPENERS)
            self._tail = text[cut:]
            self._pass_text(text[:cut], out)
            return ""
        self._pass_text(text[: match.start()], out)
        self._settle_noted_text()
        if self._last in _QUOTES:
            self._pass_text(match.group(), out)
        else:
            self._closer = f"</{match.group(1).lower()}>"
            self._sure = self._line_start
            self._held = [] if self._sure else [match.group()]
        return text[match.end() :]

    def _feed_inside(self, text: str, out: list[Piece]) -> str:
        match = _CLOSE[self._closer].search(text)
        if match is None:
            cut = _find_open_tag(text, (self._closer,))
            self._tail = text[cut:]
            self._add_reasoning(text[:cut], out)
            return ""
        self._add_reasoning(text[: match.start()], out)
        if not self._sure:
            held = "".join(self._held)
            _append_piece(out, True, held[held.index(">") + 1 :])
        self._closer, self._held = "", []
        self._settle_noted_text()
        self._trim = self._blank
        return text[match.end() :]

    def _add_reasoning(self, text: str, out: list[Piece]) -> None:
        if self._sure:
            _append_piece(out, True, text)
        elif text:
            self._held.append(text)

    def _pass_text(self, text: str, out: list[Piece]) -> None:
        if self._trim:
            text = text.lstrip()
            self._trim = not text
        if text:
            self.note_text(text)
            _append_piece(out, False, text)


def _find_open_tag(text: str, tags: Sequence[str]) -> int:
    """Index of the start of a tag that the next piece could complete; the length: none."""
    position = text.rfind("<", max(0, len(text) - _LONGEST))
    tail = text[position:].lower()
    return position if position >= 0 and any(t.startswith(tail) for t in tags) else len(text)


def _append_piece(out: list[Piece], thinking: bool, text: str) -> None:
    if not text:
        return
    if out and out[-1][0] is thinking:
        out[-1] = (thinking, out[-1][1] + text)
    else:
        out.append((thinking, text))
