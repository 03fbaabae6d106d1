"""Runs: turns that need no connected client. Events are stored before any client sees them."""

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, suppress
from typing import Any, Literal

import msgspec
from msgspec import Struct, structs

from hermes.agent.loop import find_open_calls
from hermes.app.knowledge.titles import SpawnTask
from hermes.app.session import Session
from hermes.core import events
from hermes.core.errors import HermesError, StoreError
from hermes.core.events import Answer, Approval, Question, TurnEnd, TurnEvent, TurnResult
from hermes.core.message import user_message
from hermes.core.store import Objects
from hermes.server.http.errors import ApiError
from hermes.server.http.principals import Principal
from hermes.server.http.response_schemas import RunStatus, TokenUsage
from hermes.server.requests.turn_request import TurnRequest, decode_request, encode_request
from hermes.server.turns import turn_events
from hermes.server.turns.client_events import ClientEvents
from hermes.server.turns.outcome import explain_failure
from hermes.server.turns.server_instance import ServerInstance
from hermes.server.turns.turn_runner import TurnRunner

log = logging.getLogger(__name__)

KIND = "run"
MAX_RUNS = 1000
_PAGE_FRAMES = 500
ENDED = frozenset({"completed", "failed", "cancelled"})
_KEPT = (
    "The work so far is kept in its session; to continue, start another run with that session_id."
)
LOST = f"The server stopped during this run. {_KEPT}"
UNSTORED = f"The end of this run could not be stored. {_KEPT}"
SUSPENDED = f"This run was taken over 3 times in 10 minutes and is suspended. {_KEPT}"
MAX_TAKEOVERS = 3
SUSPENSION_SECONDS = 600.0
TAKEOVER_KIND = "takeover"
CALL_LOST = (
    "The node that ran this died while it ran; whether it took effect is not known. It was not "
    "repeated."
)
POLL_SECONDS = 0.5
"""How often a run of another server of this home is checked for news."""


class RunObject(Struct, omit_defaults=True):
    object: Literal["hermes.run"]
    run_id: str
    session_id: str
    model: str
    created_at: float
    updated_at: float
    status: RunStatus
    last_event: str
    output: str | None = None
    usage: TokenUsage | None = None
    error: str | None = None


class ApprovalAnswer(Struct, omit_defaults=True):
    run_id: str
    choice: Literal["once", "session", "always", "deny"]
    applied: Literal["once", "session", "always", "deny"] | None = None
    """Present when less was granted than chosen: once, or for the session."""


class StoredRun(Struct):
    """The state of a run, as it is stored."""

    run_id: str
    session_id: str
    model: str
    created_at: float
    updated_at: float
    status: RunStatus = "queued"
    last_event: str = ""
    output: str | None = None
    usage: TokenUsage | None = None
    error: str | None = None
    server: str = ""
    """The token of the server that works on it."""
    request: bytes = b""
    """What was asked, where other servers could have to continue it."""
    place: int = -1
    """How many messages its session had when it began; -1: it has not begun."""
    attempts: tuple[float, ...] = ()
    """When it was taken over."""

    @property
    def has_ended(self) -> bool:
        return self.status in ENDED

    def build_run_object(self) -> RunObject:
        names = RunObject.__struct_fields__[1:]
        return RunObject("hermes.run", *(getattr(self, name) for name in names))


