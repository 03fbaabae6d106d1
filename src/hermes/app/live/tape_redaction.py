"""Removes secrets from tapes: from response bodies, also where a stream splits them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from io import BytesIO
from typing import Any

import msgspec
import orjson
from msgspec import structs

from hermes.core.message import Message
from hermes.core.redaction.redactor import Redactor
from hermes.llm.http.tape import TapeChoice, TapeEntry, TapeExchange

_PREFIX = b"data:"


def redact_entries(
    entries: Sequence[TapeEntry],
    redactor: Redactor,
    messages: Iterable[Message],
    *,
    is_first: bool,
) -> None:
    """Remove every secret from the entries of a turn that recorded these messages. What became a
    message is searched there, where it is a fraction of the size that it has in a stream.
    `is_first`: no turn came before, so that requests hold nothing else."""
    redact = redactor.redact
    spoken = [m for m in messages if m.role != "tool"]  # results of tools have none any more
    exchanges = [entry for entry in entries if isinstance(entry, TapeExchange)]
    choices = [e for e in entries if isinstance(e, TapeChoice) and e.is_text]
    texts = [text for message in spoken for text in _list_texts(message)]
    for entry in exchanges:
        texts += entry.headers.values()
    texts += [choice.value for choice in choices]
    joined = "\n".join(dict.fromkeys(texts))
    unseen = [entry for entry in exchanges if not _is_answer(entry)]
    answers = sum(message.role == "assistant" for message in spoken)
    is_clean = redact(joined) == joined and len(exchanges) - len(unseen) <= answers
    for choice in choices:
        choice.value = redact(choice.value)
    for entry in unseen if is_clean else exchanges:
        _redact_exchange(entry, redact)
    if is_clean and not is_first:
        for entry in exchanges:
            if entry is exchanges[0] or entry.same < len(entry.request):
                entry.request = _redact_bytes(entry.request, redact)  # it holds earlier turns


def _is_answer(entry: TapeExchange) -> bool:
    """Whether the whole response became a message of the conversation."""
    return entry.is_complete and not entry.job and 200 <= entry.status < 300


def _redact_exchange(entry: TapeExchange, redact: Callable[[str], str]) -> None:
    entry.request = _redact_bytes(entry.request, redact)
    entry.headers = {name: redact(value) for name, value in entry.headers.items()}
    if entry.failure is not None:
        message, code = redact(entry.failure.message), redact(entry.failure.code)
        entry.failure = structs.replace(entry.failure, message=message, code=code)
    body = _redact_bytes(rewrite_stream(entry.body, redact), redact)
    if body != entry.body:
        entry.body, entry.is_changed = body, True
        entry.sizes, entry.times = [len(body)], entry.times[-1:]


def _list_texts(message: Message) -> Iterator[str]:
    yield message.text
    yield message.thinking
    for call in message.calls:
        yield call.args


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
    the first event of the part that differs then carries all of that part."""
    if not _has_change(body, change):
        return body
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
        pieces = _split_change([text for _, _, _, text in found], changed)
        for (number, owner, key, text), piece in zip(found, pieces, strict=True):
            if piece != text:
                owner[key] = piece
                touched.add(number)
    for number in touched:
        end = b"\r" if lines[number].endswith(b"\r") else b""
        lines[number] = _PREFIX + b" " + msgspec.json.encode(events[number]) + end
    return b"\n".join(lines) if touched else body


def _split_change(pieces: Sequence[str], changed: str) -> Iterator[str]:
    """The pieces of a text of which a part has changed, in as many pieces: what other texts of the
    stream come before and after stays so."""
    joined = "".join(pieces)
    begin = _count_common(joined, changed)
    behind = _count_common(joined[begin:][::-1], changed[begin:][::-1])
    end = len(joined) - behind
    middle = changed[begin : len(changed) - behind]
    at, is_placed = 0, False
    for number, piece in enumerate(pieces, 1):
        after = at + len(piece)
        is_here = not is_placed and (begin < after or number == len(pieces))
        is_placed = is_placed or is_here
        yield piece[: max(0, begin - at)] + middle * is_here + piece[max(0, end - at) :]
        at = after


def _count_common(first: str, second: str) -> int:
    """With how many equal characters the texts begin."""
    pairs = enumerate(zip(first, second, strict=False))
    different = (at for at, (one, other) in pairs if one != other)
    return next(different, min(len(first), len(second)))


def _has_change(body: bytes, change: Callable[[str], str]) -> bool:
    """Whether anything would change: most streams are clean, and their events need not be kept."""
    texts: dict[tuple[Any, ...], list[str]] = {}
    for line in BytesIO(body):
        if line.startswith(_PREFIX):
            with suppress(ValueError):
                for path, _, _, text in _walk_texts(orjson.loads(line[len(_PREFIX) :]), ()):
                    texts.setdefault(path, []).append(text)
    return any(change(joined) != joined for joined in map("".join, texts.values()))


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
