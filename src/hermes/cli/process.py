"""The process itself: its signals, its last moments, and the secrets in its memory."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def exit_code(number: int) -> int:
    """130 for SIGINT, 143 for SIGTERM, 129 for SIGHUP."""
    return 128 + number


class Signals:
    """The first signal asks the turn to stop, the second one ends the process at once."""

    def __init__(self) -> None:
        self.received = 0
        self._stop: Callable[[], object] = _nothing

    def early(self) -> None:
        """Until the event loop runs nothing is stored and nothing is running: just leave."""
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, _leave)

    def attach(self, stop: Callable[[], object]) -> None:
        """From now on, on the running loop; a signal that came before counts."""
        import asyncio

        self._stop = stop
        loop = asyncio.get_running_loop()
        for number in STOPPING:
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
                loop.add_signal_handler(number, self._arrived, number)

    def redirect(self, stop: Callable[[], object]) -> None:
        self._stop = stop

    def _arrived(self, number: int) -> None:
        if self.received:
            os._exit(exit_code(number))  # whoever keeps our children ends them when we are gone
        self.received = number
        self._stop()


def _leave(number: int, frame: FrameType | None) -> None:
    os._exit(exit_code(number))


def _nothing() -> None:
    return


def harden() -> None:
    """No core dump, and no reading of our memory and environment by other processes: the keys
    are in there. What the system does not offer is left out."""
    import ctypes
    import resource

    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        prctl = ctypes.CDLL(None).prctl
        prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE
    except (OSError, ValueError, AttributeError):
        return


def many_files() -> None:
    """As many open files as the system allows: a stream takes two."""
    import resource

    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def settle_in() -> None:
    """For a process that stays and serves many: what exists by now is left out of garbage
    collections, which then come seldom enough that thousands of live objects make nobody wait."""
    import gc

    gc.freeze()
    gc.set_threshold(2000, 10, 50)
    gc.enable()