class Run:
    """A run that this process works on."""

    def __init__(
        self,
        turns: TurnRunner,
        objects: Objects,
        principal: Principal,
        request: TurnRequest,
        state: StoredRun,
    ) -> None:
        self.state = state
        self.saved = structs.replace(state)
        """The state as last stored: clients see nothing that is not on disk."""
        self.owner = principal.name
        self._turns = turns
        self._objects = objects
        self._principal = principal
        self._request = request
        self._frames = 0
        self._continued = False
        self._session: Session | None = None
        self._events: ClientEvents | None = None
        self._cancelled = False
        self._started_calls: set[str] = set()
        self.news = asyncio.Event()
        """Set, and replaced by a new one, whenever there is something new to read."""

    def continue_after(self, frames: int, *, begun: bool) -> None:
        """Go on after so many frames of another server; `begun`: it has begun the turn."""
        self._frames, self._continued = frames, begun

    async def cancel(self) -> None:
        if self.state.has_ended:
            return
        self._cancelled = True
        self.state.status = "stopping"
        self.interrupt()
        await self._save_state()

    def interrupt(self) -> None:
        if self._session is not None and self._events is not None:
            self._events.stop_turn()

    async def steer(self, text: str) -> None:
        for _ in range(10):
            if self._session is not None and self._session.is_starting:
                await asyncio.sleep(0)  # its turn is about to start
        if self._session is None or not self._session.is_steerable:
            raise ApiError(409, "This run is not running.", code="not_running")
        self._session.submit(user_message(text), "steer")

    async def answer_approval(
        self, choice: Answer, approval_id: str, *, saves: bool
    ) -> ApprovalAnswer:
        """Answer this approval, or the oldest pending one if no id is given. An approval that can
        only be granted once is granted once, and one that may not be saved (`saves`) for the
        session; the answer says so."""
        pending = self._session.interactions.pending_approvals if self._session is not None else ()
        found = next((a for a in pending if not approval_id or a.id == approval_id), None)
        if found is None or self._session is None:
            raise ApiError(409, "No approval is pending.", code="nothing_to_approve")
        applied = choice if choice in found.choices else "once"
        if applied == "always" and not saves:
            applied = "session"
        self._session.interactions.answer_approval(found.id, applied)
        self.state.status = "waiting_for_approval" if len(pending) > 1 else "running"
        data = {"approval_id": found.id, "choice": choice}
        if applied != choice:
            data["applied"] = applied
        await self._record_frames([self._encode_frame("approval.responded", data)])
        return ApprovalAnswer(self.state.run_id, choice, None if applied == choice else applied)

    async def run_to_end(self) -> None:
        """Run the turn to its end; an error ends the run as failed."""
        try:
            opening = self._turns.sessions.open_session(self._principal, self._request)
            async with opening as session:
                self._session = session
                session.interactions.user_present = True
                self.state.session_id = session.id
                self.state.status = "running"
                if self.state.request and self.state.place < 0:
                    self.state.place = await self._turns.sessions.count_messages(session.id)
                if self.state.attempts:
                    await self._tell_resumption(session)
                await self._save_state()
                await self._run_turn(session)
        except (ApiError, HermesError) as error:
            await self._fail_run(self._turns.redact(str(error)))
        except asyncio.CancelledError:
            await asyncio.shield(self._fail_run(LOST))
            raise
        finally:
            self._session = None

    def wake_readers(self) -> None:
        news, self.news = self.news, asyncio.Event()
        news.set()

    async def _tell_resumption(self, session: Session) -> None:
        calls = find_open_calls(session.transcript.history.messages) if self._continued else []
        data = {"attempt": len(self.state.attempts), "unknown": [call.id for call in calls]}
        await self._record_frames([self._encode_frame("run.resumed", data)])

    async def _run_turn(self, session: Session) -> None:
        events = self._events = self._turns.follow_events(session)
        if self._continued:
            session.continue_turn(CALL_LOST)
        else:
            session.submit(self._request.prompt)
        if self._cancelled:
            events.stop_turn()
        async for first in events:
            frames: list[bytes] = []
            for event in (first, *events.take_ready_events()):
                frames += self._encode_turn_event(event)
            is_waiting = self.state.status == "waiting_for_approval"
            if is_waiting and not session.interactions.pending_approvals:
                self.state.status = "running"
            if frames:
                await self._record_frames(frames)
            elif self.state.status != self.saved.status:
                await self._save_state()
            if self.state.has_ended:
                break

    def _encode_turn_event(self, event: TurnEvent) -> list[bytes]:
        match event:
            case events.ToolStarted(call):
                self._started_calls.add(call.id)
            case events.ToolDone(result) if result.call_id not in self._started_calls:
                return []
            case Approval():
                return [self._request_approval(event)]
            case Question(id) if self._session is not None:  # clients cannot answer questions
                self._session.interactions.answer_question(id, None)
                return []
            case TurnEnd(result) if not result.pending_steer:  # otherwise another turn follows
                return [self._end_run(result)]
        described = turn_events.describe_event(event)
        return [self._encode_frame(*described)] if described else []

    def _request_approval(self, approval: Approval) -> bytes:
        self.state.status = "waiting_for_approval"
        data = {
            "approval_id": approval.id,
            "command": approval.command
            or approval.diff
            or turn_events.label_call(approval.call, full=True),
            "reason": approval.summary,
            "choices": list(approval.choices),
        }
        return self._encode_frame("approval.request", data)

    def _end_run(self, result: TurnResult) -> bytes:
        self._turns.metrics.count_turn(result)
        state = self.state
        state.usage = turn_events.build_token_usage(result)
        if result.text:
            state.output = result.text
        if result.status == "completed":
            state.status = "completed"
            data = {"output": result.text, "usage": state.usage}
            return self._encode_frame("run.completed", data)
        error, error_code = self._turns.redact(explain_failure(result, _KEPT)), result.error_code
        if result.status == "interrupted":
            if self._cancelled or not self._turns.slots.closed:
                state.status = "cancelled"
                return self._encode_frame("run.cancelled", {})
            error, error_code = LOST, "server_stopping"
        state.status = "failed"
        state.error = error
        return self._encode_frame("run.failed", {"error": error, "error_code": error_code})

    async def _fail_run(self, error: str) -> None:
        if not self.state.has_ended:
            self.state.status = "failed"
            self.state.error = error
            await self._record_frames([self._encode_frame("run.failed", {"error": error})])

    def _encode_frame(self, name: str, data: dict[str, Any]) -> bytes:
        self._frames += 1
        self.state.last_event = name
        owner = {"run_id": self.state.run_id}
        return turn_events.encode_event(name, owner, data, str(self._frames))

    async def _record_frames(self, frames: list[bytes]) -> None:
        """Store the frames and the state, then wake the readers."""
        first = self._frames - len(frames) + 1
        writing = self._objects.append_events(self.state.run_id, first, frames)
        await asyncio.gather(writing, self._save_state())
        self.wake_readers()

    async def _save_state(self) -> None:
        self.state.updated_at = time.time()
        saved = structs.replace(self.state)
        await _save_run(self._objects, self.owner, saved)
        self.saved = saved


