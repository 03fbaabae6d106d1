"""Keys that are not used for a while: cooldowns shared by all processes, and short pauses."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Protocol, TypeAlias

import msgspec
from msgspec import Struct

from hermes.config.paths import make_private_folder
from hermes.config.private_files import open_lock, replace_file, try_lock

_LOCK_TRIES = 50
_MARGIN = 1.03
"""Calls start so much further apart: on their way to the provider some catch up with others."""
PoolKey: TypeAlias = tuple[str, str]
"""Base URL and key: what a provider counts its limits by."""


class Cooldown(Struct, frozen=True):
    until: float
    why: str


class LoginRow(Protocol):
    """A login that all nodes share, while this one alone may change it."""

    body: bytes
    """As it was last saved; empty: never."""

    async def save(self, body: bytes) -> None: ...


class SharedKeys(Protocol):
    """What the nodes of a cluster tell each other of keys, which are known by their digests."""

    def tell_nodes(self, digest: str, kind: str, seconds: float, why: str) -> None:
        """`kind`: cooldown or pause. Never waits."""

    async def ask_nodes(self, digests: Sequence[str]) -> list[tuple[str, str, float, str]]:
        """What others have told: digest, kind, seconds left, and why."""

    async def reserve_start(self, digest: str, interval: float) -> float:
        """The seconds after which a call may be made, so that all nodes together make one in each
        interval."""

    def hold_login(self, name: str) -> AbstractAsyncContextManager[LoginRow | None]:
        """Renew a login while no other node does; None: logins are not shared."""


class Cooldowns:
    """One per process. Cooldowns are written to the file at once and read again whenever another
    process has written it; only the owner can read the file, and keys are stored as digests. A
    file that cannot be used does no harm: the limit is hit again. Pauses stay in this process."""

    def __init__(self, file: Path | None = None, clock: Callable[[], float] = time.time) -> None:
        self._file = file
        self._clock = clock
        self._known: dict[str, Cooldown] = {}
        self._version: tuple[int, int] | None = None
        """Inode and time of the file as it was last read."""
        self._pauses: dict[PoolKey, tuple[float, object]] = {}
        """Until when a key is paused, and the task that waits for that on its own."""
        self._starts: dict[PoolKey, float] = {}
        """When the next call with a key may be made."""
        self.shared: SharedKeys | None = None
        """None: no other machine uses the keys of this one."""

    async def ask_nodes(self, pool_keys: Iterable[PoolKey]) -> None:
        """Learn what other nodes know of these keys."""
        if self.shared is None:
            return
        digests = {_hash_pool_key(key): key for key in pool_keys}
        for digest, kind, seconds, why in await self.shared.ask_nodes(list(digests)):
            if kind == "pause":
                self._note_pause(digests[digest], seconds, None)
            else:
                self._known[digest] = Cooldown(self._clock() + seconds, why)

    def find(self, pool_key: PoolKey) -> Cooldown | None:
        if self._file_version() != self._version:
            self._known = {**self._known, **self._read_file()}
        return self._known.get(_hash_pool_key(pool_key)) if self._known else None

    def seconds_left(self, pool_key: PoolKey) -> float:
        """Seconds until this key is worth another try; 0: it is now."""
        found = self.find(pool_key)
        return max(0.0, found.until - self._clock()) if found is not None else 0.0

    def start(self, pool_key: PoolKey, seconds: float, why: str) -> None:
        now = self._clock()
        digest, cooldown = _hash_pool_key(pool_key), Cooldown(now + seconds, why)
        self._known[digest] = cooldown
        if self.shared is not None:
            self.shared.tell_nodes(digest, "cooldown", seconds, why)
        if self._file is None:
            return
        with suppress(OSError):
            make_private_folder(self._file.parent)
            with _hold_lock(self._file):
                known = {**self._known, **self._read_file(), digest: cooldown}
                self._known = {key: found for key, found in known.items() if found.until > now}
                replace_file(self._file, msgspec.json.encode(self._known))
                self._version = self._file_version()

    async def reserve_start(self, pool_key: PoolKey, per_minute: int) -> float:
        """The seconds after which a call may be made; calls are at even intervals."""
        interval = _MARGIN * 60.0 / per_minute
        if self.shared is not None:
            return await self.shared.reserve_start(_hash_pool_key(pool_key), interval)
        now = time.monotonic()
        start = max(now, self._starts.get(pool_key, 0.0))
        self._starts[pool_key] = start + interval
        return start - now

    def pause(self, pool_key: PoolKey, seconds: float, waiter: object) -> None:
        """Make every caller but `waiter`, who waits anyway, wait before using this key."""
        self._note_pause(pool_key, seconds, waiter)
        if self.shared is not None:
            self.shared.tell_nodes(_hash_pool_key(pool_key), "pause", seconds, "")

    def _note_pause(self, pool_key: PoolKey, seconds: float, waiter: object) -> None:
        until = time.monotonic() + seconds
        if until > self._pauses.get(pool_key, (0.0, None))[0]:
            self._pauses[pool_key] = (until, waiter)

    def pause_left(self, pool_key: PoolKey, caller: object) -> float:
        """Seconds this caller has to wait; 0: none."""
        until, waiter = self._pauses.get(pool_key, (0.0, None))
        return max(0.0, until - time.monotonic()) if waiter is not caller else 0.0

    def _read_file(self) -> dict[str, Cooldown]:
        self._version = self._file_version()
        if self._version is not None and self._file is not None:
            with suppress(OSError, ValueError):
                return msgspec.json.decode(self._file.read_bytes(), type=dict[str, Cooldown])
        return {}

    def _file_version(self) -> tuple[int, int] | None:
        if self._file is not None:
            with suppress(OSError):
                found = self._file.stat()
                return found.st_ino, found.st_mtime_ns
        return None


@contextmanager
def _hold_lock(file: Path) -> Iterator[None]:
    """Lock the file, so that two processes that write at once keep both entries. After a tenth of
    a second it goes on without the lock."""
    handle = open_lock(file.with_name(f".{file.stem}.lock"))
    try:
        for _ in range(_LOCK_TRIES):
            if try_lock(handle):
                break
            time.sleep(0.002)
        yield
    finally:
        os.close(handle)


def _hash_pool_key(pool_key: PoolKey) -> str:
    return blake2b("\0".join(pool_key).encode(), digest_size=16).hexdigest()
