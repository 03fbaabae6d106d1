"""Messages and sessions as rows and back, exactly; text no database accepts is cleaned here."""

import gc
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from hermes.core.errors import StoreError
from hermes.core.message import Message
from hermes.core.store import SessionMeta
from hermes.core.taint import Taint
from hermes.core.text import clean_value, replace_invalid

Column = str | int | float | bytes | None

LAST_CHARACTER = "\U0010ffff"
"""Sorts behind every other: the end of a prefix."""
_encoder = msgspec.json.Encoder(enc_hook=str)
_message_decoder = msgspec.json.Decoder(Message)
_list_decoder = msgspec.json.Decoder(list[Message])


def encode_message(message: Message) -> bytes:
    """The body of a row; succeeds whatever the message contains."""
    try:
        body = _encoder.encode(message)
        if b"\\u0000" not in body:
            return body
    except (UnicodeEncodeError, OverflowError, TypeError, ValueError):
        pass
    plain = msgspec.to_builtins(message, builtin_types=(bytes,))
    return _encoder.encode(clean_value(plain, _clean_other))


def decode_messages(bodies: Sequence[bytes]) -> list[Message]:
    # Everything made here stays alive; the collector would only traverse it several times.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return _list_decoder.decode(b"[" + b",".join(bodies) + b"]")
    except (msgspec.MsgspecError, UnicodeDecodeError, TypeError):
        return [decode_message(body, seq) for seq, body in enumerate(bodies)]
    finally:
        if was_enabled:
            gc.enable()


def decode_message(body: bytes, seq: int) -> Message:
    try:
        return _message_decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, TypeError) as error:
        raise StoreError(
            f"Message {seq} of this session cannot be read: it is damaged or from a newer Hermes "
            f"({str(error)[:80]}). It was left as it is; other sessions are not affected. "
            "`hermes doctor --fix` keeps the rest of this one.",
            "damaged",
        ) from error


def _clean_other(value: Any) -> Any:
    if isinstance(value, int):
        return value if -(1 << 63) <= value < (1 << 63) else float(value)
    return value if isinstance(value, float | bytes | None) else replace_invalid(str(value))


_SESSION_FIELDS = (
    "id source key cwd title model parent state owner created updated count taint next pinned "
    "archived".split()
)
SESSION_COLUMNS = ", ".join(f"s.{name}" for name in _SESSION_FIELDS)


def encode_session(meta: SessionMeta, now: float) -> tuple[Column, ...]:
    """The columns id, source, key, cwd, title, model, parent, created, updated, taint."""
    texts = (meta.id, meta.source, meta.key, meta.cwd, meta.title, meta.model, meta.parent)
    created = meta.created or now
    return (*map(replace_invalid, texts), created, meta.updated or created, meta.taint.bits)


def decode_session(
    row: Sequence[Any], is_alive: Callable[[str], bool], system: str = ""
) -> SessionMeta:
    """From the columns of `SESSION_COLUMNS`. `is_alive`: whether the process of that name is."""
    values = dict(zip(_SESSION_FIELDS, row, strict=True))
    holder, count, taint = values.pop("owner"), values.pop("count"), values.pop("taint")
    if values["state"] == "running" and not is_alive(holder):
        values["state"] = "interrupted"
    values["pinned"], values["archived"] = bool(values["pinned"]), bool(values["archived"])
    return SessionMeta(**values, system=system, messages=count, taint=Taint.from_bits(taint))
