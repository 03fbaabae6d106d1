"""Records the turns of a session on tapes, from which they can be played again."""

from __future__ import annotations

import hashlib
import logging
import secrets
import time
import zlib
from collections import ChainMap
from collections.abc import Collection, Iterable, Mapping
from random import Random
from typing import Any

import msgspec
from msgspec import Struct, structs

from hermes.agent.turn import Agent, Compression, EndpointLessons, Turn, TurnLimits, TurnMode
from hermes.app.extensions.run_time_tools import SessionTools
from hermes.app.live.tape_redaction import redact_entries
from hermes.app.transcript import Transcript
from hermes.core.errors import StoreError
from hermes.core.events import TurnResult
from hermes.core.message import Message, Target
from hermes.core.provider import Settings, ToolSpec
from hermes.core.store import Store
from hermes.core.tool import Risk, Tool
from hermes.llm.endpoints.endpoint import ModelEndpoint, strip_endpoint
from hermes.llm.http.tape import CHANCE, JOB, TAPE, TapeEntry, TurnTape
from hermes.tools.registry import list_tool_names
from hermes.version import VERSION

log = logging.getLogger(__name__)

TAPE_KIND, AGENT_KIND = "tape", "tape_agent"
_KEPT_AGENTS = 64
"""Sessions with tools of their own have an agent of their own: most are never seen again."""


class ToolTraits(Struct, frozen=True, omit_defaults=True):
    """What the loop must know of a tool besides its spec."""

    name: str
    risk: Risk = "read"
    exclusive: bool = False
    lasting: bool = False


class AgentRecord(Struct, frozen=True, omit_defaults=True):
    """The models, tools and limits of a turn, without secrets."""

    endpoints: tuple[ModelEndpoint, ...]
    specs: tuple[ToolSpec, ...] = ()
    tools: tuple[str, ...] = ()
    """The names of all tools, also of those that requests do not declare."""
    traits: tuple[ToolTraits, ...] = ()
    """Of the tools made at run time."""
    settings: Settings = Settings()
    limits: TurnLimits = TurnLimits()
    compression: Compression = Compression()
    small: bool = False
    client_tools: tuple[str, ...] = ()


class StoredAgent(Struct, frozen=True):
    """An agent that is stored already; it is kept, so that no other one has its identity."""

    agent: Agent
    tools: tuple[str, ...]
    digest: str


class TapeTurn(Struct, omit_defaults=True):
    """Everything that a turn depended on besides its stored messages."""

    session: str
    first: int
    """The index of its first message in the stored session."""
    mode: TurnMode
    at: float
    """When it began, in seconds since 1970."""
    seed: int
    """Of the random numbers that spread waits."""
    agent: str
    """The digest of its AgentRecord."""
    version: str = VERSION
    is_opened: bool = False
    """Whether the session was opened for this turn."""
    is_lazy: bool = False
    """Whether it is compressed only when a prompt would not fit."""
    system: str | None = None
    """The system prompt if it is not the stored one."""
    lessons: tuple[tuple[Target, EndpointLessons], ...] = ()
    refused: tuple[tuple[Target, int], ...] = ()
    """Up to which message each model gets no images."""
    history: tuple[Message, ...] | None = None
    """The messages before it, if a client sent them."""
    entries: list[TapeEntry] = []
    status: str = ""
    pending_steer: str = ""


