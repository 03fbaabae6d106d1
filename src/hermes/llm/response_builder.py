"""An answer coming in: fragments from a codec, display events out, a Message at the end."""

from collections.abc import Mapping
from itertools import groupby
from operator import itemgetter
from typing import Any, NoReturn

from msgspec import Struct, structs

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
from hermes.core.text import replace_invalid
from hermes.llm.think_tags import ThinkFilter

MAX_BYTES = 32 * 1024 * 1024
MAX_CALLS = 1000
MAX_TOKENS = 1_000_000_000
"""A larger count is a mistake of the provider."""
BYTES_PER_TOKEN = 4


class _Slot(Struct):
    """One part under construction. Fragments are kept in a list and joined once."""

    kind: str
    pieces: list[str] = []
    id: str = ""
    name: str = ""
    extra: dict[str, Any] = {}
    data: dict[str, Any] = {}
    announced: bool = False


class _EventBuffer:
    """Display events: adjacent text or reasoning of one network read leaves as one event, and text
    inside reasoning tags leaves as reasoning."""

    def __init__(self) -> None:
        self.fresh: list[tuple[bool, str]] = []
        """Whether it is reasoning, and the text: the pieces of the current read."""
        self._events: list[StreamEvent] = []
        self._tags = ThinkFilter()

    def announce_call(self, name: str) -> None:
        self.end_text()
        self._events.append(CallBegan(name))

    def end_text(self) -> None:
        """Release what the tag filter holds back: a tag that is open now will not be closed."""
        self._join_pieces()
        self._add_pieces(self._tags.close())

    def drain(self) -> list[StreamEvent]:
        self._join_pieces()
        events, self._events = self._events, []
        return events

    def _join_pieces(self) -> None:
        fresh, self.fresh = self.fresh, []
        if len(fresh) == 1:
            self._filter_text(*fresh[0])
            return
        for thinking, run in groupby(fresh, key=itemgetter(0)):
            self._filter_text(thinking, "".join([piece for _, piece in run]))

    def _filter_text(self, thinking: bool, text: str) -> None:
        if thinking:
            self._events.append(ThinkingDelta(text))
        elif self._tags.is_idle and "<" not in text:
            self._tags.note_text(text)
            self._events.append(TextDelta(text))
        else:
            self._add_pieces(self._tags.feed(text))

    def _add_pieces(self, pieces: list[tuple[bool, str]]) -> None:
        self._events += [ThinkingDelta(p) if thinking else TextDelta(p) for thinking, p in pieces]


