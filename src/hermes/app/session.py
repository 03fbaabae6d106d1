"""One live conversation: an actor that owns its history, its inbox and at most one turn."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import structs

from hermes.agent.compression.compressor import Compressor
from hermes.agent.loop import run_turn
from hermes.agent.turn import Agent, Reader, Turn, sees_images
from hermes.app.approvals import Approvals, Safety, Seams
from hermes.app.client_history import Handoff
from hermes.app.interactions import Busy, People
from hermes.app.metering import Meter
from hermes.app.session_chain import go_on
from hermes.app.titles import first_words
from hermes.core.channel import Channel
from hermes.core.errors import StoreError
from hermes.core.events import Answer, Notice, TurnEnd, TurnEvent, TurnResult
from hermes.core.history import History
from hermes.core.ledger import Account
from hermes.core.log_context import SESSION
from hermes.core.message import Message, ToolCall, cleaned, user
from hermes.core.store import SessionMeta, State
from hermes.core.taint import Source, Taint
from hermes.core.tool import Tool, ToolContext, Verdict
from hermes.core.untrusted_text import mark_of

if TYPE_CHECKING:
    from hermes.app.runtime import Options, Runtime

log = logging.getLogger(__name__)

_PURPOSES = frozenset({"cron", "subagent"})
"""Sources that are a purpose of their own in the ledger."""
Pending: TypeAlias = tuple[Message, "asyncio.Future[TurnResult]"]


class Session:
    """`submit` never waits; messages are answered one at a time, in order. The worker task lives
    only while there is something to do, so an idle session costs next to nothing."""

    __slots__ = (
        "_approvals",
        "_began",
        "_compressor",
        "_context",
        "_history",
        "_past",
        "_queue",
        "_runtime",
        "_saved",
        "_steer",
        "_stored",
        "_subscribers",
        "_turn",
        "_unnamed",
        "_worker",
        "account",
        "agent",
        "brought",
        "budget",
        "instructions",
        "meta",
        "options",
        "people",
        "taint",
    )

    def __init__(
        self,
        runtime: Runtime,
        agent: Agent,
        meta: SessionMeta,
        context: ToolContext,
        *,
        history: History | None = None,
        safety: Safety = Safety(),  # noqa: B008 - a frozen value
    ) -> None:
        self.agent = agent
        self.meta = meta
        purpose = meta.source if meta.source in _PURPOSES else "main"
        root = "" if meta.parent else meta.id
        self.budget = runtime.setup.config.budget
        self.account = Account(meta.id, root, purpose=purpose)
        """Whom its model calls are charged to; a surface adds its user, a schedule its job."""
        self.taint = meta.taint
        """What it has read so far; stored together with the result that brought it."""
        self.people = People(self._emit)
        self.options: Options | None = None
        """What it was opened with; None: with nothing in particular."""
        self._runtime = runtime
        self._context = context
        self._history = history
        self._stored = history is not None
        self._unnamed = ""
        """What was asked first, until it is answered and the conversation can have a title."""
        self._past: tuple[Message, ...] | None = ()
        """Stored together with its first message; None: nothing of it is stored."""
        self.brought: Handoff | None = None
        """The past that the caller knows: then it is not ours to replace in the store."""
        self.instructions = ""
        """Added to the system prompt while this object lives; never stored."""
        self._queue: deque[Pending] = deque()
        self._steer: list[str] = []
        self._subscribers: list[Channel] = []
        self._approvals = Approvals(
            safety,
            cwd=context.cwd,
            home=context.home,
            book=runtime.rulebook,
            seams=Seams(
                self.people.approve, lambda: self.people.present, self.consult, self._notice
            ),
            place=context.place,
        )
        self._saved = False
        """Whether this turn's checkpoint was made."""
        self._began = ("", meta.id, 0)
        """This turn's message: how it begins, in which session it stands, at which place."""
        self._compressor = Compressor(self._reader, self._go_on, lambda: self.id, runtime.once)
        self._turn: asyncio.Task[TurnResult] | None = None
        self._worker: asyncio.Task[None] | None = None

    @property
    def id(self) -> str:
        return self.meta.id

    @property
    def history(self) -> History:
        if self._history is None:
            self._history = History(mark=mark_of(self.id))
        return self._history

    @property
    def busy(self) -> bool:
        return self._turn is not None

    @property
    def background(self) -> bool:
        """Whether commands it left in the background still run: then it must not be reset."""
        return self._runtime.background.runs(self.id)

    @property
    def starting(self) -> bool:
        """A message was taken, and its turn has not begun."""
        return self._turn is None and bool(self._queue)

    @property
    def approver(self) -> bool:
        """Whether somebody answers Approval and Question events; without one the answer is no."""
        return self.people.present

    @approver.setter
    def approver(self, present: bool) -> None:
        self.people.present = present

    # -- what surfaces call ----------------------------------------------------------------

    def submit(self, message: Message, busy: Busy = "queue") -> asyncio.Future[TurnResult]:
        """The result of the turn that answers it; for guidance, of the turn it joins."""
        message = cleaned(message)
        if self._turn is not None and busy == "steer":
            self._steer.append(message.text)
            return asyncio.shield(self._turn)
        if busy == "interrupt":
            self.interrupt()
        future: asyncio.Future[TurnResult] = asyncio.get_running_loop().create_future()
        self._queue.append((message, future))
        if self._worker is None:
            self._worker = self._runtime.spawn(self._work(), f"session {self.id}")
        return future

    async def turn(self, message: Message) -> TurnResult:
        return await self.submit(message)

    def interrupt(self) -> None:
        """Stop the running turn; what it streamed stays. Guidance nobody consumed is dropped."""
        if self._turn is not None:
            self._steer.clear()
            self._turn.cancel()

    def stop(self) -> None:
        """Stop the running turn, and forget what waits for its own."""
        for _, future in self._queue:
            future.cancel()
        self._queue.clear()
        self.interrupt()

    def adapt(self, options: Options, agent: Agent, safety: Safety) -> None:
        """Go on differently from the next model call on."""
        self.options, self.agent = options, agent
        self._approvals.safety = safety
        self._context = structs.replace(self._context, sandbox=safety.mode)

    def events(self) -> Channel:
        """From now on, until the session is closed; a slow reader sees text in larger pieces."""
        channel = Channel()
        self._subscribers.append(channel)
        return channel

    def answer(self, approval_id: str, answer: Answer | bool) -> bool:
        """False when nobody waits for it, or it is none of its choices. True means: this once."""
        return self.people.answer(approval_id, answer)

    def reply(self, question_id: str, text: str | None) -> bool:
        """To a Question; None: the user will not say. False when nobody waits for it."""
        return self.people.reply(question_id, text)

    async def compress(self) -> bool:
        """Because the user wants it, between two turns; whether there was anything to gain."""
        if self._turn is not None or not self._stored:
            return False
        return await self._compressor.now(self.agent, self._new_turn())

    async def close(self) -> None:
        """Interrupt, let the turn end, close what tools kept open, and end all subscriptions."""
        self.stop()
        if self._worker is not None:
            await asyncio.wait({self._worker})
        for kept in list(self._context.state.values()):
            if hasattr(kept, "aclose"):
                await kept.aclose()
        await self._runtime.places.leave(self._context.place)
        while self._subscribers:
            self._subscribers.pop().close()
        self.people.leave()  # what points back at the session: its memory is free at once
        self._approvals = self._compressor = None  # type: ignore[assignment]

    # -- inside ----------------------------------------------------------------------------

    async def _work(self) -> None:
        try:
            while self._queue:
                message, future = self._queue.popleft()
                result = await self._run_one(message)
                if not future.done():
                    future.set_result(result)
                if result.pending_steer:
                    follow = asyncio.get_running_loop().create_future()
                    self._queue.appendleft((user(result.pending_steer), follow))
        finally:
            self._worker = None

    def _new_turn(self) -> Turn:
        return Turn(
            system=self._system(),
            history=self.history,
            record=self._record,
            emit=self._emit,
            steer=self._take_steer,
            context=self._context_for,
            absorb=self._absorb,
            sleep=self._runtime.sleep,
            learned=self._runtime.learned,
            compressor=self._compressor,
            meter=self._meter(),
            remember=self._runtime.remember,
        )

    async def _run_one(self, message: Message) -> TurnResult:
        SESSION.set(self.id)
        turn = self._new_turn()
        self._saved = False
        self._began = (first_words(message), self.id, len(self.history))
        self._turn = asyncio.ensure_future(run_turn(self.agent, turn, message))
        try:
            await asyncio.wait({self._turn})
            return self._turn.result()
        except asyncio.CancelledError:
            if not self._turn.done():  # the worker itself is being shut down
                self._turn.cancel()
                await asyncio.wait({self._turn})
                raise
            result = TurnResult(interrupted=True, error="Interrupted.", error_code="interrupted")
        except Exception as error:
            log.exception("turn of session %s crashed", self.id)
            result = TurnResult(
                failed=True,
                error=f"Internal error ({self.agent.redactor.clean(repr(error))[:120]}). What was "
                "recorded before it is kept; the log has the details. Send the message again.",
                error_code="internal",
            )
        finally:
            self._turn = None
        self._emit(TurnEnd(result))
        return result

    async def bring(self, brought: Handoff, *, stored: bool) -> None:
        """Go on from a past that the caller knows better than the store does."""
        self._history = History(await brought.recall(), mark=mark_of(self.id))
        self._stored, self.brought = stored, brought
        self._past = brought.past if brought.kept else None
        self._compressor.lazy = True

    async def _record(self, message: Message | None, state: State | None) -> None:
        if self._past is None:
            return
        store = self._runtime.store
        if message is None:
            if self._stored and state is not None:
                await store.sessions.set_state(self.id, state)
            return
        create = None
        if not self._stored:
            title = self.meta.title or first_words((*self._past, message)[0])
            self._unnamed = "" if self.meta.title else message.text
            create = structs.replace(self.meta, title=title)
        taint = self.taint
        news = taint if taint != self.meta.taint else None
        new = (*self._past, message) if create is not None else (message,)
        try:
            await store.sessions.append(self.id, new, state=state, create=create, taint=news)
        except StoreError as error:
            if error.code != "exists" or self.brought is None:
                raise  # else another turn of the same conversation was quicker
            await store.sessions.append(self.id, (message,), state=state, taint=news)
        self._stored = True
        self.meta = structs.replace(create or self.meta, taint=taint)
        if state == "idle" and (question := self._unnamed):
            self._unnamed = ""
            self._runtime.name(self, question, message.text)

    def _reader(self) -> Reader:
        window = self._runtime.auxiliary.jobs.reads("compression", self.agent)
        return Reader(partial(self.consult, "compression"), window)

    async def _go_on(self, messages: Sequence[Message]) -> History:
        """The conversation continues with these messages, in a child of this session."""
        if self.brought is not None:
            await self.brought.keep(self.history.messages, messages)
        else:
            self.meta = await go_on(self._runtime, self.meta, self.taint, messages, self.busy)
            self._context = structs.replace(self._context, session_id=self.id)
        self._history = History(messages, mark=mark_of(self.id))
        return self._history

    def _system(self) -> str:
        """A small model has a prompt of its own, and follows it less the more stands around it."""
        own = "" if self.agent.small else self.meta.system
        return "\n\n".join(filter(None, (own, self.instructions)))

    def _absorb(self, brings: Collection[Source]) -> None:
        self.taint |= Taint.of(brings)

    def _emit(self, event: TurnEvent) -> None:
        for channel in self._subscribers:
            channel.put(event)

    def _notice(self, code: str, text: str) -> None:
        self._emit(Notice(code, self.agent.redactor.clean(text)))

    def _take_steer(self) -> str:
        text = "\n".join(self._steer)
        self._steer.clear()
        return text

    def _context_for(self, call: ToolCall) -> ToolContext:
        return structs.replace(
            self._context,
            call=call,
            approve=self._approve,
            ask=self.people.ask,
            consult=self.consult,
            sees=sees_images(self.agent.providers[0], self._runtime.learned),
        )

    async def consult(
        self, job: str, prompt: Message, *, system: str = "", max_output: int = 1024
    ) -> str:
        return await self._runtime.auxiliary.ask(
            job,
            prompt,
            main=self.agent,
            system=system,
            max_output=max_output,
            meter=self._meter().for_purpose(f"auxiliary/{job}"),
        )

    def _meter(self) -> Meter:
        account = structs.replace(self.account, session=self.id)
        return Meter(self._runtime.store, self.budget, account, self._emit, self._runtime.told)

    async def _approve(
        self, call: ToolCall, tool: Tool[Any], params: Any, keys: tuple[str, ...]
    ) -> Verdict:
        verdict = await self._approvals.check(call, tool, params, keys, self.taint)
        if verdict.allowed and verdict.changes and not self._saved:
            self._saved = True
            if not self._runtime.places.elsewhere:  # a command there changes nothing here
                from hermes.app.branching import save_files

                await save_files(self._context, *self._began)
        return verdict
