"""Remote images in answers become links once a session could leak data through them.

Clients fetch images without asking, and an address can carry data.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from hermes.core.taint import Taint

LOOKAHEAD = 1000
"""So many characters are held back at most until it is clear whether they are an image."""
_HOLD_BACK = -1
_SPECIAL = re.compile(r"[\n!`<\\]")
_IN_CODE = re.compile(r"\n|`+|!(?=\[|\Z)|<")
_OPENING = re.compile(r"(`{3,})([^`\n]*)\n|(~{3,})([^\n]*)\n")
_CLOSING = re.compile(r" {0,3}(`{3,}|~{3,})[ \t]*(?:\n|\Z)")
_PERHAPS_CLOSING = re.compile(r" {0,3}[`~]*[ \t]*")
_TAG = re.compile(r"<img(?=[\s/>])", re.IGNORECASE)
_TAGS = ("<", "<i", "<im", "<img")
_ESCAPED = re.compile(r"\\[!-/:-@\[-`{-~]")
_BEFORE_ADDRESS = re.compile(r"\([ \t]*\n?[ \t]*<?")
_ADDRESS = re.compile(r"[\w./%#?=~@+,-]*")
_LOCAL_SCHEMES = ("data:", "file:", "sandbox:", "attachment:", "blob:")


def can_leak_data(taint: Taint) -> bool:
    """Untrusted text may make the model send the private data it has read to its author."""
    return taint.private and taint.untrusted


def link_images(text: str) -> str:
    """A complete text with its remote images as links."""
    if "![" not in text and "<" not in text:
        return text
    image_filter = ImageLinkFilter()
    return image_filter.feed(text) + image_filter.close()


def choose_text_filter(images: str, taint: Taint) -> Callable[[str], str]:
    """What makes a text of the model fit for clients; `images`: the setting of that name."""
    return link_images if images == "link" and can_leak_data(taint) else str


class ImageLinkFilter:
    """Text in, text out; the output does not depend on how the text was cut into pieces. Code is
    left alone: in fences at the beginning of a line, and between backticks on one line."""

    __slots__ = ("_at_line", "_code", "_fence", "_final", "_held", "_last", "_out")

    def __init__(self) -> None:
        self._held = ""
        self._at_line = True
        self._fence = ""
        self._code = 0
        """The number of backticks that opened the inline code; 0 outside of it."""
        self._last = "\n"
        self._final = False
        self._out: list[str] = []

    def feed(self, text: str) -> str:
        return self._filter_text(self._held + text, final=False)

    def close(self) -> str:
        """The text held back, now that nothing follows."""
        return self._filter_text(self._held, final=True)

    def _filter_text(self, text: str, *, final: bool) -> str:
        self._final = final
        at = 0
        while at < len(text):
            if self._fence:
                after = self._scan_fence(text, at)
            elif self._code:
                after = self._scan_inline_code(text, at)
            else:
                after = self._scan_text(text, at)
            if after == _HOLD_BACK:
                break
            at = after
        self._held = text[at:]
        out = "".join(self._out)
        self._out.clear()
        return out

    def _emit_text(self, text: str) -> None:
        if text:
            self._out.append(text)
            self._last = text[-1]
            self._at_line = self._last == "\n"

    # -- code ------------------------------------------------------------------------------------

    def _scan_fence(self, text: str, at: int) -> int:
        end = text.find("\n", at) + 1
        if self._at_line:
            near = text[at : at + LOOKAHEAD]
            if (
                not end
                and not self._final
                and _PERHAPS_CLOSING.fullmatch(near)
                and len(near) < LOOKAHEAD
            ):
                return _HOLD_BACK
            found = _CLOSING.match(text, at)
            if found and found[1][0] == self._fence[0] and len(found[1]) >= len(self._fence):
                self._fence = ""
        self._emit_text(text[at : end or len(text)])
        return end or len(text)

    def _scan_inline_code(self, text: str, at: int) -> int:
        found = _IN_CODE.search(text, at)
        if found is None:
            self._emit_text(text[at:])
            return len(text)
        here = found.start()
        if here > at:
            self._emit_text(text[at:here])
            return here
        what = found[0]
        if what == "\n":
            self._code = 0
        elif what[0] == "`":
            if found.end() == len(text) and not self._final:
                return _HOLD_BACK
            if len(what) == self._code:
                self._code = 0
        else:
            return self._scan_image_in_code(text, here)
        self._emit_text(what)
        return found.end()

    def _scan_image_in_code(self, text: str, at: int) -> int:
        """An image inside inline code stays, unless the code never ends: then it is no code."""
        near = text[at : at + LOOKAHEAD].partition("\n")
        for run in re.finditer("`+", near[0]):
            if len(run[0]) == self._code:
                if at + run.end() == len(text) and not self._final:
                    return _HOLD_BACK
                self._emit_text(near[0][: run.end()])
                self._code = 0
                return at + run.end()
        if not near[1] and len(near[0]) < LOOKAHEAD and not self._final:
            return _HOLD_BACK
        self._code = 0
        return at

    # -- text ------------------------------------------------------------------------------------

    def _scan_text(self, text: str, at: int) -> int:
        if self._at_line and text[at] in "`~":
            after = self._open_fence(text, at)
            if after != at:
                return after
        found = _SPECIAL.search(text, at)
        here = found.start() if found else len(text)
        if here > at:
            self._emit_text(text[at:here])
            return here
        match text[at]:
            case "!":
                return self._scan_image(text, at)
            case "<":
                return self._scan_tag(text, at)
            case "`":
                return self._open_inline_code(text, at)
            case "\\":
                return self._copy_escape(text, at)
        self._emit_text("\n")
        return at + 1

    def _open_fence(self, text: str, at: int) -> int:
        near = text[at : at + LOOKAHEAD]
        mark = near[0]
        run = len(near) - len(near.lstrip(mark))
        if (
            "\n" not in near
            and len(near) < LOOKAHEAD
            and not self._final
            and (run > 2 or run == len(near))
        ):
            return _HOLD_BACK  # the rest of the line decides
        found = _OPENING.match(near)
        if found is None:
            return at
        self._fence = found[1] or found[3]
        self._emit_text(found[0])
        return at + found.end()

    def _open_inline_code(self, text: str, at: int) -> int:
        end = at
        while end < len(text) and text[end] == "`":
            end += 1
        if end == len(text) and not self._final:
            return _HOLD_BACK
        self._code = end - at
        self._emit_text(text[at:end])
        return end

    def _copy_escape(self, text: str, at: int) -> int:
        if at + 1 == len(text) and not self._final:
            return _HOLD_BACK
        size = 2 if _ESCAPED.match(text, at) else 1
        self._emit_text(text[at : at + size])
        return at + size

    def _scan_tag(self, text: str, at: int) -> int:
        if not self._final and text[at : at + 5].lower() in _TAGS:
            return _HOLD_BACK
        self._emit_text("&lt;" if _TAG.match(text, at) else "<")
        return at + 1

    def _scan_image(self, text: str, at: int) -> int:
        near = text[at : at + LOOKAHEAD]
        whole = self._final or len(near) == LOOKAHEAD
        is_image = _is_remote_image(near, whole=whole, word=_ends_word(self._last))
        if is_image is None:
            return _HOLD_BACK
        if not is_image:
            self._emit_text("!")
        elif self._last == "!":  # else the one before it would make an image again
            self._emit_text(" ")
        return at + 1


def _ends_word(before: str) -> bool:
    """After a word or `#`, as in `vec![1]` and `#![allow]`, no image begins."""
    return before.isalnum() or before in "_#"


def _is_remote_image(near: str, *, whole: bool, word: bool) -> bool | None:
    """Whether a remote image begins here; None: more text is needed."""
    if len(near) == 1:
        return False if whole else None
    if near[1] != "[":
        return False
    end = _find_label_end(near)
    if end < 0:
        return len(near) == LOOKAHEAD if whole else None
    if end == len(near):
        return not word if whole else None
    if near[end] != "(":
        return not word
    start = _BEFORE_ADDRESS.match(near, end)
    assert start is not None
    path = _ADDRESS.match(near, start.end())
    assert path is not None
    if path.end() == len(near):
        return len(near) == LOOKAHEAD if whole else None
    address, stop = path[0].lower(), near[path.end()]
    if stop == ":":
        return not f"{address}:".startswith(_LOCAL_SCHEMES)
    return stop not in ")> \t\n\"'" or address.startswith("//")


def _find_label_end(near: str) -> int:
    """The index after the bracket that closes the one at 1; -1 when there is none."""
    depth, at = 0, 1
    while at < len(near):
        match near[at]:
            case "\\":
                at += 1
            case "[":
                depth += 1
            case "]":
                depth -= 1
                if not depth:
                    return at + 1
        at += 1
    return -1
