"""Steps of a script: one Reply per model request, with every fault a network can add to it."""

from __future__ import annotations

import asyncio
import random
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from tests.kit import errors, render
from tests.kit.answers import Answer, Call, Say, Think, Tokens, arguments, fragments
from tests.kit.render import STREAM_TYPE, Event


class Gate:
    """A place where the server waits: the test sees it `reached`, then lets it go on."""

    def __init__(self) -> None:
        self._reached = asyncio.Event()
        self._open = asyncio.Event()

    async def reached(self, timeout: float = 90) -> None:
        async with asyncio.timeout(timeout):
            await self._reached.wait()

    def open(self) -> None:
        self._open.set()

    async def arrive(self) -> None:
        self._reached.set()
        await self._open.wait()


@dataclass(frozen=True)
class Do:
    """What happens at a mark. cut: close; reset: RST; stall: silence until the client leaves;
    hold: wait for the gate; drip: send `data` every `every` seconds, `times` times (0: forever)."""

    what: Literal["cut", "reset", "stall", "hold", "drip"]
    gate: Gate | None = None
    data: bytes = b""
    every: float = 0.0
    times: int = 0


Op: TypeAlias = bytes | Do
Edit: TypeAlias = Callable[[list[Event]], list[Event]]
Body: TypeAlias = bytes | Callable[[], Iterable[bytes]]


@dataclass(frozen=True)
class Mark:
    """Right after the n-th event of `kind` ("" = of any kind; n = 0: before the first), or after
    `byte` bytes of the body."""

    do: Do
    kind: str = ""
    n: int = 1
    byte: int | None = None


