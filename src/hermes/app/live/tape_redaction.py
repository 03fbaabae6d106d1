"""Removes secrets from tapes: from response bodies, also where a stream splits them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec
import orjson
from msgspec import structs

from hermes.core.message import Message
from hermes.core.redaction.redactor import Redactor
from hermes.llm.http.tape import TapeEntry, TapeExchange

_PREFIX = b"data:"


def redact_entries(
    entries: Iterable[TapeEntry], redactor: Redactor, messages: Iterable[Message]
) -> None:
    """Remove every secret from the entries of a turn that recorded these messages."""
    texts = [text for m in messages if m.role == "assistant" for text in _list_texts(m)]
    joined = "\n".join(texts)
    is_clean = redactor.redact(joined) == joined
    redact = redactor.redact
    for entry in entries:
        if not isinstance(entry, TapeExchange):
            if isinstance(entry.value, str):
                entry.value = redact(entry.value)
            continue
        entry.request = _redact_bytes(entry.request, redact)
        entry.headers = {name: redact(value) for name, value in entry.headers.items()}
        if entry.failure is not None:
            message, code = redact(entry.failure.message), redact(entry.failure.code)
            entry.failure = structs.replace(entry.failure, message=message, code=code)
        _redact_body(entry, redact, is_clean=is_clean and entry.is_complete)


def _list_texts(message: Message) -> Iterator[str]:
    yield message.text
    yield message.thinking
    for call in message.calls:
        yield call.args


def _redact_body(entry: TapeExchange, redact: Callable[[str], str], *, is_clean: bool) -> None:
    body = entry.body if is_clean else rewrite_stream(entry.body, redact)
    body = _redact_bytes(body, redact)
    if body != entry.body:
        entry.body, entry.is_changed = body, True
        entry.sizes, entry.times = [len(body)], entry.times[-1:]


def _redact_bytes(data: bytes, redact: Callable[[str], str]) -> bytes:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = data.decode("latin-1")
        return data if redact(text) == text else b""  # frames with checksums cannot be changed
    found = redact(text)
    return data if found == text else found.encode()


def rewrite_stream(body: bytes, change: Callable[[str], str]) -> bytes:
    """The event stream with each text changed as a whole, however many events it was split into:
    the first of them then carries all of it."""
    lines = body.split(b"\n")
    events: dict[int, Any] = {}
    for number, line in enumerate(lines):
        if line.startswith(_PREFIX):
            try:
                events[number] = orjson.loads(line[len(_PREFIX) :])
            except ValueError:
                continue
    leaves: dict[tuple[Any, ...], list[tuple[int, Any, Any, str]]] = {}
    for number, event in events.items():
        for path, owner, key, text in _walk_texts(event, ()):
            leaves.setdefault(path, []).append((number, owner, key, text))
    touched: set[int] = set()
    for found in leaves.values():
        joined = "".join(text for _, _, _, text in found)
        changed = change(joined)
        if changed == joined:
            continue
        for index, (number, owner, key, _) in enumerate(found):
            owner[key] = changed if index == 0 else ""
            touched.add(number)
    for number in touched:
        end = b"\r" if lines[number].endswith(b"\r") else b""
        lines[number] = _PREFIX + b" " + msgspec.json.encode(events[number]) + end
    return b"\n".join(lines) if touched else body


def _walk_texts(
    node: Any, path: tuple[Any, ...]
) -> Iterator[tuple[tuple[Any, ...], Any, Any, str]]:
    """Every text with its owner. Parts of one text have the same path; the `index` beside them
    tells several apart."""
    if isinstance(node, dict):
        mark = node.get("index")
        inner = (*path, mark) if isinstance(mark, int) else path
        pairs: Iterable[tuple[Any, Any]] = node.items()
    elif isinstance(node, list):
        inner, pairs = path, enumerate(node)
    else:
        return
    for key, value in pairs:
        if isinstance(value, str):
            yield (*inner, key), node, key, value
        else:
            yield from _walk_texts(value, (*inner, key))
