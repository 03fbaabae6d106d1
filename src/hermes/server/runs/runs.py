"""Runs: turns that need no connected client. Events are stored before any client sees them."""

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import structs

from hermes.agent.loop import HANDED_OVER, NODE_DIED, CutTurn, find_lost_calls
from hermes.app.knowledge.titles import SpawnTask
from hermes.app.session import Session
from hermes.core import events
from hermes.core.errors import HermesError, StoreError
from hermes.core.events import Answer, Approval, Question, TurnEnd, TurnEvent, TurnResult
from hermes.core.message import user_message
from hermes.core.store import Objects
from hermes.server.http.errors import RETRY_AFTER, ApiError
from hermes.server.http.principals import Principal
from hermes.server.requests.turn_request import TurnRequest, encode_request
from hermes.server.runs.run_approvals import RunApprovals
from hermes.server.runs.run_calls import RunCalls
from hermes.server.turns import turn_events
from hermes.server.turns.client_events import ClientEvents
from hermes.server.turns.outcome import explain_failure
from hermes.server.turns.server_instance import ServerInstance
from hermes.server.turns.stored_runs import (
    KEPT,
    KIND,
    LOST,
    UNSTORED,
    ApprovalAnswer,
    PastFrames,
    StoredRun,
    end_run,
    save_run,
)
from hermes.server.turns.turn_runner import TurnRunner

if TYPE_CHECKING:
    from hermes.app.cluster.owner_streams import OwnerStreams
    from hermes.store.postgres.inbox import PostgresInbox
    from hermes.store.postgres.notices import NodeNotices

