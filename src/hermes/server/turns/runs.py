"""Work that goes on without anybody connected: its events are on disk before anybody sees them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec
import orjson
from msgspec import Struct, structs

from hermes.app.session import Session
from hermes.core.errors import HermesError, StoreError
from hermes.core.events import (
    Answer,
    Approval,
    Question,
    TextDelta,
    ThinkingDelta,
    ToolDone,
    ToolStarted,
    TurnEnd,
    TurnEvent,
    TurnResult,
)
from hermes.core.message import user_message
from hermes.server.http.errors import ApiError
from hermes.server.http.principals import Principal
from hermes.server.turns.image_links import Shown, shown
from hermes.server.turns.sessions import Ask, opened
from hermes.server.turns.sse import event
from hermes.server.turns.streaming import stop
from hermes.server.turns.tool_labels import label
from hermes.server.turns.turn_events import plain_usage

if TYPE_CHECKING:
    from hermes.server.app import Server

log = logging.getLogger(__name__)

KIND = "run"
MOST = 1000
PAGE = 500
Status: TypeAlias = Literal[
    "queued", "running", "waiting_for_approval", "stopping", "completed", "failed", "cancelled"
]
ENDED = frozenset({"completed", "failed", "cancelled"})
LOST = (
    "The server stopped while this run was going on. What it had done is kept in its session; "
    "start another run with that session_id to go on."
)
UNWRITTEN = (
    "The end of this run could not be written. What it had done until then is kept in its "
    "session; start another run with that session_id to go on."
)
ELSEWHERE_SECONDS = 0.5
"""Between two looks at a run of another server of this home."""
CHOICES: tuple[Answer, ...] = ("once", "session", "always", "deny")


class State(Struct):
    """What is known of a run, and stored of it."""

    run_id: str
    session_id: str
    model: str
    created_at: float
    updated_at: float
    status: Status = "queued"
    last_event: str = ""
    output: str | None = None
    usage: dict[str, int] | None = None
    error: str | None = None
    server: str = ""
    """The token of the one that runs it."""

    def shown(self) -> dict[str, Any]:
        data = {"object": "hermes.run", **msgspec.structs.asdict(self)}
        del data["server"]
        for name in ("output", "usage", "error"):
            if data[name] is None:
                del data[name]
        return data


class Run:
    """One that is going on in this process."""

    def __init__(self, server: Server, principal: Principal, ask: Ask, state: State) -> None:
        self.state = state
        self.shown = structs.replace(state)
        """As it was stored last: what is not on disk is not told."""
        self.owner = principal.name
        self._server = server
        self._principal = principal
        self._ask = ask
        self._count = 0
        self._session: Session | None = None
        self._events: Shown | None = None
        self._cancelled = False
        self._tools: dict[str, str] = {}
        self.news = asyncio.Event()
        """Set, and replaced, whenever there is something to read."""

    # -- what clients do -------------------------------------------------------------------------

    async def stop(self) -> None:
        if self.state.status in ENDED:
            return
        self._cancelled = True
        self.state.status = "stopping"
        if self._session is not None and self._events is not None:
            stop(self._session, self._events)
        await self._save()

    def lose(self) -> None:
        """The server cannot wait for it any longer."""
        if self._session is not None and self._events is not None:
            stop(self._session, self._events)

    async def steer(self, text: str) -> None:
        for _ in range(10):
            if self._session is not None and self._session.is_starting:
                await asyncio.sleep(0)  # its turn begins right now
        if self._session is None or not self._session.is_busy:
            raise ApiError(409, "This run is not at work.", code="not_running")
        self._session.submit(user_message(text), "steer")

    async def answer(self, choice: Answer, approval: str) -> dict[str, str]:
        """The oldest that waits, or the one that is named. What cannot be granted for longer is
        granted once; the answer says so."""
        waiting = self._session.interactions.pending_approvals if self._session is not None else ()
        found = next((a for a in waiting if not approval or a.id == approval), None)
        if found is None or self._session is None:
            raise ApiError(409, "No approval is waiting.", code="nothing_to_approve")
        applied = choice if choice in found.choices else "once"
        told: dict[str, str] = {"choice": choice}
        if applied != choice:
            told["applied"] = applied
        self._session.interactions.answer_approval(found.id, applied)
        self.state.status = "waiting_for_approval" if len(waiting) > 1 else "running"
        await self._record([self._frame("approval.responded", approval_id=found.id, **told)])
        return told

    # -- what happens ----------------------------------------------------------------------------

    async def work(self, held: AsyncExitStack) -> None:
        """To the end; `held` is its place among those that run."""
        async with held:
            try:
                async with opened(self._server, self._principal, self._ask) as session:
                    self._session = session
                    session.interactions.user_present = True
                    self.state.session_id = session.id
                    self.state.status = "running"
                    await self._save()
                    await self._follow(session)
            except (ApiError, HermesError) as error:
                await self._fail(self._server.redact(str(error)))
            except asyncio.CancelledError:
                await asyncio.shield(self._fail(LOST))
                raise
            finally:
                self._session = None
                self._server.runs.pop(self.state.run_id, None)
                self._tell()

    async def _follow(self, session: Session) -> None:
        events = self._events = shown(self._server, session)
        session.submit(self._ask.prompt)
        if self._cancelled:
            stop(session, events)
        async for first in events:
            frames: list[bytes] = []
            for happened in (first, *events.ready()):
                frames += self._told(happened)
            if (
                self.state.status == "waiting_for_approval"
                and not session.interactions.pending_approvals
            ):
                self.state.status = "running"
            if frames:
                await self._record(frames)
            elif self.state.status != self.shown.status:
                await self._save()
            if self.state.status in ENDED:
                break

    def _told(self, happened: TurnEvent) -> list[bytes]:
        match happened:
            case TextDelta(text):
                return [self._frame("message.delta", delta=text)]
            case ThinkingDelta(text):
                return [self._frame("reasoning.available", text=text)]
            case ToolStarted(call) if not call.name.startswith("_"):
                self._tools[call.id] = call.name
                named = {"tool": call.name, "toolCallId": call.id}
                return [self._frame("tool.started", **named, preview=label(call))]
            case ToolDone(result, duration) if name := self._tools.pop(result.call_id, ""):
                named = {"tool": name, "toolCallId": result.call_id}
                took = round(duration, 3)
                return [self._frame("tool.completed", **named, duration=took, error=result.error)]
            case Approval():
                return [self._ask_for(happened)]
            case Question(id) if self._session is not None:  # nobody can be asked things here
                self._session.interactions.answer_question(id, None)
                return []
            case TurnEnd(result) if not result.pending_steer:  # else it goes on with that
                return [self._ended(result)]
            case _:
                return []

    def _ask_for(self, question: Approval) -> bytes:
        self.state.status = "waiting_for_approval"
        return self._frame(
            "approval.request",
            approval_id=question.id,
            command=question.command or label(question.call, whole=True),
            reason=question.summary,
            choices=list(question.choices),
        )

    def _ended(self, result: TurnResult) -> bytes:
        self._server.metrics.turn(result)
        state = self.state
        state.usage = plain_usage(result)
        if result.text:
            state.output = result.text
        if result.status == "completed":
            state.status = "completed"
            return self._frame("run.completed", output=result.text, usage=state.usage)
        if (
            result.status == "interrupted"
            and not self._cancelled
            and self._server.stopping.is_set()
        ):
            result = structs.replace(result, error=LOST, error_code="server_stopping")
        elif result.status == "interrupted":
            state.status = "cancelled"
            return self._frame("run.cancelled")
        state.status = "failed"
        state.error = self._server.redact(result.error)
        return self._frame("run.failed", error=state.error, error_code=result.error_code)

    async def _fail(self, why: str) -> None:
        if self.state.status not in ENDED:
            self.state.status = "failed"
            self.state.error = why
            await self._record([self._frame("run.failed", error=why)])

    def _frame(self, name: str, **data: Any) -> bytes:
        self._count += 1
        self.state.last_event = name
        return frame(self._count, name, self.state.run_id, data)

    async def _record(self, frames: list[bytes]) -> None:
        """On disk, then to whoever reads."""
        first = self._count - len(frames) + 1
        objects = self._server.runtime.store.objects
        await asyncio.gather(objects.append_events(self.state.run_id, first, frames), self._save())
        self._tell()

    async def _save(self) -> None:
        self.state.updated_at = time.time()
        stored = structs.replace(self.state)
        await save(self._server, self.owner, stored)
        self.shown = stored

    def _tell(self) -> None:
        news, self.news = self.news, asyncio.Event()
        news.set()


def frame(number: int, name: str, run: str, data: dict[str, Any]) -> bytes:
    body = {"event": name, "run_id": run, "timestamp": time.time(), **data}
    return event(name, orjson.dumps(body), str(number))


async def save(server: Server, owner: str, state: State) -> None:
    body = msgspec.msgpack.encode(state)
    await server.runtime.store.objects.put(KIND, state.run_id, body, owner=owner)


async def forget_old(server: Server, owner: str) -> None:
    """Never one that goes on, however long it has waited for somebody's answer."""
    await server.runtime.store.objects.trim(KIND, MOST, owner=owner, spare=set(server.runs))


