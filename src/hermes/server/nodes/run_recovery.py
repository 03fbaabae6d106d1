"""Runs whose server died or handed them over: continued where they were, or ended with a reason."""

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack

import msgspec

from hermes.core.store import Objects
from hermes.server.http.errors import ApiError
from hermes.server.http.principals import Principal
from hermes.server.requests.turn_request import decode_request
from hermes.server.runs.runs import Run, RunRegistry
from hermes.server.turns.server_instance import ServerInstance
from hermes.server.turns.stored_runs import (
    KIND,
    LOST,
    SUSPENDED,
    UNOWNED,
    PastFrames,
    StoredRun,
    end_run,
    read_past,
    save_run,
)
from hermes.server.turns.turn_runner import TurnRunner

FILES_GONE = (
    "[This turn goes on at another node. What it wrote to files is not here, and background "
    "commands, browsers and containers are gone. Look before you rely on any of it.]"
)
FILES_OLDER = (
    "[This turn goes on at another node. Its files are as they were when the turn before it ended; "
    "what this turn wrote may be missing, and background commands, browsers and containers are "
    "gone. Look before you rely on any of it.]"
)
MAX_TAKEOVERS = 3
SUSPENSION_SECONDS = 600.0
TAKEOVER_KIND = "takeover"
_LOOK_SECONDS = 1.0


class RunRecovery:
    """Continues runs. A call that had begun is not made again."""

    def __init__(
        self,
        runs: RunRegistry,
        turns: TurnRunner,
        objects: Objects,
        instance: ServerInstance,
        find_principal: Callable[[str], Principal | None],
    ) -> None:
        self._runs = runs
        self._turns = turns
        self._objects = objects
        self._instance = instance
        self.find_principal = find_principal

    async def continue_runs(self) -> None:
        """Continue the runs of servers of this home that have died, as soon as there is room."""
        while True:
            if await self._try_to_continue_runs():
                return
            await asyncio.sleep(_LOOK_SECONDS)

    async def _try_to_continue_runs(self) -> bool:
        """Whether none is left."""
        done = True
        for found in await self._objects.list_all(KIND):
            state = msgspec.msgpack.decode(found.body, type=StoredRun)
            if state.run_id not in self._runs.active and self._runs.is_abandoned(state):
                try:
                    await self._continue_alone(found.owner, state)
                except ApiError:  # no free slot
                    done = False
        return done

    async def _continue_alone(self, owner: str, state: StoredRun) -> None:
        principal = self.find_principal(owner)
        async with AsyncExitStack() as slot:
            if principal is not None:
                await slot.enter_async_context(self._turns.slots.reserve_slot(principal))
            if not await self._claim_run(owner, state):
                return
            self._runs.prepared.add(state.run_id)
            try:
                run = await self.prepare_run(principal, owner, state)
                if run is not None:
                    self._runs.spawn_run(run, slot.pop_all())
            finally:
                self._runs.prepared.discard(state.run_id)

    async def prepare_run(
        self, principal: Principal | None, owner: str, state: StoredRun
    ) -> Run | None:
        """The run, ready to go on; None: it has ended."""
        was_begun, was_lost = state.place >= 0, bool(state.server)
        now = time.time()
        recent = [when for when in state.attempts if when > now - SUSPENSION_SECONDS]
        is_suspended = was_lost and len(recent) >= MAX_TAKEOVERS
        error = SUSPENDED if is_suspended else LOST if not state.request else ""
        if principal is None or error:
            await end_run(self._objects, owner, state, error or UNOWNED)
            return None
        state.server = self._instance.token
        self._note_files(state)
        if was_lost:
            state.attempts = (*state.attempts, now)
            self._runs.takeovers += 1
        asked = decode_request(state.request)
        request = asked
        if was_begun:
            sessions = self._turns.sessions
            begun = await sessions.find_begun_turn(asked, state.session_id, state.place)
            if begun is None:
                state.output = await sessions.find_last_answer(state.session_id)
                await end_run(self._objects, owner, state)
                return None
            request = begun
        past = PastFrames(0, "")
        if was_begun or was_lost:
            past = await read_past(self._objects, state.run_id)
        run = Run(self._turns, self._objects, principal, request, state)
        run.continue_after(past, begun=request is not asked, lost=was_lost)
        if was_lost:  # otherwise it is saved when it begins
            await save_run(self._objects, owner, state)
        return run

    def _note_files(self, state: StoredRun) -> None:
        """Have the model told when what it wrote is not here."""
        here = self._instance.node if self._instance.has_own_files else ""
        if state.files and state.files != here and state.place >= 0:
            follows = self._turns.sessions.folders is not None
            state.guidance = (*state.guidance, FILES_OLDER if follows else FILES_GONE)
        state.files = here

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
