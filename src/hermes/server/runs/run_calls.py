"""The calls of tools that a run makes: which are open, and which have begun."""

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager

from hermes.app.session import Session
from hermes.core.message import ToolCall
from hermes.server.turns.stored_runs import CallMarks


class RunCalls:
    """A call has begun when its mark is stored. One that asks before it does anything has not begun
    while it waits for an answer."""

    def __init__(self, marks: CallMarks, run_id: str) -> None:
        self._marks = marks
        self._run_id = run_id
        self._session: Session | None = None
        self._shown: set[str] = set()
        self._open: set[str] = set()
        self._begun: dict[str, ToolCall] = {}
        self._has_marks = False

    def watch_session(self, session: Session) -> None:
        self._session = session
        session.host.mark_call = self._mark_begun
        session.interactions.suspend_call = self._suspend_call

    def note_start(self, call_id: str) -> None:
        self._shown.add(call_id)
        self._open.add(call_id)

    def note_end(self, call_id: str) -> bool:
        """Whether its start was shown."""
        self._open.discard(call_id)
        inner = f"{call_id}."  # calls that it made itself
        for begun in [id for id in self._begun if id == call_id or id.startswith(inner)]:
            del self._begun[begun]
        return call_id in self._shown

    def are_waiting(self, asked: Collection[str]) -> bool:
        """Whether all that are open wait for approvals, `asked` for the calls of these ids."""
        return bool(asked) and not self._begun and self._open <= set(asked)

    async def list_begun(self) -> frozenset[str]:
        """The calls that a server before this one began."""
        assert self._session is not None
        found = await self._marks.list_started(self._session.id, self._run_id)
        self._has_marks = bool(found)
        return found

    async def close(self, unknown: Sequence[str]) -> None:
        """The run has ended; nobody knows how the `unknown` calls did."""
        if self._has_marks and self._session is not None:
            await self._marks.close_run(self._session.id, self._run_id, unknown)

    async def _mark_begun(self, call: ToolCall) -> None:
        assert self._session is not None
        self._has_marks = True
        self._begun[call.id] = call
        await self._marks.mark_started(self._session.id, self._run_id, call.id)

    @asynccontextmanager
    async def _suspend_call(self, call: ToolCall) -> AsyncIterator[None]:
        session = self._session
        tool = session.agent.tools.get(call.name) if session is not None else None
        asks_first = tool is not None and tool.asks_itself
        if session is None or not asks_first or self._begun.get(call.id) != call:
            yield
            return
        await self._marks.remove_mark(session.id, self._run_id, call.id)
        del self._begun[call.id]
        yield
        await self._mark_begun(call)