class SessionTape:
    """Records the turns of one session. A tape that cannot be stored is dropped: the conversation
    goes on."""

    def __init__(self, store: Store, agents: dict[int, StoredAgent]) -> None:
        """`agents`: the last ones that sessions of this process have stored."""
        self._store = store
        self._agents = agents
        self._tape: TurnTape | None = None
        self._last_request = b""
        self._turn: TapeTurn | None = None
        self._traits: dict[str, ToolTraits | None] = {}
        """Of the tools of the turn that may be gone when it ends."""

    def begin_turn(
        self, agent: Agent, turn: Turn, transcript: Transcript, mode: TurnMode, *, is_opened: bool
    ) -> None:
        """Begin a tape for the turn that this task is about to run."""
        seed = secrets.randbits(32)
        turn.host.jitter = Random(seed).uniform
        past = transcript.client_history
        first = transcript.last_seq + 1
        if past is not None and not transcript.stored:
            first = len(past.messages)
        messages = turn.history.messages
        targets = [client.target for client in agent.providers]
        self._turn = TapeTurn(
            transcript.id,
            first if mode == "new" else first - 1,
            mode,
            time.time(),
            seed,
            "",
            is_opened=is_opened,
            is_lazy=past is not None,
            system=None if turn.system == transcript.meta.system else turn.system,
            lessons=tuple(
                (t, _copy_lessons(turn.learned[t])) for t in targets if t in turn.learned
            ),
            refused=tuple((t, n) for t, n in turn.history.refused.items() if isinstance(t, Target)),
            history=tuple(messages) if past is not None else None,
        )
        self._traits = _describe_tools(agent)
        self._tape = TurnTape(self._last_request)
        TAPE.set(self._tape)
        JOB.set("")  # a subagent is started inside a tool
        CHANCE.set(Random(seed))

    async def end_turn(self, agent: Agent, result: TurnResult) -> None:
        """Store the tape of the turn that has ended."""
        tape, turn = self._tape, self._turn
        if tape is None or turn is None:
            return
        self._tape = self._turn = None
        if result.status == "interrupted":
            tape.note_choice("interrupt", tape.steps)
        turn.entries = tape.finish_entries()
        self._last_request = tape.last_request
        redact_entries(turn.entries, agent.redactor, result.messages, is_first=not turn.first)
        turn.status, turn.pending_steer = result.status, result.pending_steer
        name = f"{turn.session}/{time.time_ns():020}"
        try:
            turn.agent = await self._store_agent(agent)
            body = zlib.compress(msgspec.msgpack.encode(turn), 1)
            await self._store.objects.put(TAPE_KIND, name, body, owner=turn.session)
        except StoreError as error:
            log.warning("the tape of session %s was not stored: %s", turn.session, error)

    async def _store_agent(self, agent: Agent) -> str:
        """Tools are made and removed while an agent works: a call may mean any that was there."""
        traits = {**self._traits, **_describe_tools(agent)}
        known = self._agents.get(id(agent))
        if known is not None and known.tools == tuple(traits):
            return known.digest
        body = msgspec.msgpack.encode(_describe_agent(agent, traits))
        digest = hashlib.sha256(body).hexdigest()[:32]
        if all(other.digest != digest for other in self._agents.values()):
            await self._store.objects.add(AGENT_KIND, digest, zlib.compress(body))
        while len(self._agents) >= _KEPT_AGENTS:
            del self._agents[next(iter(self._agents))]
        self._agents[id(agent)] = StoredAgent(agent, tuple(traits), digest)
        return digest


def _describe_tools(agent: Agent) -> dict[str, ToolTraits | None]:
    """The tools that there are now; the traits of those made at run time."""
    found: dict[str, ToolTraits | None] = dict.fromkeys(agent.tools)
    built_in = list_tool_names().difference(_list_made_tools(agent.tools))
    for name in found.keys() - built_in:
        if tool := agent.tools.get(name):
            found[name] = ToolTraits(name, tool.risk, tool.exclusive, tool.lasting)
    return found


def _list_made_tools(tools: Mapping[str, Tool[Any]]) -> Collection[str]:
    """The names of tools that no module defines, also of those named like a built-in one that was
    left out."""
    match tools:
        case SessionTools():
            return {*_list_made_tools(tools.selected), *tools.list_made()}
        case ChainMap():
            return {*tools.maps[0], *_list_made_tools(tools.maps[1])}
    return ()


def _describe_agent(agent: Agent, traits: Mapping[str, ToolTraits | None]) -> AgentRecord:
    return AgentRecord(
        tuple(strip_endpoint(client.endpoint) for client in agent.providers),
        agent.specs,
        tuple(traits),
        tuple(filter(None, traits.values())),
        agent.settings,
        agent.limits,
        agent.compression,
        agent.small,
        tuple(sorted(agent.client_tools)),
    )


async def load_tape(store: Store, session_id: str) -> list[TapeTurn]:
    """The recorded turns of a session, in order."""
    decoder = msgspec.msgpack.Decoder(TapeTurn)
    found = await store.objects.list_all(TAPE_KIND, owner=session_id)
    turns = [decoder.decode(zlib.decompress(row.body)) for row in found]
    return sorted(turns, key=lambda turn: turn.at)


async def load_agents(store: Store, digests: Iterable[str]) -> Mapping[str, AgentRecord]:
    found: dict[str, AgentRecord] = {}
    for digest in digests:
        row = await store.objects.get(AGENT_KIND, digest, owner="")
        if row is not None and digest not in found:
            body = zlib.decompress(row.body)
            found[digest] = msgspec.msgpack.decode(body, type=AgentRecord)
    return found


def _copy_lessons(lessons: EndpointLessons) -> EndpointLessons:
    quirks: dict[str, Any] = dict(lessons.quirks)
    return structs.replace(lessons, quirks=quirks)
