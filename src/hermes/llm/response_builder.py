"""One answer coming in: fragments from a codec, display events out, a Message at the end."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from hermes.core.errors import Failure, Kind, ProviderError
from hermes.core.events import CallBegan, StreamEvent, TextDelta, ThinkingDelta
from hermes.core.message import (
    Extra,
    Message,
    Native,
    Part,
    Stop,
    Target,
    Text,
    Thinking,
    ToolCall,
    Usage,
)
from hermes.core.text import clean
from hermes.llm.think_tags import ThinkFilter

MAX_BYTES = 32 * 1024 * 1024
MAX_CALLS = 1000
MAX_TOKENS = 1_000_000_000
"""A count beyond this is a mistake of the provider's, not a number of tokens."""
BYTES_PER_TOKEN = 4


class _Slot:
    """One part under construction. Fragments are kept in a list and joined once."""

    __slots__ = ("began", "data", "extra", "id", "kind", "name", "pieces")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.pieces: list[str] = []
        self.id = ""
        self.name = ""
        self.extra: dict[str, Any] = {}
        self.data: dict[str, Any] = {}
        self.began = False


class Answer:
    """Slots are the codec's own indexes (any hashable, sorted by first use unless `order` is
    given). Text and reasoning of one network read leave as one event each, through `drain`."""

    def __init__(self, *, max_bytes: int = MAX_BYTES) -> None:
        self._slots: dict[Any, _Slot] = {}
        self._order: dict[Any, Any] = {}
        self._fresh: list[tuple[bool, str]] = []
        self._events: list[StreamEvent] = []
        self._filter = ThinkFilter()
        self._size = 0
        self._max = max_bytes
        self._calls = 0
        self._counted = False
        self.stop: Stop | None = None
        self.usage = Usage()
        self.detail = ""
        """What the provider said about why it stopped (refusal text, finishMessage)."""
        self.shown = False
        """Whether visible text has been handed out."""
        self.sent = 0
        """Bytes of the request, if known: for an estimate when the provider reports no usage."""
        self.offered: frozenset[str] = frozenset()
        """Names of the tools the request declares: what looks like a call names one of them."""

    # -- what codecs call ------------------------------------------------------------------

    def text(self, slot: Any, piece: str) -> None:
        if piece:
            s = self._slots.get(slot)
            if s is None or s.kind != "text":
                s = self._slot(slot, "text")
            self._add(s, piece)

    def thinking(self, slot: Any, piece: str) -> None:
        s = self._slot(slot, "thinking")
        if piece:
            self._add(s, piece)

    def call(self, slot: Any, *, id: str = "", name: str = "", args: str = "") -> None:
        """Id and name are assigned, not appended; argument fragments add up."""
        s = self._slot(slot, "call")
        if id:
            s.id = id
        if name:
            s.name = name
        if args:
            s.pieces.append(args)
            self._take(len(args))
        if s.name and not s.began:
            s.began = True
            self._flush()
            # A tag still open here is not closed behind the call.
            for thinking, piece in self._filter.close():
                self._event(thinking, piece)
            self._events.append(CallBegan(s.name))

    def set_args(self, slot: Any, args: str) -> None:
        """Replace a call's arguments by the complete ones of a closing frame."""
        s = self._slot(slot, "call")
        self._take(max(0, len(args) - sum(map(len, s.pieces))))
        s.pieces = [args]

    def complete(self, slot: Any, kind: str, whole: str) -> None:
        """The whole of a text or thinking part, from a closing frame: what no delta brought is
        added, and where the two differ the closing frame is right."""
        s = self._slot(slot, kind)
        have = "".join(s.pieces)
        if whole.startswith(have):
            if rest := whole[len(have) :]:
                self._add(s, rest)
        else:
            self._take(len(whole))
            s.pieces = [whole]

    def args(self, slot: Any) -> str:
        """A call's arguments so far."""
        return "".join(self._slot(slot, "call").pieces)

    def extra(self, slot: Any, kind: str, **extra: Any) -> None:
        """Keys to send back with that part. kind: text, thinking or call."""
        self._slot(slot, kind).extra.update(extra)

    def native(self, slot: Any, data: dict[str, Any]) -> None:
        """Something the provider ran itself; a later one for the same slot replaces it."""
        self._slot(slot, "native").data = data

    def place(self, slot: Any, order: Any) -> None:
        """Where the part belongs when it is not the order of first use."""
        self._order[slot] = order

    def count(self, **fields: Any) -> None:
        """Usage so far: cumulative, the last value of a field counts, None changes nothing,
        values that cannot be (negative, absurd) are left out and mark the usage as estimated."""
        now: dict[str, Any] = {}
        for name, value in fields.items():
            if value is None:
                continue
            if type(value) in (int, float) and 0 <= value <= MAX_TOKENS:
                now[name] = value if name == "cost" else int(value)
            else:
                now["estimated"] = True
        if now:
            self._counted = True
            self.usage = structs.replace(self.usage, **now)

    # -- what the caller reads -------------------------------------------------------------

    def drain(self) -> list[StreamEvent]:
        """Display events since the last call."""
        self._flush()
        events, self._events = self._events, []
        return events

    def finish(self) -> list[StreamEvent]:
        """The last events, text held back by the tag filter included."""
        self._flush()
        for thinking, piece in self._filter.close():
            self._event(thinking, piece)
        events, self._events = self._events, []
        return events

    @property
    def begun_calls(self) -> tuple[str, ...]:
        return tuple(s.name or "?" for s in self._slots.values() if s.kind == "call")

    @property
    def size(self) -> int:
        """Characters of text, reasoning and arguments so far."""
        return self._size

    @property
    def empty(self) -> bool:
        return not any(s.kind != "native" for s in self._slots.values())

    def message(self, origin: Target) -> Message:
        self._estimate()
        slots = self._slots
        keys = list(slots)
        if self._order:
            first = {k: i for i, k in enumerate(keys)}
            keys.sort(key=lambda k: (self._order.get(k, first[k]), first[k]))
        parts: list[Part] = []
        for key in keys:
            _append(parts, slots[key])
        return Message(
            "assistant",
            tuple(_split_tags(parts)),
            origin=origin,
            stop=self.stop,
            usage=self.usage,
        )

    # -- inside ----------------------------------------------------------------------------

    def _slot(self, slot: Any, kind: str) -> _Slot:
        found = self._slots.get(slot)
        if found is None or found.kind != kind:
            if found is not None:
                # One index, two kinds: a router renumbered. Keep the old one under another key.
                self._slots[(slot, len(self._slots))] = found
                del self._slots[slot]
            if kind == "call":
                self._calls += 1
                self._take(256)
                if self._calls > MAX_CALLS:
                    self._too_large()
            found = self._slots[slot] = _Slot(kind)
        return found

    def _add(self, s: _Slot, piece: str) -> None:
        if "\x00" in piece:
            piece = clean(piece)
        s.pieces.append(piece)
        self._fresh.append((s.kind == "thinking", piece))
        self._size += len(piece)
        if self._size > self._max:
            self._too_large()

    def _take(self, size: int) -> None:
        self._size += size
        if self._size > self._max:
            self._too_large()

    def _estimate(self) -> None:
        """Where the provider reported nothing usable about an answer that has content."""
        usage = self.usage
        if not self._size or (self._counted and not usage.estimated):
            return
        self.usage = structs.replace(
            usage,
            input=usage.input or self.sent // BYTES_PER_TOKEN,
            output=usage.output or 1 + self._size // BYTES_PER_TOKEN,
            estimated=True,
        )

    def _too_large(self) -> None:
        self.stop = "died"
        raise ProviderError(Failure(Kind.ANSWER_TOO_LARGE, "the answer exceeded the size cap"))

    def _flush(self) -> None:
        fresh = self._fresh
        if not fresh:
            return
        self._fresh = []
        if len(fresh) == 1:
            self._emit(*fresh[0])
            return
        run: list[str] = []
        current = fresh[0][0]
        for thinking, piece in fresh:
            if thinking is not current:
                self._emit(current, "".join(run))
                run, current = [], thinking
            run.append(piece)
        self._emit(current, "".join(run))

    def _emit(self, thinking: bool, text: str) -> None:
        if thinking:
            self._event(True, text)
        elif self._filter.idle and "<" not in text:
            self._filter.note(text)
            self._event(False, text)
        else:
            for is_thinking, piece in self._filter.feed(text):
                self._event(is_thinking, piece)

    def _event(self, thinking: bool, text: str) -> None:
        if thinking:
            self._events.append(ThinkingDelta(text))
        else:
            self.shown = True
            self._events.append(TextDelta(text))


