"""The state of the gateway for other processes: a lock, a state file, and how often it crashed."""

import os
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct, structs

from hermes.config.instances import is_locked
from hermes.config.paths import gateway_state_file, make_private_folder
from hermes.config.private_files import open_lock, replace_file, try_lock
from hermes.core.store import MailboxCounts

GatewayState: TypeAlias = Literal["starting", "running", "draining", "stopped"]
PlatformState: TypeAlias = Literal["connecting", "connected", "retrying", "fatal", "stopped"]
STALLED_SECONDS = 30.0
CRASH_SECONDS = 600.0
CRASH_COUNT = 5


class PlatformStatus(Struct):
    state: PlatformState = "connecting"
    error_code: str = ""
    error_message: str = ""
    since: float = 0.0
    last_inbound_at: float | None = None
    last_outbound_at: float | None = None


class GatewayStatus(Struct):
    """What `gateway_state.json` holds; times are Unix seconds."""

    pid: int
    gateway_state: GatewayState
    started_at: float
    updated_at: float = 0.0
    exit_reason: str = ""
    active_agents: int = 0
    crash_loop: bool = False
    platforms: dict[str, PlatformStatus] = {}
    inbox: dict[str, int] = {}
    outbox: dict[str, int] = {}
    sessions: dict[str, int] = {}
    profiles: list[str] = []

    def set_counts(self, counts: Sequence[MailboxCounts]) -> None:
        """`counts`: of each profile."""
        total = Counter[str]()
        for one in counts:
            total.update(structs.asdict(one))
        self.inbox = {name: total[name] for name in ("waiting", "running")}
        self.outbox = {name: total[name] for name in ("pending", "attempting", "failed")}


def lock_path(home: Path) -> Path:
    return home / "run" / "gateway.lock"


def write_status(home: Path, status: GatewayStatus) -> None:
    status.updated_at = time.time()
    with suppress(OSError):
        replace_file(gateway_state_file(home), msgspec.json.encode(status))


def read_status(home: Path) -> dict[str, Any] | None:
    """The last state that was written, with `running` and `stalled`; None when there is none."""
    try:
        found = msgspec.json.decode(gateway_state_file(home).read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError):
        return None
    running = find_pid(home) is not None
    age = time.time() - float(found.get("updated_at", 0))
    return {**found, "running": running, "stalled": running and age > STALLED_SECONDS}


def acquire_lock(home: Path) -> int | None:
    """The descriptor of the lock of this home's only gateway; None when another one runs."""
    path = lock_path(home)
    make_private_folder(path.parent)
    handle = open_lock(path)
    if not try_lock(handle):
        os.close(handle)
        return None
    os.ftruncate(handle, 0)
    os.pwrite(handle, str(os.getpid()).encode(), 0)
    return handle


def find_pid(home: Path) -> int | None:
    """The process id of the running gateway; what a dead one left behind means nothing."""
    path = lock_path(home)
    if not is_locked(path):
        return None
    try:
        return int(path.read_text("ascii"))
    except (OSError, ValueError):
        return None


class CrashLog:
    """The starts of the last minutes that followed an unclean end."""

    def __init__(self, home: Path) -> None:
        self._path = home / "run" / "gateway_starts.json"

    def note_start(self) -> bool:
        """Whether it has crashed so often that nothing must be resumed by itself."""
        now = time.time()
        try:
            starts = msgspec.json.decode(self._path.read_bytes(), type=list[float])
        except (OSError, msgspec.DecodeError):
            starts = []
        starts = [start for start in starts if 0 <= now - start < CRASH_SECONDS]
        with suppress(OSError):
            replace_file(self._path, msgspec.json.encode([*starts, now]))
        return len(starts) + 1 >= CRASH_COUNT

    def note_clean_end(self) -> None:
        self._path.unlink(missing_ok=True)
