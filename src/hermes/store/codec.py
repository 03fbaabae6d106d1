"""Messages and sessions to rows and back, exactly; text that no database takes is cleaned here."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from hermes.core.errors import StoreError
from hermes.core.message import Message, Text, ToolReturn
from hermes.core.store import SessionMeta, Stored
from hermes.core.taint import Taint
from hermes.core.text import clean

VISIBLE_LIMIT = 64 * 1024
"""Characters of one message that can be searched for."""

Column = str | int | float | bytes | None

_encoder = msgspec.json.Encoder(enc_hook=str)
_one = msgspec.json.Decoder(Message)
_many = msgspec.json.Decoder(list[Message])


def encode(message: Message) -> bytes:
    """The body of a row. Whatever is in the message, this succeeds."""
    try:
        body = _encoder.encode(message)
        if b"\\u0000" not in body:
            return body
    except (UnicodeEncodeError, OverflowError, TypeError, ValueError):
        pass
    return _encoder.encode(_clean(msgspec.to_builtins(message, builtin_types=(bytes,))))


def decode_all(bodies: Sequence[bytes]) -> list[Message]:
    # Only live objects are made here; the collector would look at all of them several times.
    paused = gc.isenabled()
    gc.disable()
    try:
        return _many.decode(b"[" + b",".join(bodies) + b"]")
    except (msgspec.MsgspecError, UnicodeDecodeError, TypeError):
        return [decode(body, seq) for seq, body in enumerate(bodies)]
    finally:
        if paused:
            gc.enable()


def decode(body: bytes, seq: int) -> Message:
    try:
        return _one.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, TypeError) as error:
        raise StoreError(
            f"Message {seq} of this session cannot be read: it is damaged or from a newer Hermes "
            f"({str(error)[:80]}). It was left as it is; the other sessions are not affected.",
            "damaged",
        ) from error


def decode_rows(rows: Iterable[tuple[int, float, bytes]]) -> list[Stored]:
    return [Stored(seq, created, decode(body, seq)) for seq, created, body in rows]


def visible(message: Message) -> str:
    """What a person would search for: what was said, and what tools printed."""
    pieces = [p.text for p in message.parts if isinstance(p, Text | ToolReturn)]
    return "\n".join(pieces)[:VISIBLE_LIMIT]


def _clean(value: Any) -> Any:
    match value:
        case str():
            return clean(value)
        case dict():
            return {clean(str(k)): _clean(v) for k, v in value.items()}
        case list() | tuple():
            return [_clean(v) for v in value]
        case bool() | None | float() | bytes():
            return value
        case int():
            return value if -(1 << 63) <= value < (1 << 63) else float(value)
    return clean(str(value))


COLUMNS = (
    "s.id, s.source, s.key, s.cwd, s.title, s.model, s.parent, s.state, s.owner,"
    " s.created, s.updated, s.count, s.taint, s.next"
)


def insert(meta: SessionMeta, now: float) -> tuple[Column, ...]:
    """In the order id, source, key, cwd, title, model, parent, created, updated, taint."""
    texts = (meta.id, meta.source, meta.key, meta.cwd, meta.title, meta.model, meta.parent)
    created = meta.created or now
    return (*map(clean, texts), created, meta.updated or created, meta.taint.bits)


def session(row: Sequence[Any], *, alive: bool, system: str = "") -> SessionMeta:
    sid, source, key, cwd, title, model, parent, state, _, created, updated, *rest = row
    count, bits, following = rest
    if state == "running" and not alive:
        state = "interrupted"
    return SessionMeta(
        id=sid,
        source=source,
        key=key,
        cwd=cwd,
        title=title,
        system=system,
        model=model,
        parent=parent,
        state=state,
        created=created,
        updated=updated,
        messages=count,
        taint=Taint.from_bits(bits),
        next=following,
    )
