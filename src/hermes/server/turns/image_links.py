"""Turns remote images in answers into links, and HTML that makes clients fetch something into text,
in sessions that could leak data through them.

Clients fetch these without asking, and a URL can carry data.
"""

import re
from collections.abc import Callable

from hermes.core.taint import Taint

LOOKAHEAD = 1000
"""The most characters that are held back until it is clear whether they are an image."""
_HOLD_BACK = -1
_SPECIAL = re.compile(r"[\n!`<\\]")
_IN_CODE = re.compile(r"\n|`+|!(?=\[|\Z)|<")
_OPENING = re.compile(r"(`{3,})([^`\n]*)\n|(~{3,})([^\n]*)\n")
_CLOSING = re.compile(r" {0,3}(`{3,}|~{3,})[ \t]*(?:\n|\Z)")
_PERHAPS_CLOSING = re.compile(r" {0,3}[`~]*[ \t]*")
_TAG = re.compile(r"</?([a-z][^\s/>]*)", re.IGNORECASE)
_PERHAPS_TAG = re.compile(r"</?(?:[a-z][^\s/>]*)?", re.IGNORECASE)
_FETCHING_TAGS = frozenset(
    "audio base body embed feimage frame iframe image img input link meta object picture script "
    "source style track use video".split()
)
_LINK = re.compile(
    r"""<a(?:\s+(?:href|title|target|rel|name|id)\s*=\s*(?:"[^"<>]*"|'[^'<>]*'))*\s*>"""
    r"""|<https?://(?!\S*/[a-z]+=)[^\s<>"']*>""",
    re.IGNORECASE,
)
"""A link, which is only fetched on a click; `/style=` in one would be an attribute."""
_ESCAPED = re.compile(r"\\[!-/:-@\[-`{-~]")
_BEFORE_ADDRESS = re.compile(r"\([ \t]*\n?[ \t]*<?")
_ADDRESS = re.compile(r"[\w./%#?=~@+,-]*")
_LOCAL_SCHEMES = ("data:", "file:", "sandbox:", "attachment:", "blob:")


def link_images(text: str) -> str:
    """A complete text with remote images turned into links."""
    if "![" not in text and "<" not in text:
        return text
    image_filter = ImageLinkFilter()
    return image_filter.feed(text) + image_filter.close()


def choose_text_filter(images: str, taint: Taint) -> Callable[[str], str]:
    """The function that filters the model's texts for clients; `images`: the setting."""
    return link_images if images == "link" and taint.can_leak else str


