"""The entries of a recorded turn as they are played: each once, in order, per job."""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from hermes.batch.replay.difference import Difference, compare_bytes
from hermes.core.errors import Failure
from hermes.llm.http.tape import JOB, TapeChoice, TapeEntry, TapeExchange

INTERRUPT = "interrupt"
_SUMMARY_JOB = "compression"
"""The auxiliary job that is part of a turn; others run inside tools or beside it."""


class PlayedTape:
    """Hands out what was recorded of one turn. `stop_turn` ends the turn that is played."""

    def __init__(
        self,
        entries: Iterable[TapeEntry],
        stop_turn: Callable[[], None],
        last_request: bytes = b"",
    ) -> None:
        self.steps = 0
        """Steps begun, of all turns played so far."""
        self._turn_steps = 0
        self.difference: Difference | None = None
        self.is_interrupted = False
        self._stop_turn = stop_turn
        self._requests: dict[int, bytes] = {}
        self._queues: dict[str, deque[TapeEntry]] = {}
        self._last: dict[str, TapeExchange] = {}
        self.last_request = last_request
        """The last request of the turn, from which the next one's are told apart."""
        for entry in entries:
            self._queues.setdefault(entry.job, deque()).append(entry)
            if isinstance(entry, TapeExchange) and entry.digest:
                whole = self.last_request[: entry.same] + entry.request
                self.last_request = self._requests[id(entry)] = whole

    def peek(self) -> TapeEntry | None:
        """The next entry of the job that this task does."""
        queue = self._queues.get(JOB.get())
        return queue[0] if queue else None

    def take_choice(self, name: str) -> TapeChoice | None:
        """The next entry if it is the decision with this name."""
        entry = self.peek()
        if not isinstance(entry, TapeChoice) or entry.name != name:
            return None
        self._queues[JOB.get()].popleft()
        return entry

    def take_unsent(self) -> TapeExchange | None:
        """The next entry if it is a call that failed before it was sent."""
        entry = self.peek()
        if not isinstance(entry, TapeExchange) or entry.digest or entry.failure is None:
            return None
        self._queues[JOB.get()].popleft()
        return entry

    async def take_exchange(self, method: str, url: str, body: bytes) -> TapeExchange:
        """The recorded response to this request, which must be the recorded request."""
        entry = self.peek()
        if not isinstance(entry, TapeExchange):
            if self.is_interrupt_next:  # it came before anything was sent
                self.interrupt_turn()
                await self.wait_stopped()
            await self.fail("calls", b"", f"{method} {url}".encode())
        self._queues[JOB.get()].popleft()
        self._last[JOB.get()] = entry
        if hashlib.sha256(body).hexdigest() != entry.digest:
            recorded = self._requests.get(id(entry), b"")
            await self.fail("request", recorded, body)
        return entry

    def find_retry_after(self, failure: Failure) -> float | None:
        """The wait that the failure of the last call stated then."""
        last = self._last.get(JOB.get())
        return failure.retry_after if last is None or last.failure else last.retry_after

    @property
    def is_interrupt_next(self) -> bool:
        """Whether nothing is left to play but the interruption of the turn."""
        main = self._queues.get("")
        if main is None or len(main) != 1 or self._queues.get(_SUMMARY_JOB):
            return False
        return _is_interrupt(main[0])

    def begin_step(self) -> bool:
        """Count a step; False: the turn was interrupted before it."""
        entry = self._queues[""][0] if self.is_interrupt_next else None
        if isinstance(entry, TapeChoice) and entry.value == self._turn_steps:
            return False
        self._turn_steps += 1
        self.steps += 1
        return True

    @property
    def left_exchanges(self) -> list[TapeExchange]:
        """Calls of the conversation that were recorded and not made again."""
        queue = self._queues.get("", deque())
        return [entry for entry in queue if isinstance(entry, TapeExchange)]

    def interrupt_turn(self) -> None:
        """Interrupt the turn as it was interrupted then."""
        if not self.is_interrupted:
            self.is_interrupted = True
            self._stop_turn()

    def note_difference(self, kind: str, recorded: bytes, replayed: bytes) -> None:
        """Note the first difference and stop the turn."""
        if self.difference is None:
            self.difference = compare_bytes(self.steps, kind, recorded, replayed)
            self._stop_turn()

    async def fail(self, kind: str, recorded: bytes, replayed: bytes) -> NoReturn:
        """Note a difference and wait until the turn is stopped."""
        self.note_difference(kind, recorded, replayed)
        await self.wait_stopped()

    async def wait_stopped(self) -> NoReturn:
        """Wait for the cancellation that was asked for."""
        await asyncio.Event().wait()
        raise AssertionError("unreachable")


def _is_interrupt(entry: Any) -> bool:
    return isinstance(entry, TapeChoice) and entry.name == INTERRUPT
