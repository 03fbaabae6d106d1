"""One live conversation: an actor with an inbox and at most one running turn."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator
from typing import TypeAlias

from hermes.agent.loop import run_turn
from hermes.agent.turn import Agent
from hermes.app.interactions import Busy, Interactions
from hermes.app.session_host import SessionHost, SessionSettings, SharedServices
from hermes.app.transcript import Transcript
from hermes.core.channel import Broadcast, Channel
from hermes.core.events import TurnEnd, TurnEvent, TurnResult
from hermes.core.log_context import SESSION
from hermes.core.message import Message, clean_message, user_message
from hermes.core.services import Services
from hermes.core.tool import Workspace

log = logging.getLogger(__name__)

Pending: TypeAlias = tuple[Message, "asyncio.Future[TurnResult]"]
_INTERRUPTED = TurnResult("interrupted", error="Interrupted.", error_code="interrupted")


class Session:
    """`submit` never waits; messages are answered one at a time, in order. The worker task lives
    only while there is something to do, so an idle session costs next to nothing."""

    __slots__ = (
        "_closed",
        "_events",
        "_queue",
        "_spawn",
        "_turn",
        "_worker",
        "host",
        "interactions",
        "options",
        "transcript",
    )

    def __init__(
        self,
        shared: SharedServices,
        settings: SessionSettings,
        transcript: Transcript,
        workspace: Workspace,
        services: Services,
    ) -> None:
        self.options = settings.options
        self._events = Broadcast()
        self.transcript = transcript
        self.interactions = Interactions(self._events.put)
        self.host = SessionHost(
            shared, settings, transcript, workspace, services, self.interactions
        )
        self._spawn = shared.spawn
        self._queue: deque[Pending] = deque()
        self._turn: asyncio.Task[TurnResult] | None = None
        self._worker: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def id(self) -> str:
        return self.transcript.id

    @property
    def agent(self) -> Agent:
        return self.host.agent

    @property
    def busy(self) -> bool:
        return self._turn is not None

    @property
    def starting(self) -> bool:
        """A message was taken, and its turn has not begun."""
        return self._turn is None and bool(self._queue)

    def submit(self, message: Message, busy: Busy = "queue") -> asyncio.Future[TurnResult]:
        """The result of the turn that answers it; for guidance, of the turn it joins."""
        message = clean_message(message)
        if self._turn is not None and busy == "steer":
            self.host.steer.append(message.text)
            return asyncio.shield(self._turn)
        if busy == "interrupt":
            self.interrupt()
        future: asyncio.Future[TurnResult] = asyncio.get_running_loop().create_future()
        self._queue.append((message, future))
        if self._worker is None:
            self._worker = self._spawn(self._work(), f"session {self.id}")
        return future

    def interrupt(self) -> None:
        """Stop the running turn; what it streamed stays. Guidance nobody consumed is dropped."""
        if self._turn is not None:
            self.host.steer.clear()
            self._turn.cancel()

    def stop(self) -> None:
        """Stop the running turn, and forget the messages that wait for theirs."""
        for _, future in self._queue:
            future.cancel()
        self._queue.clear()
        self.interrupt()

    def adapt(self, settings: SessionSettings) -> None:
        """Continue with other settings from the next model call on."""
        self.options = settings.options
        self.host.adapt(settings)

    def events(self) -> Channel:
        """The events from now on, until the session is closed; a slow reader sees text in larger
        pieces."""
        return self._events.subscribe()

    async def stream(self, message: Message) -> AsyncGenerator[TurnEvent, None]:
        """The events of the turn that answers a message, once earlier turns have ended, and of the
        turn that answers guidance it left over. Closing the generator stops the turn."""
        while self._worker is not None and not self._worker.done():
            await asyncio.wait({self._worker})
        if self._closed:
            raise RuntimeError("The session is closed.")
        events = self.events()
        answer = self.submit(message)
        answer.add_done_callback(lambda _: _end_unbegun(answer, events))
        ended = False
        try:
            async for event in events:
                ended = isinstance(event, TurnEnd) and not event.result.pending_steer
                yield event
                if ended:
                    return
        finally:
            events.close()
            if not ended and not answer.done():
                self.stop()

    async def compress(self) -> bool:
        """Because the user wants it, between two turns; whether there was anything to gain."""
        if self._turn is not None or not self.transcript.stored:
            return False
        return await self.host.compress()

    async def close(self) -> None:
        """Interrupt, let the turn end, close what tools kept open, and end all subscriptions."""
        if self._closed:
            return
        self._closed = True
        self.stop()
        if self._worker is not None:
            await asyncio.wait({self._worker})
        await self.host.close()
        self._events.close()

    async def _work(self) -> None:
        try:
            while self._queue:
                message, future = self._queue.popleft()
                result = await self._run_turn(message)
                if not future.done():
                    future.set_result(result)
                if result.pending_steer:
                    follow = asyncio.get_running_loop().create_future()
                    self._queue.appendleft((user_message(result.pending_steer), follow))
        finally:
            self._worker = None

    async def _run_turn(self, message: Message) -> TurnResult:
        SESSION.set(self.id)
        turn = self.host.begin_turn(message)
        self._turn = asyncio.ensure_future(run_turn(self.agent, turn, message))
        try:
            await asyncio.wait({self._turn})
            return self._turn.result()
        except asyncio.CancelledError:
            if not self._turn.done():  # the worker itself is being shut down
                self._turn.cancel()
                await asyncio.wait({self._turn})
                raise
            result = _INTERRUPTED
        except Exception as error:
            log.exception("turn of session %s crashed", self.id)
            result = TurnResult(
                "failed",
                error=f"Internal error ({self.agent.redactor.redact(repr(error))[:120]}). What was "
                "recorded before it is kept; the log has the details. Send the message again.",
                error_code="internal",
            )
        finally:
            self._turn = None
            self.host.end_turn()
        self._events.put(TurnEnd(result))
        return result


def _end_unbegun(answer: asyncio.Future[TurnResult], events: Channel) -> None:
    """A message that was taken back before its turn began ends like a turn."""
    if answer.cancelled():
        events.put(TurnEnd(_INTERRUPTED))