class ImageLinkFilter:
    """Filters text piece by piece; the result does not depend on how it is cut. Fenced code blocks
    and inline code on one line are left alone."""

    __slots__ = ("_at_line_start", "_code", "_fence", "_final", "_held", "_last", "_out")

    def __init__(self) -> None:
        self._held = ""
        self._at_line_start = True
        self._fence = ""
        self._code = 0
        """The number of backticks that opened the inline code; 0 outside."""
        self._last = "\n"
        self._final = False
        self._out: list[str] = []

    def feed(self, text: str) -> str:
        return self._filter_text(self._held + text, final=False)

    def close(self) -> str:
        """The text held back until now; no more text follows."""
        return self._filter_text(self._held, final=True)

    def _filter_text(self, text: str, *, final: bool) -> str:
        self._final = final
        index = 0
        while index < len(text):
            if self._fence:
                after = self._scan_fence(text, index)
            elif self._code:
                after = self._scan_inline_code(text, index)
            else:
                after = self._scan_text(text, index)
            if after == _HOLD_BACK:
                break
            index = after
        self._held = text[index:]
        out = "".join(self._out)
        self._out.clear()
        return out

    def _emit_text(self, text: str) -> None:
        if text:
            self._out.append(text)
            self._last = text[-1]
            self._at_line_start = self._last == "\n"

    def _scan_fence(self, text: str, index: int) -> int:
        end = text.find("\n", index) + 1
        if self._at_line_start:
            window = text[index : index + LOOKAHEAD]
            if (
                not end
                and not self._final
                and _PERHAPS_CLOSING.fullmatch(window)
                and len(window) < LOOKAHEAD
            ):
                return _HOLD_BACK
            found = _CLOSING.match(text, index)
            if found and found[1][0] == self._fence[0] and len(found[1]) >= len(self._fence):
                self._fence = ""
        self._emit_text(text[index : end or len(text)])
        return end or len(text)

    def _scan_inline_code(self, text: str, index: int) -> int:
        found = _IN_CODE.search(text, index)
        if found is None:
            self._emit_text(text[index:])
            return len(text)
        found_at = found.start()
        if found_at > index:
            self._emit_text(text[index:found_at])
            return found_at
        mark = found[0]
        if mark == "\n":
            self._code = 0
        elif mark[0] == "`":
            if found.end() == len(text) and not self._final:
                return _HOLD_BACK
            if len(mark) == self._code:
                self._code = 0
        else:
            return self._scan_image_in_code(text, found_at)
        self._emit_text(mark)
        return found.end()

    def _scan_image_in_code(self, text: str, index: int) -> int:
        """Keep an image inside inline code, unless the code is never closed."""
        window = text[index : index + LOOKAHEAD].partition("\n")
        for run in re.finditer("`+", window[0]):
            if len(run[0]) == self._code:
                if index + run.end() == len(text) and not self._final:
                    return _HOLD_BACK
                self._emit_text(window[0][: run.end()])
                self._code = 0
                return index + run.end()
        if not window[1] and len(window[0]) < LOOKAHEAD and not self._final:
            return _HOLD_BACK
        self._code = 0
        return index

    def _scan_text(self, text: str, index: int) -> int:
        if self._at_line_start and text[index] in "`~":
            after = self._open_fence(text, index)
            if after != index:
                return after
        found = _SPECIAL.search(text, index)
        found_at = found.start() if found else len(text)
        if found_at > index:
            self._emit_text(text[index:found_at])
            return found_at
        match text[index]:
            case "!":
                return self._scan_image(text, index)
            case "<":
                return self._scan_tag(text, index)
            case "`":
                return self._open_inline_code(text, index)
            case "\\":
                return self._copy_escape(text, index)
        self._emit_text("\n")
        return index + 1

    def _open_fence(self, text: str, index: int) -> int:
        window = text[index : index + LOOKAHEAD]
        mark = window[0]
        run = len(window) - len(window.lstrip(mark))
        if (
            "\n" not in window
            and len(window) < LOOKAHEAD
            and not self._final
            and (run > 2 or run == len(window))
        ):
            return _HOLD_BACK  # the rest of the line decides
        found = _OPENING.match(window)
        if found is None:
            return index
        self._fence = found[1] or found[3]
        self._emit_text(found[0])
        return index + found.end()

    def _open_inline_code(self, text: str, index: int) -> int:
        end = index
        while end < len(text) and text[end] == "`":
            end += 1
        if end == len(text) and not self._final:
            return _HOLD_BACK
        self._code = end - index
        self._emit_text(text[index:end])
        return end

    def _copy_escape(self, text: str, index: int) -> int:
        if index + 1 == len(text) and not self._final:
            return _HOLD_BACK
        size = 2 if _ESCAPED.match(text, index) else 1
        self._emit_text(text[index : index + size])
        return index + size

    def _scan_tag(self, text: str, index: int) -> int:
        window = text[index : index + LOOKAHEAD]
        complete = self._final or len(window) == LOOKAHEAD
        fetches = _makes_client_fetch(window, complete=complete)
        if fetches is None:
            return _HOLD_BACK
        self._emit_text("&lt;" if fetches else "<")
        return index + 1

    def _scan_image(self, text: str, index: int) -> int:
        window = text[index : index + LOOKAHEAD]
        complete = self._final or len(window) == LOOKAHEAD
        is_image = _is_remote_image(window, complete=complete, after_word=_ends_word(self._last))
        if is_image is None:
            return _HOLD_BACK
        if not is_image:
            self._emit_text("!")
        elif self._last == "!":  # otherwise the one before it would start an image
            self._emit_text(" ")
        return index + 1


def _makes_client_fetch(window: str, *, complete: bool) -> bool | None:
    """Whether the text starts with a tag that a client may fetch something for; None if more text
    is needed to tell. Any attribute with a value counts (`style` can fetch), except of links."""
    if not complete and _PERHAPS_TAG.fullmatch(window):
        return None
    tag = _TAG.match(window)
    if tag is None:
        return False
    if tag[1].lower() in _FETCHING_TAGS:
        return True
    end = re.search("[=>]", window[tag.end() :])
    if end is None:
        return len(window) == LOOKAHEAD if complete else None
    if end[0] != "=":
        return False
    if tag[1].lower() not in ("a", "http:", "https:"):
        return True
    if ">" not in window and not complete:
        return None
    return _LINK.match(window) is None


def _ends_word(before: str) -> bool:
    """Whether this character ends a word or is `#`: no image starts in `vec![1]` or `#![allow]`."""
    return before.isalnum() or before in "_#"


def _is_remote_image(window: str, *, complete: bool, after_word: bool) -> bool | None:
    """Whether the text starts with a remote image; None if more text is needed to tell.
    `complete`: no more text can follow. `after_word`: the text follows a word."""
    if len(window) == 1:
        return False if complete else None
    if window[1] != "[":
        return False
    end = _find_label_end(window)
    if end < 0:
        return len(window) == LOOKAHEAD if complete else None
    if end == len(window):
        return not after_word if complete else None
    if window[end] != "(":
        return not after_word
    start = _BEFORE_ADDRESS.match(window, end)
    assert start is not None
    path = _ADDRESS.match(window, start.end())
    assert path is not None
    if path.end() == len(window):
        return len(window) == LOOKAHEAD if complete else None
    address, stop = path[0].lower(), window[path.end()]
    if stop == ":":
        return not f"{address}:".startswith(_LOCAL_SCHEMES)
    return stop not in ")> \t\n\"'" or address.startswith("//")


def _find_label_end(window: str) -> int:
    """The index after the bracket that closes the one at index 1; -1 if there is none."""
    depth, index = 0, 1
    while index < len(window):
        match window[index]:
            case "\\":
                index += 1
            case "[":
                depth += 1
            case "]":
                depth -= 1
                if not depth:
                    return index + 1
        index += 1
    return -1