log = logging.getLogger(__name__)
MAX_RUNS = 1000
_PAGE_FRAMES = 500
POLL_SECONDS = 0.5
"""How often a run of another server of this home is checked for news."""
LOOK_SECONDS = 2.0
"""How often a run of another node is checked for news whose notice was lost."""
_QUEUED_SECONDS = 0.25
_MAX_FOLLOWED = 10_000


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
        self.tenant = principal.tenant
        self._turns = turns
        self._objects = objects
        self._principal = principal
        self._request = request
        self._frames = 0
        self._shown = ""
        self._begun = self._continued = self._lost = False
        self._session: Session | None = None
        self._events: ClientEvents | None = None
        self._cancelled = self._is_given_up = self._hands_over = False
        self.is_leaving = False
        """Whether it ends here at once, and goes on elsewhere."""
        self._calls = RunCalls(turns.marks, state.run_id)
        self._approvals = RunApprovals(state)
        self.news = asyncio.Event()
        """Set, and replaced by a new one, whenever there is something new to read."""
        self.on_news: Callable[[], None] = lambda: None
        self.can_hand_over = False
        """Whether there are other nodes that could continue it."""
        self.handed_over = False
        """Whether another node continues it."""

    def continue_after(self, past: PastFrames, *, begun: bool, lost: bool) -> None:
        """Go on after the frames of another server; `begun`: it has begun the turn; `lost`: it has
        died."""
        self._frames, self._shown = past.count, past.shown
        self._continued, self._lost = begun, lost
        self._approvals.continue_after(past.asked)

    async def cancel(self) -> None:
        if self.state.has_ended:
            return
        self._cancelled = True
        self._set_hand_over(hands_over=False)
        self.state.status = "stopping"
        self.interrupt()
        await self._save_state()

    def interrupt(self) -> None:
        if self._session is not None and self._events is not None:
            self._events.stop_turn()

    def give_up(self) -> None:
        """Stop what it does at once: another node may continue it by now."""
        if not self._is_given_up:
            self._is_given_up = True
            self.leave()

    def hand_over(self) -> None:
        """Let another node continue after the step that runs now; at once where this only waits for
        approvals, which are asked for again there."""
        if not self._cancelled:
            self._set_hand_over(hands_over=True)
            if self._calls.are_waiting(self._approvals.waiting_calls):
                self.leave()

    def leave(self) -> None:
        """Stop what it does at once, to go on elsewhere if there are other nodes."""
        if self.can_hand_over and not self._cancelled:
            self._set_hand_over(hands_over=True)
            self.is_leaving = True
        self.interrupt()

    def _set_hand_over(self, *, hands_over: bool) -> None:
        self._hands_over = hands_over
        if self._session is not None:
            self._session.host.hands_over = hands_over

    async def steer(self, text: str) -> None:
        if self._session is None and not self._begun:
            self.state.guidance = (*self.state.guidance, text)
            return
        for _ in range(10):
            if self._session is not None and self._session.is_starting:
                await asyncio.sleep(0)  # its turn is about to start
        if self._session is None or not self._session.is_steerable:
            raise ApiError(409, "This run is not running.", code="not_running")
        self._session.submit(user_message(text), "steer")

    async def answer_approval(
        self, choice: Answer, approval_id: str, *, saves: bool
    ) -> ApprovalAnswer:
        """Answer an approval as `RunApprovals.answer` does."""
        answer, shown = self._approvals.answer(choice, approval_id, saves=saves)
        if shown is None:
            await self._save_state()
        else:
            await self._record_frames([self._encode_frame("approval.responded", shown)])
        return answer

    async def run_to_end(self) -> None:
        """Run the turn to its end; an error ends the run as failed."""
        try:
            opening = self._turns.sessions.open_session(self._principal, self._request)
            async with opening as session:
                self._session, self._begun = session, True
                session.interactions.user_present = True
                session.host.hands_over = self._hands_over
                self._calls.watch_session(session)
                self._approvals.interactions = session.interactions
                self.state.session_id = session.id
                self.state.status = "running"
                if self.state.request and self.state.place < 0:
                    self.state.place = await self._turns.sessions.count_messages(session.id)
                cut = await self._find_cut(session)
                await self._tell_resumption(session, cut)
                await self._save_state()
                await self._run_turn(session, cut)
                if self.state.has_ended:
                    await self._calls.close(self.state.unknown)
        except (ApiError, HermesError) as error:
            if self._is_given_up:  # the run has not failed: it goes on where the database is
                raise
            await self._fail_run(self._turns.redact(str(error)))
        except asyncio.CancelledError:
            if not self.can_hand_over:
                await asyncio.shield(self._fail_run(LOST))
            raise
        finally:
            self._session = self._approvals.interactions = None

    def wake_readers(self) -> None:
        news, self.news = self.news, asyncio.Event()
        news.set()
        self.on_news()

    async def _tell_resumption(self, session: Session, cut: CutTurn | None) -> None:
        messages = session.transcript.history.messages
        calls = find_lost_calls(session.agent, messages, cut.started) if cut is not None else []
        if not self._lost and not calls:
            return
        unknown = [call.id for call in calls]
        self.state.unknown = (*self.state.unknown, *unknown)
        data = {"attempt": len(self.state.attempts) or 1, "unknown": unknown}
        await self._record_frames([self._encode_frame("run.resumed", data)])

    async def _find_cut(self, session: Session) -> CutTurn | None:
        """What is known of the turn that another server has begun; None: it has not."""
        if not self._continued:
            return None
        messages = session.transcript.history.messages
        shown = "" if messages[-1].role == "assistant" else self._shown
        return CutTurn(NODE_DIED, await self._calls.list_begun(), shown)

    async def _run_turn(self, session: Session, cut: CutTurn | None) -> None:
        events = self._events = self._turns.follow_events(session)
        if cut is not None:
            session.continue_turn(cut)
        else:
            session.submit(self._request.prompt)
        session.host.pending_steer += self.state.guidance
        self.state.guidance = ()
        if self._cancelled or self.is_leaving or self._is_given_up:
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
            elif self.handed_over or self.state.status != self.saved.status:
                await self._save_state()
            for shown in self._approvals.give_early_answers():
                await self._record_frames([self._encode_frame("approval.responded", shown)])
            if self._hands_over and not self.is_leaving:
                self.hand_over()
            if self.state.has_ended or self.handed_over:
                break

    def _encode_turn_event(self, event: TurnEvent) -> list[bytes]:
        match event:
            case events.ToolStarted(call):
                self._calls.note_start(call.id)
            case events.ToolDone(result):
                self._approvals.note_end(result.call_id)
                if not self._calls.note_end(result.call_id):
                    return []
            case Approval():
                return [self._encode_frame("approval.request", self._approvals.note_request(event))]
            case Question(id) if self._session is not None:  # clients cannot answer questions
                self._session.interactions.answer_question(id, None)
                return []
            case TurnEnd(result) if self._is_handed_over(result):
                self._note_hand_over()
                return []
            case TurnEnd(result) if not result.pending_steer:  # otherwise another turn follows
                return [self._end_run(result)]
        described = turn_events.describe_event(event)
        return [self._encode_frame(*described)] if described else []

    def _is_handed_over(self, result: TurnResult) -> bool:
        if result.error_code == HANDED_OVER:
            return True
        if self._cancelled or not self.can_hand_over:
            return False
        if self._is_given_up and result.error_code == "unavailable":
            return True
        is_leaving = self.is_leaving or self._is_given_up or self._turns.slots.closed
        return is_leaving and result.status == "interrupted"

    def _note_hand_over(self) -> None:
        self.handed_over = True
        self.state.server = ""
        if self._is_given_up:
            self.state.attempts = (*self.state.attempts, time.time())
        if self._session is not None:
            unread = self._session.take_unread_guidance()
            self.state.guidance = (*unread, *self._session.host.pending_steer)

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
        error, error_code = self._turns.redact(explain_failure(result, KEPT)), result.error_code
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
        await save_run(self._objects, self.owner, saved)
        self.saved = saved


