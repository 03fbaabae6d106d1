"""The time limits of a call: until its first event, between events, and in total."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct, structs

from hermes.core.errors import Failure, Kind, ProviderError

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")
LAG = 0.05
"""A timer later than this many seconds means that this process did not run."""


class Timeouts(Struct, frozen=True):
    """Seconds; 0 turns a limit off."""

    ttfb: float = 45.0
    """Until the first event."""
    stale: float = 180.0
    """Between events; from the start if there is no limit on the first one."""
    total: float = 1800.0


class Watchdog:
    """Uses one timer that is set again when it fires too early, so that an event costs no more than
    reading the clock. It cancels only waits of this call; time the consumer takes does not count
    as silence."""

    def __init__(self, limits: Timeouts, host: str) -> None:
        self._limits = limits
        self._patience = limits.stale
        self._host = host
        import asyncio

        self._loop = asyncio.get_running_loop()
        self._began = self._last = self._loop.time()
        self._flows = not limits.ttfb
        self._task: asyncio.Task[object] | None = None
        self._fired = ""
        self._handle: asyncio.TimerHandle | None = None
        self._due = self._excused = 0.0
        self._set_timer()

    def report_event(self) -> None:
        """Restart the limit on silence."""
        self._last = self._loop.time()
        if not self._flows:
            self._flows = True
            self._set_timer()

    def shorten_silence(self, seconds: float) -> None:
        """Allow only this much silence from now on."""
        if not self._limits.stale or self._limits.stale > seconds:
            self._limits = structs.replace(self._limits, stale=seconds)
            self._set_timer()

    def restore_silence(self) -> None:
        """Undo `shorten_silence`."""
        self._limits = structs.replace(self._limits, stale=self._patience)
        self._set_timer()

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    async def wait(self, what: Awaitable[T]) -> T:
        """The result of `what`; ProviderError(STALLED) when a limit is reached first."""
        import asyncio

        task = self._task = asyncio.current_task()
        assert task is not None
        before = task.cancelling()
        try:
            if self._fired:
                task.cancel()
            return await what
        except asyncio.CancelledError:
            if self._fired and task.uncancel() <= before:
                raise ProviderError(Failure(Kind.STALLED, self._fired)) from None
            raise
        finally:
            self._task = None

    def _set_timer(self) -> None:
        self.stop()
        dues = []
        if self._limits.total:
            dues.append(self._began + self._limits.total)
        if not self._flows:
            dues.append(self._began + self._limits.ttfb)
        elif self._limits.stale:
            dues.append(self._last + self._limits.stale)
        if dues:
            self._due = min(dues)
            self._handle = self._loop.call_at(self._due, self._on_timer)

    def _on_timer(self) -> None:
        self._handle = None
        now = self._loop.time()
        limits = self._limits
        late = now - self._due
        if late > LAG and self._last != self._excused:  # an event may be waiting to be read
            self._began += 2 * late
            self._last = self._excused = self._last + 2 * late
            return self._set_timer()
        if self._task is None:
            self._last = now
        if limits.total and now >= self._began + limits.total:
            self._fired = f"{self._host} did not finish within {limits.total:g} s (request timeout)"
        elif not self._flows:
            self._fired = f"{self._host} sent nothing for {limits.ttfb:g} s (ttfb timeout)"
        elif limits.stale and now >= self._last + limits.stale:
            self._fired = f"{self._host} went silent for {limits.stale:g} s (stale timeout)"
        if self._fired and self._task is not None:
            self._task.cancel()
        elif not self._fired:
            self._set_timer()
