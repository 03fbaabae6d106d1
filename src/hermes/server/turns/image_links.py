"""Pictures in answers that a client would fetch by itself: links, once data could leave by them."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import structs

from hermes.core.channel import Channel
from hermes.core.events import TextDelta, TurnEnd, TurnEvent
from hermes.core.taint import Taint

if TYPE_CHECKING:
    from hermes.app.session import Session
    from hermes.server.app import Server

FAR = 1000
"""Characters that are held back at most, while it is open what they are."""
_HOLD = -1
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
_OURS = ("data:", "file:", "sandbox:", "attachment:", "blob:")


def risky(taint: Taint) -> bool:
    """Whoever wrote the strangers' words may be sending the private ones to himself."""
    return taint.private and taint.untrusted


def plain(text: str) -> str:
    """The whole of a text, without pictures from elsewhere."""
    if "![" not in text and "<" not in text:
        return text
    scan = Scan()
    return scan.feed(text) + scan.close()


def shown_as(server: Server, taint: Taint) -> Callable[[str], str]:
    """What a text of the model is turned into for clients."""
    return plain if server.settings.images == "link" and risky(taint) else _as_it_is


def _as_it_is(text: str) -> str:
    return text


def shown(server: Server, session: Session) -> Shown:
    """What happens in the session from now on, as clients are told of it."""
    return Shown(session, session.subscribe_events(), keep=server.settings.images == "keep")


class Shown:
    """The same events in the same order; texts are those a client may show."""

    __slots__ = ("_channel", "_keep", "_ready", "_scan", "_session")

    def __init__(self, session: Session, channel: Channel, *, keep: bool) -> None:
        self._session = session
        self._channel = channel
        self._keep = keep
        self._scan: Scan | None = None
        self._ready: deque[TurnEvent] = deque()

    def put(self, event: TurnEvent) -> None:
        self._channel.put(event)

    def __aiter__(self) -> Shown:
        return self

    async def __anext__(self) -> TurnEvent:
        while not self._ready:
            happened = await self._channel.__anext__()
            if self._keep or not risky(self._session.transcript.taint):
                return happened
            self._ready += self._of(happened)
        return self._ready.popleft()

    def ready(self) -> list[TurnEvent]:
        """All that is there by now, without waiting."""
        found = [*self._ready]
        self._ready.clear()
        for happened in self._channel.drain_events():
            if self._keep or not risky(self._session.transcript.taint):
                found.append(happened)
            else:
                found += self._of(happened)
        return found

    def _of(self, happened: TurnEvent) -> list[TurnEvent]:
        if isinstance(happened, TextDelta):
            self._scan = self._scan or Scan()
            text = self._scan.feed(happened.text)
            return [TextDelta(text)] if text else []
        rest = self._scan.close() if self._scan else ""
        self._scan = None  # what comes after it is a text of its own
        if isinstance(happened, TurnEnd):
            result = happened.result
            happened = TurnEnd(structs.replace(result, text=plain(result.text)))
        return [TextDelta(rest), happened] if rest else [happened]


