"""The tape of a turn: every response of a model endpoint, and what else was decided by chance."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from os import urandom
from random import Random
from typing import Any, TypeAlias
from urllib.parse import urlsplit, urlunsplit

from msgspec import Struct

from hermes.core.errors import Failure

_HEADERS = frozenset(
    ("content-type", "date", "location", "retry-after", "retry-after-ms", "x-amzn-errortype")
)
"""Response headers that are kept, besides those of rate limits."""


TOOL_JOB = "tool"
"""The job of calls that a tool makes."""
MAX_BYTES = 48 * 2**20
"""What a tape keeps of the responses of one turn: the longest answer that is read, as a stream."""
_MOST_SENT = 2 * 2**20
"""How many bytes of requests wait until they are described."""


class TapeExchange(Struct, tag="exchange", omit_defaults=True):
    """A request and its response. A request is kept as what differs from the one before."""

    job: str = ""
    """The auxiliary job that asked; empty: the conversation itself."""
    method: str = ""
    url: str = ""
    """Without user and query."""
    digest: str = ""
    """SHA-256 of the request; empty: it was not sent, see `failure`."""
    same: int = 0
    """How many bytes the request has in common with the beginning of the one before."""
    request: bytes = b""
    """The rest of the request."""
    key_source: str = ""
    is_login: bool = False
    at: float = 0.0
    """Seconds since the turn began."""
    status: int = 0
    headers: dict[str, str] = {}
    content_type: str = ""
    host: str = ""
    body: bytes = b""
    sizes: list[int] = []
    """How many bytes of the body each read brought."""
    times: list[float] = []
    """When each read returned, in seconds since the request."""
    is_complete: bool = False
    """Whether the body was read to its end."""
    is_cut: bool = False
    """Whether waiting for it was cancelled."""
    is_truncated: bool = False
    """Whether the body was too long to be kept."""
    failure: Failure | None = None
    retry_after: float | None = None
    """The seconds to wait that its failure stated; a date in it depends on the clock."""
    is_changed: bool = False
    """Whether secrets were removed from the body."""


class TapeChoice(Struct, tag="choice", omit_defaults=True):
    """A decision that depends on more than the conversation: budget, credentials, interrupts."""

    name: str
    value: Any = None
    job: str = ""

    @property
    def is_text(self) -> bool:
        return isinstance(self.value, str)


TapeEntry: TypeAlias = TapeExchange | TapeChoice


class TurnTape:
    """Collects the entries of one turn, in the order in which they happened."""

    def __init__(self, last_request: bytes = b"") -> None:
        """`last_request`: of the turn before; requests are kept as what differs from it."""
        self.entries: list[TapeEntry] = []
        self.is_open = True
        """False: the turn has ended, and what background jobs still ask is not its part."""
        self._began = time.monotonic()
        self._headers: list[tuple[TapeExchange, Mapping[str, str]]] = []
        self._reads: list[tuple[TapeExchange, bytes, float]] = []
        self._calls: dict[str, TapeExchange | None] = {}
        """Job -> its last call; None: it was not sent yet."""
        self._size = 0
        self.steps = 0
        """How many steps have begun."""
        self.last_request = last_request
        self._key = ("", False)
        self._sent: list[tuple[TapeExchange, bytes]] = []
        """Requests that are not described yet: together that costs half."""
        self._sent_size = 0

    def begin_exchange(self, method: str, url: str, body: bytes) -> TapeExchange:
        source, is_login = self._key
        at = round(time.monotonic() - self._began, 6)
        job = JOB.get()
        entry = TapeExchange(job, method, url, key_source=source, is_login=is_login, at=at)
        if self.is_open:
            self._sent.append((entry, body))
            self._sent_size += len(body)
        if self._sent_size > _MOST_SENT:
            self._describe_requests()
        self._calls[job] = entry
        self._add_entry(entry)
        return entry

    def _describe_requests(self) -> None:
        """Note what each request has in common with the one before, its rest and its digest. What
        both begin with is hashed once."""
        last, hasher, hashed, end = self.last_request, hashlib.sha256(), 0, 0
        for entry, body in self._sent:
            same = count_common(last, body, len(last) - end)
            end = len(last) - same
            if same < hashed:
                hasher, hashed = hashlib.sha256(), 0
            hasher.update(body[hashed:same])
            hashed, whole = same, hasher.copy()
            entry.url, entry.same, entry.request = _strip_url(entry.url), same, body[same:]
            whole.update(entry.request)
            entry.digest = whole.hexdigest()
            last = body
        self.last_request = last
        self._sent.clear()
        self._sent_size = 0

    def note_response(
        self, entry: TapeExchange, status: int, headers: Mapping[str, str], about: tuple[str, str]
    ) -> None:
        entry.status = status
        entry.content_type, entry.host = about
        self._headers.append((entry, headers))

    def note_read(self, entry: TapeExchange, data: bytes) -> None:
        if not data:
            entry.is_complete = True
            return
        self._size += len(data)
        if self._size > MAX_BYTES:
            entry.is_truncated = True
        elif self.is_open:
            self._reads.append((entry, data, time.monotonic()))

    def note_failure(self, failure: Failure) -> None:
        """Note why the last call failed where its response does not say it."""
        call = self._calls.get(JOB.get())
        if call is None:
            source, is_login = self._key
            at = round(time.monotonic() - self._began, 6)
            call = TapeExchange(JOB.get(), key_source=source, is_login=is_login, at=at)
            self._add_entry(call)
        elif not (call.is_cut or call.is_truncated):
            call.retry_after = failure.retry_after
            return
        call.failure = failure
        call.is_cut = False

    def note_key(self, source: str, *, is_login: bool) -> None:
        """Note the credential of the next call."""
        self._calls[JOB.get()] = None
        self._key = (source, is_login)

    def note_choice(self, name: str, value: Any) -> None:
        self._add_entry(TapeChoice(name, value, JOB.get()))

    def finish_entries(self) -> list[TapeEntry]:
        """End the recording; all entries, each with the headers and the body that were received."""
        self.is_open = False
        self._describe_requests()
        for entry, headers in self._headers:
            pairs = [(_choose_header(name), value) for name, value in headers.items()]
            entry.headers = {name: value for name, value in pairs if name}
        bodies: dict[int, list[bytes]] = {}
        for entry, data, at in self._reads:
            bodies.setdefault(id(entry), []).append(data)
            entry.sizes.append(len(data))
            entry.times.append(round(at - self._began - entry.at, 6))
        for found in self.entries:
            if isinstance(found, TapeExchange):
                found.body = b"".join(bodies.get(id(found), ()))
        return self.entries

    def _add_entry(self, entry: TapeEntry) -> None:
        if self.is_open:
            self.entries.append(entry)


TAPE: ContextVar[TurnTape | None] = ContextVar("tape", default=None)
"""The tape of the turn that runs in this task."""
CHANCE: ContextVar[Random | None] = ContextVar("chance", default=None)
"""Where random numbers of a recorded turn come from."""
JOB: ContextVar[str] = ContextVar("job", default="")
"""The auxiliary job that this task does now."""


@contextmanager
def mark_job(job: str) -> Iterator[None]:
    """Mark what is recorded inside the block as part of an auxiliary job."""
    token = JOB.set(job)
    try:
        yield
    finally:
        JOB.reset(token)


def draw_hex(count: int) -> str:
    """So many random bytes as hexadecimal digits; a replay draws the same again."""
    chance = CHANCE.get()
    return (urandom(count) if chance is None else chance.randbytes(count)).hex()


def note_step() -> None:
    """Count a step on the tape of this task, if there is one."""
    if (tape := TAPE.get()) is not None:
        tape.steps += 1


def note_choice(name: str, value: Any) -> None:
    """Put a decision on the tape of this task, if there is one."""
    if (tape := TAPE.get()) is not None:
        tape.note_choice(name, value)


def note_failure(failure: Failure) -> None:
    """Put the failure of a call on the tape of this task, if there is one."""
    if (tape := TAPE.get()) is not None:
        tape.note_failure(failure)


@lru_cache(64)
def _strip_url(url: str) -> str:
    """The address without user and query."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


@lru_cache(256)
def _choose_header(name: str) -> str:
    """The name under which a response header is kept; empty: it is not."""
    name = name.lower()
    return name if name in _HEADERS or "ratelimit" in name else ""


def count_common(old: bytes, new: bytes, guess: int = 0) -> int:
    """How many bytes both begin with; quick where it is as many as guessed."""
    low, high = 0, min(len(old), len(new))
    if 0 < guess < high and old[:guess] == new[:guess]:
        if old[guess] != new[guess]:
            return guess
        low = guess
    if old[:high] == new[:high]:
        return high
    while low + 1 < high:
        middle = (low + high) // 2
        if old[low:middle] == new[low:middle]:
            low = middle
        else:
            high = middle
    return low + (old[low : low + 1] == new[low : low + 1] and high > low + 1)
