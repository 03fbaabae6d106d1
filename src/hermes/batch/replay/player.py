"""Plays a stored session again on its tape, through the real loop, and compares."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import msgspec
from msgspec import Struct, structs

from hermes.agent.loop import run_turn
from hermes.agent.turn import Agent, EndpointLessons, Summarizer, Turn
from hermes.app.auxiliary import AuxiliaryQuestions
from hermes.app.live.session_tape import AgentRecord, TapeTurn
from hermes.batch.replay.difference import ReplayReport
from hermes.batch.replay.played_models import PlayedClients, PlayedJobModels, PlayedMeter
from hermes.batch.replay.played_tape import PlayedTape
from hermes.batch.replay.replay_host import (
    PlayedTools,
    ReplayHost,
    StoredConversation,
    find_turn_end,
    make_workspace,
)
from hermes.batch.replay.stored_answers import STORED, StoredAnswers
from hermes.core.errors import ConfigError
from hermes.core.events import TurnEnd, TurnEvent
from hermes.core.history import History
from hermes.core.message import Message, Target
from hermes.core.store import SessionMeta, Store
from hermes.llm.client import Client
from hermes.llm.endpoints.endpoint import ModelEndpoint
from hermes.llm.http.tape import CHANCE
from hermes.store.sqlite import SqliteStore


async def load_conversation(store: Store, meta: SessionMeta) -> StoredConversation:
    """The session, and those it was compressed from and into, the oldest first."""
    first = meta
    while first.parent:
        above = await store.sessions.get_meta(first.parent)
        if above is None or above.next != first.id:
            break
        first = above
    parts: list[tuple[SessionMeta, list[Message]]] = []
    part: SessionMeta | None = first
    while part is not None:
        parts.append((part, list(await store.sessions.load_messages(part.id))))
        part = await store.sessions.get_meta(part.next) if part.next else None
    return StoredConversation(parts)


class Player:
    """Plays the recorded turns of a conversation, one after the other."""

    def __init__(
        self,
        conversation: StoredConversation,
        turns: Sequence[TapeTurn],
        agents: Mapping[str, AgentRecord],
        scratch: Path,
        store: Store,
    ) -> None:
        meta = next(iter(conversation.metas.values()))
        self.host = ReplayHost(conversation, make_workspace(Path(meta.cwd), scratch))
        self._conversation = conversation
        self._turns = turns
        self._agents = agents
        self._store = store
        self._task: asyncio.Task[object] | None = None
        self._learned: dict[Target, EndpointLessons] = {}
        self._history: History | None = None
        self._clients = PlayedClients(lambda: self.host.tape)
        self._questions = AuxiliaryQuestions(
            PlayedJobModels(self._clients.get_client, lambda: self.host.tape),
            self._learned,
            self.host.sleep,
        )
        self._compressor = self.host.make_compressor(lambda: Summarizer(self._ask_summary))

    async def play_turns(self, to: int | None = None) -> ReplayReport:
        """Play until the first difference; `to`: no further than this step."""
        steps, host, request = 0, self.host, b""
        host.last_step = to
        for turn, after in zip(self._turns, (*self._turns[1:], None), strict=True):
            tape = PlayedTape(turn.entries, self._stop_turn, b"" if turn.is_opened else request)
            tape.steps, request = steps, tape.last_request
            await self._play_turn(turn, tape, after)
            steps = tape.steps
            if tape.difference is None and steps == to:
                return ReplayReport(True, steps)
            if tape.difference is None and (left := tape.left_exchanges):
                tape.note_difference("calls", f"{left[0].method} {left[0].url}".encode(), b"")
            if (missing := host.next_message) is not None:
                tape.note_difference("message", msgspec.json.encode(missing), b"")
            if tape.difference is not None:
                return ReplayReport(False, steps, tape.difference)
        return ReplayReport(True, steps)

    async def _play_turn(self, turn: TapeTurn, tape: PlayedTape, after: TapeTurn | None) -> None:
        """`after`: the next turn, which may begin with a message that is not the user's."""
        host = self.host
        stored = self._conversation.messages[turn.session]
        first = _find_first_message(turn)
        end = find_turn_end(stored, turn.first + 1)
        if after is not None and after.session == turn.session:
            end = max(first, min(end, _find_first_message(after)))
        host.begin_turn(turn.session, first, end, tape)
        host.turn_end = lambda event: TurnEnd(
            structs.replace(event.result, pending_steer=turn.pending_steer)
        )
        agent = self._make_agent(turn.agent)
        self._agent = agent
        self._learned.clear()
        self._learned.update((target, _restore_lessons(found)) for target, found in turn.lessons)
        if turn.is_opened:
            self._compressor = host.make_compressor(self._new_summarizer)
        self._compressor.lazy = turn.is_lazy
        prompt = None if turn.mode == "continue" else stored[turn.first]
        work = self._new_turn(turn, self._find_history(turn, stored[:first]))
        CHANCE.set(Random(turn.seed))
        running = run_turn(agent, work, prompt, recorded=turn.mode == "again")
        task = self._task = asyncio.ensure_future(running)
        with suppress(asyncio.CancelledError):
            await task
        self._history = work.history

    def _new_turn(self, turn: TapeTurn, history: History) -> Turn:
        system = turn.system
        if system is None:
            system = self._conversation.metas[turn.session].system
        self._meter = PlayedMeter(self._store, turn.session, lambda: self.host.tape)
        self.host.jitter = Random(turn.seed).uniform
        return Turn(
            system=system,
            history=history,
            host=self.host,
            learned=self._learned,
            compressor=self._compressor,
            meter=self._meter if self.host.is_strict else None,
        )

    def _find_history(self, turn: TapeTurn, stored: list[Message]) -> History:
        past = list(turn.history) if turn.history is not None else stored
        history = self._history
        if turn.is_opened or history is None or history.messages != past:
            history = self.host.make_history(past)
        history.refused.update(turn.refused)
        return history

    def _make_agent(self, digest: str) -> Agent:
        record = self._agents[digest]
        self.host.is_strict = digest != STORED
        tools = PlayedTools(self.host, record.specs, record.tools)
        tools.traits = {traits.name: traits for traits in record.traits}
        get_client: Callable[[ModelEndpoint], Client] = self._clients.get_client
        if digest == STORED:
            get_client = partial(StoredAnswers, transport=self._clients.transport)
        clients = tuple(map(get_client, record.endpoints))
        for client in clients:
            if isinstance(client, StoredAnswers):
                client.host = self.host
        return Agent(
            clients,
            tools,
            tuple(map(tools.find_spec, record.specs)),
            record.settings,
            record.limits,
            compression=record.compression,
            small=record.small,
            client_tools=frozenset(record.client_tools),
        )

    def _stop_turn(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _new_summarizer(self) -> Summarizer:
        window = self._questions.models.find_window("compression", self._agent)
        return Summarizer(self._ask_summary, window)

    async def _ask_summary(
        self, prompt: Message, *, system: str = "", max_output: int = 1024
    ) -> str:
        return await self._questions.ask_model(
            "compression",
            prompt,
            main=self._agent,
            system=system,
            max_output=max_output,
            meter=self._meter,
        )


def _find_first_message(turn: TapeTurn) -> int:
    """The index of the first message that the turn records."""
    return turn.first if turn.mode == "new" else turn.first + 1


def _restore_lessons(lessons: EndpointLessons) -> EndpointLessons:
    """Lessons as they were before they were encoded: sequences are tuples."""
    quirks = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in lessons.quirks.items()
    }
    return structs.replace(lessons, quirks=quirks)