async def _save_run(objects: Objects, owner: str, state: StoredRun) -> None:
    await objects.put(KIND, state.run_id, msgspec.msgpack.encode(state), owner=owner)


class RunRegistry:
    """All runs of this home: those this server works on, and the stored ones."""

    def __init__(
        self, turns: TurnRunner, objects: Objects, spawn: SpawnTask, instance: ServerInstance
    ) -> None:
        self.takeovers = 0
        self._turns = turns
        self._objects = objects
        self._spawn = spawn
        self._instance = instance
        self.active: dict[str, Run] = {}

    async def start_run(
        self, principal: Principal, request: TurnRequest, model: str, key_hash: str = ""
    ) -> str:
        """Start a run and return its id; 429 if too many turns are running. `key_hash`: of the
        idempotency key and its request; a run that it has already started is not started again."""
        now, run_id = time.time(), f"run_{key_hash[:32] or secrets.token_hex(16)}"
        if key_hash and await self.find_run(principal.name, run_id) is not None:
            return run_id
        state = StoredRun(
            run_id,
            request.session or request.new_session,
            model,
            now,
            now,
            server=self._instance.token,
            request=encode_request(request) if self._instance.takes_over else b"",
        )
        run = Run(self._turns, self._objects, principal, request, state)
        async with AsyncExitStack() as slot:
            slot.enter_context(self._turns.slots.reserve_slot(principal))
            saving = _save_run(self._objects, run.owner, state)
            spare = set(self.active)  # the oldest runs are deleted, but never one that is active
            trimming = self._objects.trim(KIND, MAX_RUNS, owner=run.owner, spare=spare)
            await asyncio.gather(saving, trimming)
            self.active[state.run_id] = run
            self._spawn(self._execute_run(run, slot.pop_all()), f"run {state.run_id}")
        return state.run_id

    async def _execute_run(self, run: Run, slot: AsyncExitStack) -> None:
        async with slot:
            try:
                await run.run_to_end()
            finally:
                self.active.pop(run.state.run_id, None)
                run.wake_readers()

    async def find_run(self, owner: str, run_id: str) -> StoredRun | None:
        run = self.active.get(run_id)
        if run is not None:
            return run.saved if run.owner == owner else None
        found = await self._objects.get(KIND, run_id, owner=owner)
        if found is None:
            return None
        state = msgspec.msgpack.decode(found.body, type=StoredRun)
        if self._is_abandoned(state) and not self._instance.takes_over:
            with suppress(StoreError):  # the next request will try again
                await self._end_abandoned_run(owner, state, UNSTORED)
        return state

    async def read_frames(self, owner: str, run_id: str, after: int) -> AsyncIterator[bytes]:
        """Yield the frames after number `after`, stored and new ones, until the run has ended."""
        ended = False
        while True:
            run = self.active.get(run_id)
            news = run.news if run else None  # before reading: later frames set it
            page = await self._objects.read_events(run_id, after=after, limit=_PAGE_FRAMES)
            after += len(page)
            if page:
                yield b"".join(page)
            elif news is not None:
                await news.wait()
            elif ended:
                return
            else:
                state = await self.find_run(owner, run_id)
                ended = state is None or state.has_ended  # read once more for its last frames
                if not ended:
                    await asyncio.sleep(POLL_SECONDS)

    async def end_abandoned_runs(self) -> None:
        """Mark the runs of servers that have died as failed, with a reason."""
        for found in await self._objects.list_all(KIND):
            state = msgspec.msgpack.decode(found.body, type=StoredRun)
            if self._is_abandoned(state):
                await self._end_abandoned_run(found.owner, state, LOST)

    def _is_abandoned(self, state: StoredRun) -> bool:
        return not state.has_ended and not self._instance.is_other_running(state.server)

    async def take_over_runs(self, find_principal: Callable[[str], Principal | None]) -> bool:
        """Continue the runs of servers that have died; whether none is left."""
        done = True
        for found in await self._objects.list_all(KIND):
            state = msgspec.msgpack.decode(found.body, type=StoredRun)
            if state.run_id not in self.active and self._is_abandoned(state):
                try:
                    await self._take_over_run(find_principal(found.owner), found.owner, state)
                except ApiError:  # no free slot
                    done = False
        return done

    async def _take_over_run(
        self, principal: Principal | None, owner: str, state: StoredRun
    ) -> None:
        now = time.time()
        recent = [when for when in state.attempts if when > now - SUSPENSION_SECONDS]
        if principal is None or not state.request or len(recent) >= MAX_TAKEOVERS:
            reason = SUSPENDED if len(recent) >= MAX_TAKEOVERS else LOST
            await self._end_abandoned_run(owner, state, reason)
            return
        async with AsyncExitStack() as slot:
            slot.enter_context(self._turns.slots.reserve_slot(principal))
            if not await self._claim_run(owner, state):
                return
            state.server, state.attempts = self._instance.token, (*state.attempts, now)
            frames = await self._count_frames(state.run_id)
            begun = decode_request(state.request)
            request = await self._turns.sessions.find_begun_turn(
                begun, state.session_id, state.place
            )
            if request is None:
                await self._finish_run(owner, state, frames)
                return
            run = Run(self._turns, self._objects, principal, request, state)
            run.continue_after(frames, begun=request is not begun)
            await _save_run(self._objects, owner, state)
            self.takeovers += 1
            self.active[state.run_id] = run
            self._spawn(self._execute_run(run, slot.pop_all()), f"run {state.run_id}")

    async def _claim_run(self, owner: str, state: StoredRun) -> bool:
        """Whether this server is the one that continues the run. A server that died after it
        claimed the run has lost its claim."""
        attempt, token = len(state.attempts) + 1, self._instance.token
        while True:
            id = f"{state.run_id}/{attempt}"
            if await self._objects.add(TAKEOVER_KIND, id, token.encode(), owner=owner):
                return True
            found = await self._objects.get(TAKEOVER_KIND, id, owner=owner)
            holder = found.body.decode() if found is not None else ""
            if holder == token or self._instance.is_other_running(holder):
                return False
            attempt += 1

    async def _finish_run(self, owner: str, state: StoredRun, frames: int) -> None:
        """Tell the end of a run whose turn had ended when its server died."""
        text = await self._turns.sessions.find_last_answer(state.session_id)
        state.status, state.last_event, state.output = "completed", "run.completed", text
        state.updated_at = time.time()
        run, data = {"run_id": state.run_id}, {"output": text, "usage": state.usage}
        last = turn_events.encode_event("run.completed", run, data, str(frames + 1))
        await self._objects.append_events(state.run_id, frames + 1, [last])
        await _save_run(self._objects, owner, state)

    async def _count_frames(self, run_id: str) -> int:
        number = 0
        while page := await self._objects.read_events(run_id, after=number, limit=_PAGE_FRAMES):
            number += len(page)
        return number

    async def _end_abandoned_run(self, owner: str, state: StoredRun, error: str) -> None:
        state.status, state.error, state.last_event = "failed", error, "run.failed"
        state.updated_at = time.time()
        run_id = state.run_id
        number = await self._count_frames(run_id) + 1
        run, data = {"run_id": run_id}, {"error": error}
        last = turn_events.encode_event("run.failed", run, data, str(number))
        await self._objects.append_events(run_id, number, [last])
        await _save_run(self._objects, owner, state)