class RunRegistry:
    """All runs of this home: those this server works on, and the stored ones."""

    def __init__(
        self, turns: TurnRunner, objects: Objects, spawn: SpawnTask, instance: ServerInstance
    ) -> None:
        self.takeovers = 0
        self.inbox: PostgresInbox | None = None
        """Where runs wait for a node; None: this server runs them itself."""
        self._turns = turns
        self._objects = objects
        self._spawn = spawn
        self._instance = instance
        self.active: dict[str, Run] = {}
        self.prepared: set[str] = set()
        """Runs of dead servers that this one has taken over and not begun yet."""
        self._notices: NodeNotices | None = None
        self._streams: OwnerStreams | None = None
        self._followers: dict[str, set[str]] = {}
        """Nodes whose clients follow a run of this one."""
        self._watched: dict[str, asyncio.Event] = {}
        """Runs of other nodes that clients of this one follow: set when there is news."""

    def join_nodes(
        self, inbox: "PostgresInbox", notices: "NodeNotices", streams: "OwnerStreams"
    ) -> None:
        """Share the runs with other nodes."""
        self.inbox, self._notices, self._streams = inbox, notices, streams
        notices.subscribe("follow", self._add_follower)
        notices.subscribe("news", self._note_news)

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
            request=encode_request(request),
        )
        if self.inbox is not None:
            await self._enqueue_run(self.inbox, principal, state)
            return run_id
        run = Run(self._turns, self._objects, principal, request, state)
        async with AsyncExitStack() as slot:
            await slot.enter_async_context(self._turns.slots.reserve_slot(principal))
            saving = save_run(self._objects, run.owner, state)
            spare = set(self.active)  # the oldest runs are deleted, but never one that is active
            trimming = self._objects.trim(KIND, MAX_RUNS, owner=run.owner, spare=spare)
            await asyncio.gather(saving, trimming)
            self.spawn_run(run, slot.pop_all())
        return state.run_id

    def spawn_run(self, run: Run, slot: AsyncExitStack) -> None:
        """Run to the end in a task; `slot` is left then."""
        self.active[run.state.run_id] = run
        self._spawn(self._execute_run(run, slot), f"run {run.state.run_id}")

    async def _enqueue_run(
        self, inbox: "PostgresInbox", principal: Principal, state: StoredRun
    ) -> None:
        self._turns.slots.raise_if_closed()
        if (tenants := self._turns.tenants) is not None and principal.tenant:
            await tenants.check_turn(principal)
        most = principal.limits.concurrent_turns
        state.server, state.origin = "", self._instance.node
        body = msgspec.msgpack.encode(state)
        try:
            await inbox.add(
                state.session_id,
                KIND,
                state.run_id,
                owner=principal.name,
                body=body,
                at_most=most,
            )
        except StoreError as error:
            if error.code != "inbox_full":
                raise
            retry = {"Retry-After": RETRY_AFTER}
            raise ApiError(429, str(error), code=error.code, headers=retry) from None

    async def execute_run(self, run: Run) -> None:
        run_id = run.state.run_id
        self.active[run_id] = run
        run.can_hand_over = self.inbox is not None
        run.on_news = lambda: self._tell_followers(run_id)
        self._tell_node(run.state.origin, "news", run_id)
        try:
            await run.run_to_end()
        finally:
            self.active.pop(run_id, None)
            run.wake_readers()
            self._followers.pop(run_id, None)

    async def _execute_run(self, run: Run, slot: AsyncExitStack) -> None:
        async with slot:
            await self.execute_run(run)

    def _tell_followers(self, run_id: str) -> None:
        for node in self._followers.get(run_id, ()):
            self._tell_node(node, "news", run_id)

    def _tell_node(self, node: str, topic: str, subject: str) -> None:
        if self._notices is not None and node:
            self._notices.send(node, topic, subject)

    def _add_follower(self, subject: str) -> None:
        run_id, _, node = subject.partition(" ")
        if len(self._followers) >= _MAX_FOLLOWED:
            self._followers.clear()  # they look by themselves every few seconds
        self._followers.setdefault(run_id, set()).add(node)  # it may be about to begin here
        if run_id not in self.active:
            self._tell_node(node, "news", run_id)

    def _note_news(self, run_id: str) -> None:
        if watched := self._watched.pop(run_id, None):
            watched.set()

    async def find_run(self, owner: str, run_id: str) -> StoredRun | None:
        run = self.active.get(run_id)
        if run is not None:
            return run.saved if run.owner == owner else None
        found = await self._objects.get(KIND, run_id, owner=owner)
        if found is None:
            return None
        state = msgspec.msgpack.decode(found.body, type=StoredRun)
        is_mine = state.server == self._instance.token and run_id not in self.prepared
        if not state.has_ended and is_mine and self.inbox is None and run_id not in self.active:
            with suppress(StoreError):  # the next request will try again
                await end_run(self._objects, owner, state, UNSTORED)
        return state

    async def read_frames(
        self, owner: str, run_id: str, after: int, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[bytes]:
        """Yield the frames after number `after`, stored and new ones, until the run has ended.
        `headers`: with them another node lets the client follow."""
        ended, followed = False, ""
        while True:
            run = self.active.get(run_id)
            news = run.news if run else None  # before reading: later frames set it
            watched = self._watch_run(run_id)
            page = await self._objects.read_events(run_id, after=after, limit=_PAGE_FRAMES)
            after += len(page)
            if page:
                self._note_page(run)
                yield b"".join(page)
            elif news is not None:
                await news.wait()
            elif ended:
                return
            else:
                state = await self.find_run(owner, run_id)
                ended = state is None or state.has_ended  # read once more for its last frames
                if state is None or ended:
                    continue
                if watched is not None and self._turns.slots.closed:
                    return  # this node ends; the client goes on at another
                if self._streams is not None and self._streams.is_busy and headers:
                    async for frame in self._streams.read_frames(
                        state.node, run_id, after, headers
                    ):
                        after += 1
                        yield frame
                if state.node != followed:
                    followed = state.node
                    self._tell_node(followed, "follow", f"{run_id} {self._instance.node}")
                await self._wait_for_news(watched, state)

    def _note_page(self, run: Run | None) -> None:
        if run is None and self._streams is not None:
            self._streams.note_block()

    def release_readers(self) -> None:
        """Let the clients that follow runs of other nodes go."""
        for run_id in list(self._watched):
            self._note_news(run_id)

    def _watch_run(self, run_id: str) -> asyncio.Event | None:
        """Set at the next news of a run; None: there are no other nodes."""
        if self._notices is None:
            return None
        return self._watched.setdefault(run_id, asyncio.Event())

    async def _wait_for_news(self, watched: asyncio.Event | None, state: StoredRun) -> None:
        if watched is None:
            await asyncio.sleep(POLL_SECONDS)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_SECONDS if state.node else _QUEUED_SECONDS):
                await watched.wait()

    def is_abandoned(self, state: StoredRun) -> bool:
        return not state.has_ended and not self._instance.is_other_running(state.server)