@dataclass(frozen=True)
class Reply:
    """One scripted answer. Builders below make it, methods bend it; each returns a new Reply."""

    answer: Answer | None = None
    body: Body | None = None
    failure: tuple[str, Any, str] | None = None
    """(message, code, param) of an error status, worded as the wire words it."""
    frame: tuple[int, str, Any] | None = None
    """(status, message, code) of an error frame at the end of the stream."""
    code: int = 200
    header: dict[str, str] = field(default_factory=dict)
    form: Literal["asked", "stream", "json"] = "asked"
    content_type: str | None = None
    edits: tuple[Edit, ...] = ()
    marks: tuple[Mark, ...] = ()
    write: int = 0
    """Bytes per write; 0: one write per event."""
    seed: int | None = None
    """Cut the body at random places drawn from this seed."""
    pause: float = 0.0
    framing: Literal["chunked", "length", "close"] = "chunked"
    zip: Literal["", "whole", "truncated"] = ""
    socket: Literal["", "reset", "close", "stall", "raw"] = ""
    """Instead of any HTTP answer."""

    # -- what is said ----------------------------------------------------------------------

    def __add__(self, more: Reply) -> Reply:
        """Both answers in one: `think("hm") + say("hi") + call(...)`."""
        if self.answer is None or more.answer is None:
            raise TypeError("only answers can be joined")
        parts = (*self.answer.parts, *more.answer.parts)
        stop = more.answer.stop if more.answer.stop is not None else self.answer.stop
        return replace(self, answer=replace(more.answer, parts=parts, stop=stop))

    def _with(self, **changes: Any) -> Reply:
        if self.answer is None:
            raise TypeError("no answer to change")
        return replace(self, answer=replace(self.answer, **changes))

    def stop(self, reason: str) -> Reply:
        """end, tool_use, length, filtered; "" for none; anything else verbatim."""
        return self._with(stop=reason)

    def usage(self, tokens: Tokens | None) -> Reply:
        return self._with(tokens=tokens)

    def then_error(self, message: str, *, status: int = 500, code: Any = "") -> Reply:
        """The stream carries an error frame where its end should be."""
        return replace(self, frame=(status, message, code))

    # -- how it is written -----------------------------------------------------------------

    def as_json(self) -> Reply:
        return replace(self, form="json", framing="length")

    def as_stream(self) -> Reply:
        return replace(self, form="stream")

    def headers(self, **headers: str) -> Reply:
        """Underscores become dashes."""
        named = {k.replace("_", "-"): v for k, v in headers.items()}
        return replace(self, header={**self.header, **named})

    def type(self, content_type: str) -> Reply:
        """Lie about the content type; "" sends none."""
        return replace(self, content_type=content_type)

    def edit(self, change: Edit) -> Reply:
        """Change the list of stream events before it is written."""
        return replace(self, edits=(*self.edits, change))

    def without(self, *kinds: str) -> Reply:
        return self.edit(lambda events: [e for e in events if e.kind not in kinds])

    def each(self, change: Callable[[bytes], bytes]) -> Reply:
        """Change the bytes of every event."""
        return self.edit(lambda events: [Event(e.kind, change(e.data)) for e in events])

    def insert(self, data: bytes, *, before: str = "", after: str = "") -> Reply:
        """Put bytes before (after) every event of a kind."""

        def change(events: list[Event]) -> list[Event]:
            out: list[Event] = []
            for e in events:
                if e.kind == before:
                    out.append(Event("extra", data))
                out.append(e)
                if e.kind == after:
                    out.append(Event("extra", data))
            return out

        return self.edit(change)

    def bytes_each(self, size: int) -> Reply:
        return replace(self, write=size)

    def random_cuts(self, seed: int) -> Reply:
        return replace(self, seed=seed)

    def slow(self, seconds: float) -> Reply:
        """Real time between two writes: only for tests that kill or time out."""
        return replace(self, pause=seconds)

    def until_close(self) -> Reply:
        """Neither length nor chunks: the end of the connection ends the body."""
        return replace(self, framing="close")

    def gzip(self, *, truncated: bool = False) -> Reply:
        return replace(self, zip="truncated" if truncated else "whole")

    # -- what goes wrong on the way --------------------------------------------------------

    def _mark(self, do: Do, after: str, n: int, byte: int | None = None) -> Reply:
        return replace(self, marks=(*self.marks, Mark(do, after, n, byte)))

    def cut(self, after: str = "", n: int = 1, *, byte: int | None = None) -> Reply:
        """Close the connection there, the body unfinished."""
        return self._mark(Do("cut"), after, n, byte)

    def reset(self, after: str = "", n: int = 1, *, byte: int | None = None) -> Reply:
        """RST there. Hold a gate before it when the test must have seen the text: data still in
        the client's buffers may be lost."""
        return self._mark(Do("reset"), after, n, byte)

    def stall(self, after: str = "", n: int = 1, *, byte: int | None = None) -> Reply:
        return self._mark(Do("stall"), after, n, byte)

    def hold(self, gate: Gate, after: str = "", n: int = 1) -> Reply:
        return self._mark(Do("hold", gate), after, n)

    def drip(
        self, data: bytes, every: float, *, after: str = "", n: int = 1, times: int = 0
    ) -> Reply:
        return self._mark(Do("drip", data=data, every=every, times=times), after, n)

    # -- for the server --------------------------------------------------------------------

    def streamed(self, asked: bool) -> bool:
        return self.answer is not None and (
            self.form == "stream" or (self.form == "asked" and asked)
        )

    def head(self, wire: str, asked: bool) -> dict[str, str]:
        kind = STREAM_TYPE[wire] if self.streamed(asked) or self.frame else "application/json"
        if self.content_type is not None:
            kind = self.content_type
        out = {"Content-Type": kind} if kind else {}
        if self.failure:
            out |= errors.error_headers(wire, self.code, self.failure[1])
        if self.zip:
            out["Content-Encoding"] = "gzip"
        return {**out, **self.header}

    def ops(self, wire: str, asked: bool) -> Iterator[Op]:
        """Pieces of the body and what to do between them, in order."""
        ops = self._by_event(wire, asked)
        if any(m.byte is not None for m in self.marks):
            ops = self._by_byte(ops)
        if self.zip:
            ops = self._zipped(ops)
        if self.seed is not None:
            ops = _random_pieces(ops, random.Random(self.seed))
        return ops

    def _events(self, wire: str, asked: bool) -> Iterable[Event]:
        if self.failure:
            message, code, param = self.failure
            return [Event("body", errors.error_body(wire, self.code, message, code, param))]
        if self.body is not None:
            chunks = [self.body] if isinstance(self.body, bytes) else self.body()
            return (Event("body", data) for data in chunks)
        events: list[Event] = []
        if self.answer is not None:
            if not self.streamed(asked):
                return [Event("body", render.whole(wire, self.answer))]
            events = render.stream(wire, self.answer)
        if self.frame:
            events = [e for e in events if e.kind not in ("stop", "usage", "done")]
            events.append(errors.error_event(wire, *self.frame))
        for edit in self.edits:
            events = edit(events)
        return events

    def _by_event(self, wire: str, asked: bool) -> Iterator[Op]:
        marks = [m for m in self.marks if m.byte is None]
        seen: dict[str, int] = {}
        yield from (m.do for m in marks if m.n == 0)
        for event in self._events(wire, asked):
            yield event.data
            for kind in ("", event.kind):
                seen[kind] = seen.get(kind, 0) + 1
            for m in marks:
                if m.n == seen.get(m.kind, 0) and m.kind in ("", event.kind):
                    yield m.do

    def _by_byte(self, ops: Iterator[Op]) -> Iterator[Op]:
        marks = sorted((m for m in self.marks if m.byte is not None), key=lambda m: m.byte or 0)
        sent = 0
        for op in ops:
            if isinstance(op, Do):
                yield op
                continue
            while marks and sent + len(op) >= (marks[0].byte or 0):
                at = (marks[0].byte or 0) - sent
                if at:
                    yield op[:at]
                yield marks.pop(0).do
                op, sent = op[at:], sent + at
            if op:
                yield op
                sent += len(op)

    def _zipped(self, ops: Iterator[Op]) -> Iterator[Op]:
        squeeze = zlib.compressobj(wbits=31)
        last = b""
        for op in ops:
            if isinstance(op, Do):
                yield op
                continue
            if last:
                yield last
            last = squeeze.compress(op) + squeeze.flush(zlib.Z_SYNC_FLUSH)
        if self.zip == "whole":
            yield last + squeeze.flush()
        else:
            yield last[: len(last) // 2] if self.form == "json" else last


def _random_pieces(ops: Iterator[Op], rng: random.Random) -> Iterator[Op]:
    held = b""
    for op in ops:
        if isinstance(op, Do):
            if held:
                yield held
            held = b""
            yield op
            continue
        held += op
        while held and rng.random() < 0.8:
            at = rng.randint(1, len(held))
            yield held[:at]
            held = held[at:]
    if held:
        yield held


# -- builders ------------------------------------------------------------------------------


def say(*pieces: str, size: int = 6) -> Reply:
    """Visible text. One argument is cut into fragments of `size` characters, several are the
    fragments themselves."""
    parts = fragments(pieces[0], size) if len(pieces) == 1 else pieces
    return Reply(Answer((Say(parts),)))


def think(text: str, *, signature: str = "", size: int = 8) -> Reply:
    return Reply(Answer((Think(fragments(text, size), signature),)))


def call(*calls: tuple[str, str, Any], size: int = 9, **extra: Any) -> Reply:
    """Tool calls `(id, name, args)`; args is a dict, or raw text sent as it is."""
    parts = tuple(
        Call(id, name, fragments(arguments(args), size) if arguments(args) else (), extra)
        for id, name, args in calls
    )
    return Reply(Answer(parts))


def nothing() -> Reply:
    """An answer without text and without calls."""
    return Reply(Answer())


def status(
    code: int,
    message: str = "scripted failure",
    *,
    error: Any = "",
    param: str = "",
    headers: dict[str, str] | None = None,
) -> Reply:
    """An HTTP error. `error` is the provider's own code for it."""
    return Reply(code=code, failure=(message, error, param), header=headers or {}, framing="length")


def error_frame(message: str, *, status: int = 500, code: Any = "") -> Reply:
    """200, then nothing but an error inside the stream."""
    return Reply(frame=(status, message, code))


def raw(
    body: Body, *, code: int = 200, content_type: str = "application/json", **headers: str
) -> Reply:
    """These bytes; or a function that makes them while they are sent, for huge bodies."""
    framing: Literal["chunked", "length"] = "length" if isinstance(body, bytes) else "chunked"
    reply = Reply(body=body, code=code, content_type=content_type, framing=framing)
    return reply.headers(**headers)


def html(text: str = "<!DOCTYPE html><html><body>Please log in</body></html>") -> Reply:
    return raw(text.encode(), content_type="text/html; charset=utf-8")


def redirect(location: str, code: int = 307) -> Reply:
    return raw(b"", code=code, content_type="text/plain", Location=location)


def reset() -> Reply:
    """RST once the request has arrived, before a single header."""
    return Reply(socket="reset")


def hang_up() -> Reply:
    """Close once the request has arrived."""
    return Reply(socket="close")


def stall() -> Reply:
    """Take the request and never answer."""
    return Reply(socket="stall")


def garbage(data: bytes) -> Reply:
    """These bytes in place of HTTP, then close."""
    return Reply(body=data, socket="raw")
