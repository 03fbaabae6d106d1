"""Shows which processes run the schedule, and when each last looked at it."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct

from hermes.config.instances import announce_instance, list_instances

_PREFIX = "schedule-"


class LivingScheduler(Struct, frozen=True, omit_defaults=True):
    name: str
    """gateway or daemon."""
    pid: int
    age: float
    """Seconds since it last looked at the schedule."""
    node: str = ""
    """The node of a cluster that it is; then it has no pid."""

    @property
    def place(self) -> str:
        return f"on {self.node}" if self.node else f"pid {self.pid}"


class Heartbeat:
    """The time of its file says when the process last looked at the schedule."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def beat(self) -> None:
        with suppress(OSError):
            os.utime(self._file)


@contextmanager
def announce_scheduler(home: Path, name: str) -> Iterator[Heartbeat]:
    """Make this process visible as one that runs the schedule."""
    kind = f"{_PREFIX}{name}"
    with announce_instance(home, kind):
        yield Heartbeat(_find_file(home, kind, os.getpid()))


def list_schedulers(home: Path) -> list[LivingScheduler]:
    """All that are alive, the one that looked last first."""
    found = []
    for instance in list_instances(home):
        if instance.kind.startswith(_PREFIX):
            with suppress(OSError):
                file = _find_file(home, instance.kind, instance.pid)
                age = max(0.0, time.time() - file.stat().st_mtime)
                name = instance.kind.removeprefix(_PREFIX)
                found.append(LivingScheduler(name, instance.pid, age))
    return sorted(found, key=lambda scheduler: scheduler.age)


def _find_file(home: Path, kind: str, pid: int) -> Path:
    return home / "run" / f"{kind}-{pid}.here"
