"""One live conversation: an actor with an inbox and at most one running turn."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator
from typing import TypeAlias

from hermes.agent.loop import CutTurn, run_turn
from hermes.agent.turn import Agent, Turn, TurnMode
from hermes.app.live.interactions import Interactions
from hermes.app.session_host import SessionHost, SessionSettings, SharedServices
from hermes.app.transcript import (
    Transcript,
    find_personality,
    note_personality,
    note_plan_mode,
)
from hermes.config.schema import BusyMode
from hermes.core.channel import Broadcast, Channel, EventSink
from hermes.core.events import TurnEnd, TurnEvent, TurnResult
from hermes.core.lifecycle import run_shielded
from hermes.core.message import Media, Message, clean_message, user_message
from hermes.core.redaction.log_context import SESSION
from hermes.core.services import Services
from hermes.core.tool import Workspace

log = logging.getLogger(__name__)

Pending: TypeAlias = tuple[Message | None, "asyncio.Future[TurnResult]"]
"""A message to answer and its result; None: the last message of the history, again."""
_INTERRUPTED = TurnResult("interrupted", error="Interrupted.", error_code="interrupted")


class Session:
    """`submit` never waits; messages are answered one at a time, in order. The worker task lives
    only while there is something to do, so an idle session costs next to nothing."""

    __slots__ = (
        "_closed",
        "_cut",
        "_events",
        "_has_ended",
        "_interrupted",
        "_personality",
        "_queue",
        "_run",
        "_spawn",
        "_turn",
        "_unread_guidance",
        "_worker",
        "host",
        "interactions",
        "options",
        "services",
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
        self.services = services
        """What its tools share."""
        self._events = Broadcast()
        self.transcript = transcript
        self.interactions = Interactions(self._events.put)
        self.host = SessionHost(
            shared, settings, transcript, workspace, services, self.interactions
        )
        self._spawn = shared.spawn_task
        self._queue: deque[Pending] = deque()
        self._turn: asyncio.Task[TurnResult] | None = None
        self._run: Turn | None = None
        """What the loop has begun for it."""
        self._worker: asyncio.Task[None] | None = None
        self._interrupted = False
        self._has_ended = False
        """Whether the answer is complete; its turn may still have things to store."""
        """Whether the running turn was told to stop."""
        self._unread_guidance: list[str] = []
        """Guidance that the last turn had not read when it was interrupted."""
        self._personality: str | None = None
        """How the model was told to speak; None: it is not known yet."""
        self._closed = False
        self._cut: CutTurn | None = None

    @property
    def id(self) -> str:
        return self.transcript.id

    @property
    def agent(self) -> Agent:
        return self.host.agent

    @property
    def is_busy(self) -> bool:
        return self._turn is not None

    @property
    def is_steerable(self) -> bool:
        """Whether guidance is read by the running turn, or answered right after it."""
        if self._turn is None or self._turn.done():
            return False
        return not (self._has_ended or self._interrupted)

    @property
    def is_starting(self) -> bool:
        """A message was accepted, and its turn has not begun."""
        return self._turn is None and bool(self._queue)

    def submit(self, message: Message, busy: BusyMode = "queue") -> asyncio.Future[TurnResult]:
        """The result of the turn that answers the message, or of the turn that it steers."""
        message = self._add_personality(clean_message(message))
        message = note_plan_mode(message, planning=self.options.plan)
        if self._turn is not None and not self._has_ended and busy == "steer":
            self.host.pending_steer.append(message.text)
            return asyncio.shield(self._turn)
        if busy == "interrupt":
            self.interrupt()
        return self._enqueue(message)

    def _add_personality(self, message: Message) -> Message:
        if self._personality is None:
            self._personality = find_personality(self.transcript.history.messages)
        wanted = self.options.personality
        if wanted == self._personality:
            return message
        self._personality = wanted
        return note_personality(message, wanted)

    def continue_turn(self, cut: CutTurn | None = None) -> asyncio.Future[TurnResult]:
        """Go on with the turn that the end of a process cut off. Tools whose outcome is unknown do
        not run again."""
        self._cut = cut
        return self._enqueue(None)

    def _enqueue(self, message: Message | None) -> asyncio.Future[TurnResult]:
        future: asyncio.Future[TurnResult] = asyncio.get_running_loop().create_future()
        self._queue.append((message, future))
        if self._worker is None:
            self._worker = self._spawn(self._run_queue(), f"session {self.id}")
        return future

    def interrupt(self) -> None:
        """Stop the running turn; what it streamed is kept. Guidance it has not read is dropped,
        unless the next turn is one of `stream_turn`."""
        if self._turn is not None:
            self._interrupted = True
            self._unread_guidance += self.host.pending_steer
            self.host.pending_steer.clear()
            self._turn.cancel()

    def take_unread_guidance(self) -> list[str]:
        """What interrupted turns had not read, for whoever submits it again."""
        unread, self._unread_guidance = self._unread_guidance, []
        return unread

    def stop(self) -> None:
        """Stop the running turn and drop the queued messages."""
        for _, future in self._queue:
            future.cancel()
        self._queue.clear()
        self.interrupt()

    def apply_settings(self, settings: SessionSettings) -> None:
        """Continue with other settings from the next model call on."""
        self.options = settings.options
        self.host.apply_settings(settings)

    def subscribe_events(self) -> Channel:
        """The events from now on until the session is closed; a slow reader gets text in larger
        pieces."""
        return self._events.subscribe()

    def attach_sink(self, sink: EventSink) -> None:
        """Hand the events from now on to `sink` as they happen, until the session is closed."""
        self._events.attach_sink(sink)

    async def wait_until_idle(self) -> None:
        """Wait for the turns of all messages, and those that answer guidance."""
        while self._worker is not None and not self._worker.done():
            await asyncio.wait({self._worker})

    async def stream_turn(self, message: Message) -> AsyncGenerator[TurnEvent, None]:
        """The events of the turn that answers a message, after earlier turns have ended, and of the
        turn that answers guidance it did not read. Guidance that an interrupted turn did not read
        comes before the message. Closing the generator stops the turn."""
        await self.wait_until_idle()
        if self._closed:
            raise RuntimeError("The session is closed.")
        if self._unread_guidance:
            media = [part for part in message.parts if isinstance(part, Media)]
            message = user_message("\n\n".join((*self._unread_guidance, message.text)), *media)
        events = self.subscribe_events()
        answer = self.submit(message)
        answer.add_done_callback(lambda _: _report_cancelled_answer(answer, events))
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

    async def compress(self, *, focus: str = "") -> bool:
        """Compress on the user's request, between two turns; whether anything became shorter.
        `focus`: what the summary must keep above all."""
        if self._turn is not None or not self.transcript.stored:
            return False
        return await self.host.compress(focus)

    async def close(self) -> None:
        """Stop the running turn, close what its tools opened, and end all subscriptions."""
        if self._closed:
            return
        self._closed = True
        self.stop()
        if self._worker is not None:
            await asyncio.wait({self._worker})
        await self.host.close()
        self._events.close()

    async def _run_queue(self) -> None:
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

    async def _answer_message(self, message: Message | None) -> TurnResult:
        recorded = message is not None and self.transcript.ends_with(message)
        if message is None or recorded:
            return await self._run_recorded(message, "again" if recorded else "continue")
        news, hooks, recall = self.host.news, self.host.hooks, self.host.recall
        hooked, prompt = None, message.text
        if recall is not None:
            message = await recall.add_facts(message)
        if hooks is not None:
            from hermes.app.extensions.turn_hooks import HookedTurn

            hooked = HookedTurn(hooks, self.agent, prompt)
            message = await hooked.begin_turn(message, is_first=not self.transcript.stored)
        if news is not None:
            message = await news.add_news(message)
        result = await self._run_recorded(message, "new")
        if news is not None:
            await run_shielded(news.settle_news())
        if recall is not None:
            await run_shielded(recall.record_turn(prompt, result))
        if hooked is not None:  # it has ended and cannot be interrupted
            await run_shielded(hooked.end_turn(result))
        return result

    async def _run_recorded(self, message: Message | None, mode: TurnMode) -> TurnResult:
        """Run a turn, and keep its tape if sessions are recorded."""
        agent, turn, tape = self.agent, self.host.begin_turn(message), self.host.tape
        self._run = turn
        if tape is not None:
            is_opened = self.host.turn_count == 1
            tape.begin_turn(agent, turn, self.transcript, mode, is_opened=is_opened)
        result = await run_turn(agent, turn, message, recorded=mode == "again", cut=self._cut)
        self._has_ended = True
        if tape is not None:
            await run_shielded(tape.end_turn(agent, result))
        return result

    async def _run_turn(self, message: Message | None) -> TurnResult:
        SESSION.set(self.id)
        self._interrupted = self._has_ended = False
        self._unread_guidance.clear()
        self._turn = asyncio.ensure_future(self._answer_message(message))
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
            reason = self.agent.redactor.redact(repr(error))[:120]
            cause = (
                f"Internal error ({reason}). Everything recorded before it is kept; the log has "
                "the details."
            )
            result = TurnResult(
                "failed",
                error=f"{cause} Send the message again.",
                error_code="internal",
                cause=cause,
                effects=self._run is not None and self._run.effects,
            )
        finally:
            self._turn = self._run = None
            self.host.end_turn()
        self._events.put(TurnEnd(result))
        return result


def _report_cancelled_answer(answer: asyncio.Future[TurnResult], events: Channel) -> None:
    """End the events of a message that was dropped before its turn began."""
    if answer.cancelled():
        events.put(TurnEnd(_INTERRUPTED))