def _append(parts: list[Part], s: _Slot) -> None:
    """Pieces of text that follow each other directly are one text when neither has extras."""
    body = clean("".join(s.pieces))
    extra: Extra = s.extra or None
    match s.kind:
        case "text":
            last = parts[-1] if parts else None
            if isinstance(last, Text) and last.extra is None and extra is None:
                parts[-1] = Text(last.text + body)
            elif body or extra:
                parts.append(Text(body, extra))
        case "thinking":
            if body or extra:
                parts.append(Thinking(body, extra))
        case "call":
            parts.append(ToolCall(clean(s.id), clean(s.name), body, extra))
        case _:
            parts.append(Native(s.data))


def _split_tags(parts: list[Part]) -> list[Part]:
    """Move what stands in reasoning tags from the text to reasoning, as the live filter did.
    The filter runs over the whole text of the answer, so tags may span text parts."""
    if not any(isinstance(p, Text) and "<" in p.text for p in parts):
        return parts
    out: list[Part] = []
    tags = ThinkFilter()
    extra: Extra = None
    for part in parts:
        if isinstance(part, Text):
            extra = part.extra
            pieces = tags.feed(part.text)
            if extra is not None:
                # They stay on one piece of the part, also when nothing of its text is left.
                end = pieces.pop()[1] if pieces and not pieces[-1][0] else ""
                out.extend([Thinking(p) if thinking else Text(p) for thinking, p in pieces])
                out.append(Text(end, extra))
            else:
                _tagged(out, pieces, None)
        else:
            if isinstance(part, ToolCall):
                _tagged(out, tags.close(), extra)
            out.append(part)
    _tagged(out, tags.close(), extra)
    return out


def _tagged(out: list[Part], pieces: list[tuple[bool, str]], extra: Extra) -> None:
    for thinking, piece in pieces:
        last = out[-1] if out else None
        if thinking:
            if isinstance(last, Thinking) and last.extra is None:
                out[-1] = Thinking(last.text + piece)
            else:
                out.append(Thinking(piece))
        elif isinstance(last, Text) and last.extra == extra:
            out[-1] = Text(last.text + piece, extra)
        else:
            out.append(Text(piece, extra))
