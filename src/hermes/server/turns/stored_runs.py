"""Runs as they are stored: their state, and the frames of their events."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec
from msgspec import Struct

from hermes.core.events import Answer
from hermes.core.store import Objects
from hermes.server.http.response_schemas import RunStatus, TokenUsage
from hermes.server.turns import turn_events

KIND = "run"
CALL_KIND = "call"
ENDED = frozenset({"completed", "failed", "cancelled"})
_PAGE_FRAMES = 500
_SHOWN = ("approval_id", "command", "reason", "choices")
KEPT = (
    "The work so far is kept in its session; to continue, start another run with that session_id."
)
LOST = f"The server stopped during this run. {KEPT}"
UNOWNED = (
    "The key that started this run is not accepted any more: it was removed, or its tenant is "
    f"suspended. {KEPT}"
)
UNSTORED = f"The end of this run could not be stored. {KEPT}"
SUSPENDED = f"This run was taken over 3 times in 10 minutes and is suspended. {KEPT}"


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
    choice: Answer
    applied: Answer | None = None
    """Present when less was granted than chosen: once, or for the session."""


class EarlyAnswer(Struct, frozen=True):
    """To an approval that is to be asked again: what was chosen, and what is granted."""

    approval_id: str
    choice: Answer
    applied: Answer


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
    origin: str = ""
    """The node that accepted it."""
    files: str = ""
    """The node that has the files it works with; empty: all have them."""
    guidance: tuple[str, ...] = ()
    """What it was told and has not read."""
    unknown: tuple[str, ...] = ()
    """The calls that ran when a server died: nobody knows how they ended."""
    answers: tuple[EarlyAnswer, ...] = ()

    @property
    def node(self) -> str:
        """The node that works on it; empty: none yet."""
        return self.server.partition("#")[0]

    @property
    def has_ended(self) -> bool:
        return self.status in ENDED

    def build_run_object(self) -> RunObject:
        names = RunObject.__struct_fields__[1:]
        return RunObject("hermes.run", *(getattr(self, name) for name in names))


class CallMarks(Protocol):
    """The calls that have begun: what is known of them when their server dies."""

    async def mark_started(self, session_id: str, run_id: str, call_id: str) -> None: ...

    async def remove_mark(self, session_id: str, run_id: str, call_id: str) -> None:
        """It has not begun after all."""

    async def list_started(self, session_id: str, run_id: str) -> frozenset[str]: ...

    async def close_run(self, session_id: str, run_id: str, unknown: Sequence[str]) -> None:
        """Nobody knows how the `unknown` ones ended; the others are done."""


class StoredMarks:
    """Marks of a home; those of a run are deleted when it has ended."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    async def mark_started(self, session_id: str, run_id: str, call_id: str) -> None:
        await self._objects.put(CALL_KIND, f"{run_id}/{call_id}", b"", owner=run_id)

    async def remove_mark(self, session_id: str, run_id: str, call_id: str) -> None:
        await self._objects.remove(CALL_KIND, f"{run_id}/{call_id}", owner=run_id)

    async def list_started(self, session_id: str, run_id: str) -> frozenset[str]:
        found = await self._objects.list_all(CALL_KIND, owner=run_id)
        return frozenset(mark.id.removeprefix(f"{run_id}/") for mark in found)

    async def close_run(self, session_id: str, run_id: str, unknown: Sequence[str]) -> None:
        await self._objects.trim(CALL_KIND, 0, owner=run_id, spare=())


async def save_run(objects: Objects, owner: str, state: StoredRun) -> None:
    await objects.put(KIND, state.run_id, msgspec.msgpack.encode(state), owner=owner)


class PastFrames(Struct, frozen=True):
    """What was told of a run."""

    count: int
    shown: str
    """The text since the last call of a tool: it may be part of an answer that was not recorded."""
    asked: Mapping[str, Mapping[str, Any]] = {}
    """The approvals that wait for an answer, by id, as they were shown."""


async def read_past(objects: Objects, run_id: str) -> PastFrames:
    number, shown = 0, ""
    asked: dict[str, dict[str, Any]] = {}
    while page := await objects.read_events(run_id, after=number, limit=_PAGE_FRAMES):
        number += len(page)
        for frame in page:
            if b"\nevent: message.delta\n" in frame:
                shown += _read_data(frame)["delta"]
            elif b"\nevent: tool." in frame:
                shown = ""
                if b"\nevent: tool.completed\n" in frame:
                    asked.pop(_read_data(frame)["toolCallId"], None)
            elif b"\nevent: approval.request\n" in frame:
                data = _read_data(frame)
                asked[data["approval_id"]] = {name: data[name] for name in _SHOWN}
            elif b"\nevent: approval.responded\n" in frame:
                asked.pop(_read_data(frame)["approval_id"], None)
    return PastFrames(number, shown, asked)


def _read_data(frame: bytes) -> Any:
    return msgspec.json.decode(frame.partition(b"\ndata: ")[2].partition(b"\n")[0])


async def end_run(objects: Objects, owner: str, state: StoredRun, error: str = "") -> None:
    """Tell the end of a run that nobody works on: as failed with this error, as cancelled, or with
    its output as completed."""
    data: dict[str, Any] = {}
    if error:
        state.status, state.error, data = "failed", error, {"error": error}
    elif state.output is None:
        state.status = "cancelled"
    else:
        state.status, data = "completed", {"output": state.output, "usage": state.usage}
    name = state.last_event = f"run.{state.status}"
    state.updated_at = time.time()
    number = (await read_past(objects, state.run_id)).count + 1
    last = turn_events.encode_event(name, {"run_id": state.run_id}, data, str(number))
    await objects.append_events(state.run_id, number, [last])
    await save_run(objects, owner, state)