class PlayedSession(Struct, frozen=True):
    """How a replay ended, and where."""

    report: ReplayReport
    events: tuple[TurnEvent, ...]
    session: str
    """The session in which the last step was."""
    index: int
    """How many of its messages were played."""


def _check_turn(
    turn: TapeTurn, conversation: StoredConversation, agents: Mapping[str, AgentRecord]
) -> None:
    stored = conversation.messages.get(turn.session)
    lowest = 0 if turn.mode == "new" else -1
    problem = ""
    if stored is None:
        problem = f"session {turn.session!r} is not part of the conversation"
    elif not lowest <= turn.first < len(stored):
        problem = f"message {turn.first} is not stored"
    elif turn.agent not in agents:
        problem = f"the agent {turn.agent!r} is missing"
    if problem:
        raise ConfigError(f"The tape does not fit the stored session: {problem}.")


async def play_session(
    conversation: StoredConversation,
    turns: Sequence[TapeTurn],
    agents: Mapping[str, AgentRecord],
    to: int | None = None,
) -> PlayedSession:
    """Play recorded turns in a scratch store; `to`: no further than this step. ConfigError when
    they are not turns of this conversation."""
    for turn in turns:
        _check_turn(turn, conversation, agents)
    with TemporaryDirectory(prefix="hermes-replay-") as folder:
        store = SqliteStore(Path(folder) / "scratch.db")
        try:
            await store.wait_until_open()
            player = Player(conversation, turns, agents, Path(folder), store)
            report = await player.play_turns(to)
            host = player.host
            return PlayedSession(report, tuple(host.events), host.session_id, host.index)
        finally:
            await store.close()
