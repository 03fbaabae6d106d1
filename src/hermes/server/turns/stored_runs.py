"""Runs as they are stored: their state, and the frames of their events."""

import time
from typing import Any, Literal

import msgspec
from msgspec import Struct

from hermes.core.store import Objects
from hermes.server.http.response_schemas import RunStatus, TokenUsage
from hermes.server.turns import turn_events

KIND = "run"
ENDED = frozenset({"completed", "failed", "cancelled"})
_PAGE_FRAMES = 500
KEPT = (
    "The work so far is kept in its session; to continue, start another run with that session_id."
)
LOST = f"The server stopped during this run. {KEPT}"
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
    origin: str = ""
    """The node that accepted it."""
    files: str = ""
    """The node that has the files it works with; empty: all have them."""
    guidance: tuple[str, ...] = ()
    """What it was told and has not read."""

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


async def save_run(objects: Objects, owner: str, state: StoredRun) -> None:
    await objects.put(KIND, state.run_id, msgspec.msgpack.encode(state), owner=owner)


class PastFrames(Struct, frozen=True):
    """What was told of a run."""

    count: int
    shown: str
    """The text since the last call of a tool: it may be part of an answer that was not recorded."""


async def read_past(objects: Objects, run_id: str) -> PastFrames:
    number, shown = 0, ""
    while page := await objects.read_events(run_id, after=number, limit=_PAGE_FRAMES):
        number += len(page)
        for frame in page:
            if b"\nevent: message.delta\n" in frame:
                data = frame.partition(b"\ndata: ")[2].partition(b"\n")[0]
                shown += msgspec.json.decode(data)["delta"]
            elif b"\nevent: tool." in frame:
                shown = ""
    return PastFrames(number, shown)


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