class Scan:
    """Text in, text out; what comes out does not depend on how it was cut into pieces. Code is
    left alone: in fences at the beginning of a line, and between backticks on one line."""

    __slots__ = ("_at_line", "_code", "_fence", "_held", "_last", "_out")

    def __init__(self) -> None:
        self._held = ""
        self._at_line = True
        self._fence = ""
        self._code = 0
        """How many backticks began the code we are in."""
        self._last = "\n"
        self._out: list[str] = []

    def feed(self, text: str) -> str:
        return self._through(self._held + text, final=False)

    def close(self) -> str:
        """What was held back: nothing follows."""
        return self._through(self._held, final=True)

    def _through(self, text: str, *, final: bool) -> str:
        at = 0
        while at < len(text):
            if self._fence:
                then = self._in_fence(text, at, final=final)
            elif self._code:
                then = self._in_code(text, at, final=final)
            else:
                then = self._outside(text, at, final=final)
            if then == _HOLD:
                break
            at = then
        self._held = text[at:]
        out = "".join(self._out)
        self._out.clear()
        return out

    def _say(self, text: str) -> None:
        if text:
            self._out.append(text)
            self._last = text[-1]
            self._at_line = self._last == "\n"

    # -- code ------------------------------------------------------------------------------------

    def _in_fence(self, text: str, at: int, *, final: bool) -> int:
        end = text.find("\n", at) + 1
        if self._at_line:
            near = text[at : at + FAR]
            if not end and not final and _PERHAPS_CLOSING.fullmatch(near) and len(near) < FAR:
                return _HOLD
            found = _CLOSING.match(text, at)
            if found and found[1][0] == self._fence[0] and len(found[1]) >= len(self._fence):
                self._fence = ""
        self._say(text[at : end or len(text)])
        return end or len(text)

    def _in_code(self, text: str, at: int, *, final: bool) -> int:
        found = _IN_CODE.search(text, at)
        if found is None:
            self._say(text[at:])
            return len(text)
        here = found.start()
        if here > at:
            self._say(text[at:here])
            return here
        what = found[0]
        if what == "\n":
            self._code = 0
        elif what[0] == "`":
            if found.end() == len(text) and not final:
                return _HOLD
            if len(what) == self._code:
                self._code = 0
        else:
            return self._doubtful(text, here, final=final)
        self._say(what)
        return found.end()

    def _doubtful(self, text: str, at: int, *, final: bool) -> int:
        """A picture in code, unless that has no end: then it is none."""
        near = text[at : at + FAR].partition("\n")
        for run in re.finditer("`+", near[0]):
            if len(run[0]) == self._code:
                if at + run.end() == len(text) and not final:
                    return _HOLD
                self._say(near[0][: run.end()])
                self._code = 0
                return at + run.end()
        if not near[1] and len(near[0]) < FAR and not final:
            return _HOLD
        self._code = 0
        return at

    # -- text ------------------------------------------------------------------------------------

    def _outside(self, text: str, at: int, *, final: bool) -> int:
        if self._at_line and text[at] in "`~":
            then = self._fence_at(text, at, final=final)
            if then != at:
                return then
        found = _SPECIAL.search(text, at)
        here = found.start() if found else len(text)
        if here > at:
            self._say(text[at:here])
            return here
        match text[at]:
            case "!":
                return self._picture(text, at, final=final)
            case "<":
                return self._tag(text, at, final=final)
            case "`":
                return self._backticks(text, at, final=final)
            case "\\":
                return self._escape(text, at, final=final)
        self._say("\n")
        return at + 1

    def _fence_at(self, text: str, at: int, *, final: bool) -> int:
        near = text[at : at + FAR]
        mark = near[0]
        run = len(near) - len(near.lstrip(mark))
        if "\n" not in near and len(near) < FAR and not final and (run > 2 or run == len(near)):
            return _HOLD  # which words follow on this line decides
        found = _OPENING.match(near)
        if found is None:
            return at
        self._fence = found[1] or found[3]
        self._say(found[0])
        return at + found.end()

    def _backticks(self, text: str, at: int, *, final: bool) -> int:
        end = at
        while end < len(text) and text[end] == "`":
            end += 1
        if end == len(text) and not final:
            return _HOLD
        self._code = end - at
        self._say(text[at:end])
        return end

    def _escape(self, text: str, at: int, *, final: bool) -> int:
        if at + 1 == len(text) and not final:
            return _HOLD
        size = 2 if _ESCAPED.match(text, at) else 1
        self._say(text[at : at + size])
        return at + size

    def _tag(self, text: str, at: int, *, final: bool) -> int:
        if not final and text[at : at + 5].lower() in _TAGS:
            return _HOLD
        self._say("&lt;" if _TAG.match(text, at) else "<")
        return at + 1

    def _picture(self, text: str, at: int, *, final: bool) -> int:
        near = text[at : at + FAR]
        whole = final or len(near) == FAR
        verdict = _foreign(near, whole=whole, word=_wordly(self._last))
        if verdict is None:
            return _HOLD
        if not verdict:
            self._say("!")
        elif self._last == "!":  # taken away, the one before it would stand in its place
            self._say(" ")
        return at + 1


def _wordly(before: str) -> bool:
    """`vec![1]` and `#![allow]` are no pictures, nor is what follows a word."""
    return before.isalnum() or before in "_#"


def _foreign(near: str, *, whole: bool, word: bool) -> bool | None:
    """Whether a picture from elsewhere begins here; None: more has to be known."""
    if len(near) == 1:
        return False if whole else None
    if near[1] != "[":
        return False
    end = _end_of_label(near)
    if end < 0:
        return len(near) == FAR if whole else None
    if end == len(near):
        return not word if whole else None
    if near[end] != "(":
        return not word
    start = _BEFORE_ADDRESS.match(near, end)
    assert start is not None
    path = _ADDRESS.match(near, start.end())
    assert path is not None
    if path.end() == len(near):
        return len(near) == FAR if whole else None
    address, stop = path[0].lower(), near[path.end()]
    if stop == ":":
        return not f"{address}:".startswith(_OURS)
    return stop not in ")> \t\n\"'" or address.startswith("//")


def _end_of_label(near: str) -> int:
    """Behind the bracket that closes the one at 1; -1: there is none."""
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