class ResponseBuilder:
    """One answer under construction; see core.provider.ResponseSink. Where a closing frame and the
    deltas before it differ, the closing frame is right."""

    def __init__(self, *, max_size: int = MAX_BYTES) -> None:
        self._slots: dict[Any, _Slot] = {}
        self._order: dict[Any, Any] = {}
        self._display = _EventBuffer()
        self._size = 0
        self._max_size = max_size
        self._calls = 0
        self._has_usage = False
        self.stop: Stop | None = None
        self.usage = Usage()
        self.detail = ""
        self.request_size = 0
        self.offered_tools: Mapping[str, tuple[str, ...]] = {}
        self.calling = ""
        self.has_unread_call = False

    def add_text(self, slot: Any, piece: str) -> None:
        if piece:
            part = self._slots.get(slot)
            if part is None or part.kind != "text":
                part = self._open_slot(slot, "text")
            self._add_piece(part, piece)

    def add_thinking(self, slot: Any, piece: str) -> None:
        part = self._open_slot(slot, "thinking")
        if piece:
            self._add_piece(part, piece)

    def add_call(self, slot: Any, *, id: str = "", name: str = "", args: str = "") -> None:
        part = self._open_slot(slot, "call")
        if id:
            part.id = id
        if name:
            part.name = name
        if args:
            part.pieces.append(args)
            self._add_size(len(args))
        if part.name and not part.announced:
            part.announced = True
            self._display.announce_call(part.name)

    def set_args(self, slot: Any, args: str) -> None:
        part = self._open_slot(slot, "call")
        self._add_size(max(0, len(args) - sum(map(len, part.pieces))))
        part.pieces = [args]

    def get_args(self, slot: Any) -> str:
        return "".join(self._open_slot(slot, "call").pieces)

    def complete_part(self, slot: Any, kind: str, text: str) -> None:
        part = self._open_slot(slot, kind)
        streamed = "".join(part.pieces)
        if text.startswith(streamed):
            if missing := text[len(streamed) :]:
                self._add_piece(part, missing)
        else:
            self._add_size(len(text))
            part.pieces = [text]

    def add_extra(self, slot: Any, kind: str, **extra: Any) -> None:
        self._open_slot(slot, kind).extra.update(extra)

    def set_native(self, slot: Any, data: dict[str, Any]) -> None:
        self._open_slot(slot, "native").data = data

    def set_order(self, slot: Any, order: Any) -> None:
        self._order[slot] = order

    def count_usage(self, **counts: Any) -> None:
        """Impossible values (negative, absurd) are left out and mark the usage as estimated."""
        changes: dict[str, Any] = {}
        for name, value in counts.items():
            if value is None:
                continue
            if type(value) in (int, float) and 0 <= value <= MAX_TOKENS:
                changes[name] = value if name == "cost" else int(value)
            else:
                changes["estimated"] = True
        if changes:
            self._has_usage = True
            self.usage = structs.replace(self.usage, **changes)

    def drain_events(self) -> list[StreamEvent]:
        return [] if self.has_unread_call else self._display.drain()

    def finish_events(self) -> list[StreamEvent]:
        """The last events, including text that the tag filter held back."""
        self._display.end_text()
        return self.drain_events()

    def release_events(self) -> list[StreamEvent]:
        """The events from an unreadable call on; they are held back until it is known whether it
        is asked for again."""
        return self._display.drain()

    @property
    def call_names(self) -> tuple[str, ...]:
        return tuple(part.name or "?" for part in self._slots.values() if part.kind == "call")

    @property
    def size(self) -> int:
        return self._size

    @property
    def is_empty(self) -> bool:
        return not any(part.kind != "native" for part in self._slots.values())

    def build_message(self, origin: Target) -> Message:
        self._estimate_usage()
        slots = list(self._slots)
        if self._order:
            first = {slot: i for i, slot in enumerate(slots)}
            slots.sort(key=lambda slot: (self._order.get(slot, first[slot]), first[slot]))
        parts: list[Part] = []
        for slot in slots:
            _append_part(parts, self._slots[slot])
        whole = tuple(_split_tags(parts))
        return Message("assistant", whole, origin=origin, stop=self.stop, usage=self.usage)

    def _open_slot(self, slot: Any, kind: str) -> _Slot:
        found = self._slots.get(slot)
        if found is None or found.kind != kind:
            if found is not None:
                # A router reused the index for another kind: keep the old part under another key.
                self._slots[(slot, len(self._slots))] = found
                del self._slots[slot]
            if kind == "call":
                self._calls += 1
                self._add_size(256 if self._calls <= MAX_CALLS else self._max_size + 1)
            found = self._slots[slot] = _Slot(kind)
        return found

    def _add_piece(self, part: _Slot, piece: str) -> None:
        if "\x00" in piece:
            piece = replace_invalid(piece)
        part.pieces.append(piece)
        self._display.fresh.append((part.kind == "thinking", piece))
        self._size += len(piece)
        if self._size > self._max_size:
            self._fail_size()

    def _add_size(self, size: int) -> None:
        self._size += size
        if self._size > self._max_size:
            self._fail_size()

    def _fail_size(self) -> NoReturn:
        self.stop = "died"
        raise ProviderError(Failure(Kind.ANSWER_TOO_LARGE, "the answer exceeded the size cap"))

    def _estimate_usage(self) -> None:
        """Estimate the usage of an answer with content when the provider reported none."""
        usage = self.usage
        if not self._size or (self._has_usage and not usage.estimated):
            return
        self.usage = structs.replace(
            usage,
            input=usage.input or self.request_size // BYTES_PER_TOKEN,
            output=usage.output or 1 + self._size // BYTES_PER_TOKEN,
            estimated=True,
        )


def _append_part(parts: list[Part], slot: _Slot) -> None:
    """Adjacent texts become one text when neither has extras."""
    body = replace_invalid("".join(slot.pieces))
    extra: Extra = slot.extra or None
    match slot.kind:
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
            id, name = replace_invalid(slot.id), replace_invalid(slot.name)
            parts.append(ToolCall(id, name, body, extra))
        case _:
            parts.append(Native(slot.data))


def _split_tags(parts: list[Part]) -> list[Part]:
    """Move text inside reasoning tags to reasoning, as the live filter did. The filter runs over
    the whole answer, so a tag may span several text parts."""
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
                # The extras stay on one piece of the part, even when none of its text is left.
                end = pieces.pop()[1] if pieces and not pieces[-1][0] else ""
                out.extend([Thinking(p) if thinking else Text(p) for thinking, p in pieces])
                out.append(Text(end, extra))
            else:
                _append_tagged_pieces(out, pieces, None)
        else:
            if isinstance(part, ToolCall):
                _append_tagged_pieces(out, tags.close(), extra)
            out.append(part)
    _append_tagged_pieces(out, tags.close(), extra)
    return out


def _append_tagged_pieces(out: list[Part], pieces: list[tuple[bool, str]], extra: Extra) -> None:
    for thinking, piece in pieces:
        last = out[-1] if out else None
        if thinking and isinstance(last, Thinking) and last.extra is None:
            out[-1] = Thinking(last.text + piece)
        elif not thinking and isinstance(last, Text) and last.extra == extra:
            out[-1] = Text(last.text + piece, extra)
        else:
            out.append(Thinking(piece) if thinking else Text(piece, extra))