async def find(server: Server, owner: str, run_id: str) -> State | None:
    going = server.runs.get(run_id)
    if going is not None:
        return going.shown if going.owner == owner else None
    found = await server.runtime.store.objects.get(KIND, run_id, owner=owner)
    if found is None:
        return None
    state = msgspec.msgpack.decode(found.body, type=State)
    if state.status not in ENDED and not server.elsewhere(state.server):
        with suppress(StoreError):  # then the next who asks
            await _end(server, owner, state, UNWRITTEN)
    return state


async def events(server: Server, owner: str, run_id: str, after: int) -> AsyncIterator[bytes]:
    """The frames behind number `after`, as they were and as they come, until the run has ended."""
    objects = server.runtime.store.objects
    ended = False
    while True:
        going = server.runs.get(run_id)
        news = going.news if going else None  # before reading: what comes later sets it
        page = await objects.read_events(run_id, after=after, limit=PAGE)
        after += len(page)
        if page:
            yield b"".join(page)
        elif news is not None:
            await news.wait()
        elif ended:
            return
        else:
            state = await find(server, owner, run_id)
            ended = state is None or state.status in ENDED  # once more: what came before its end
            if not ended:
                await asyncio.sleep(ELSEWHERE_SECONDS)


async def end_lost(server: Server) -> None:
    """Runs of a server that is no more are ended, with a reason."""
    for found in await server.runtime.store.objects.list_all(KIND):
        state = msgspec.msgpack.decode(found.body, type=State)
        if state.status not in ENDED and not server.elsewhere(state.server):
            await _end(server, found.owner, state, LOST)


async def _end(server: Server, owner: str, state: State, why: str) -> None:
    objects = server.runtime.store.objects
    state.status, state.error, state.last_event = "failed", why, "run.failed"
    state.updated_at = time.time()
    count = 0
    while page := await objects.read_events(state.run_id, after=count, limit=PAGE):
        count += len(page)
    last = frame(count + 1, "run.failed", state.run_id, {"error": why})
    await objects.append_events(state.run_id, count + 1, [last])
    await save(server, owner, state)
