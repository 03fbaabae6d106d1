"""The process itself: its signals, its limits, and the secrets in its memory."""

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def signal_exit_code(number: int) -> int:
    """130 for SIGINT, 143 for SIGTERM, 129 for SIGHUP."""
    return 128 + number


class SignalHandler:
    """The first signal asks the turn to stop, the second ends the process at once."""

    def __init__(self) -> None:
        self.received = 0
        self.stop: Callable[[], object] = lambda: None
        """Called on the first signal."""

    def exit_on_signal(self, *, has_prompt: bool) -> None:
        """Until the event loop runs, nothing is stored and nothing is running: a signal exits.
        Where keys are read (`has_prompt`), Ctrl-C stays an exception; elsewhere one could be lost
        on its way, or crash an extension module that it interrupts."""
        for number in STOP_SIGNALS[has_prompt:]:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, lambda number, _: os._exit(signal_exit_code(number)))

    def attach(self, stop: Callable[[], object]) -> None:
        """Calls `stop` on a signal, from the running event loop."""
        import asyncio

        self.stop = stop
        loop = asyncio.get_running_loop()
        for number in STOP_SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
                loop.add_signal_handler(number, self._handle_signal, number)

    def _handle_signal(self, number: int) -> None:
        if self.received:
            # The supervisor ends our child processes when we are gone.
            os._exit(signal_exit_code(number))
        self.received = number
        self.stop()


def harden_process() -> None:
    """Turns off core dumps, and reading of this process's memory and environment by others, as far
    as the system allows: API keys are in there."""
    import ctypes
    import resource

    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        prctl = ctypes.CDLL(None).prctl
        prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE
    except (OSError, ValueError, AttributeError):
        return


_OTHER_FILES = 72
"""Files that a server needs besides those of its streams: database, logs, health checks, tools."""


def raise_file_limit() -> int:
    """Allows as many open files as the system does; returns how many streams that is enough for: a
    stream takes two."""
    import resource

    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return max(4, (limit - _OTHER_FILES) // 2) if limit != resource.RLIM_INFINITY else sys.maxsize


def tune_garbage_collection() -> None:
    """For a server: leaves what exists by now out of garbage collections, and makes them rare
    enough that thousands of live objects delay no request."""
    import gc

    gc.freeze()
    gc.set_threshold(2000, 10, 50)
    gc.enable()
