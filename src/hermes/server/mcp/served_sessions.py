"""The conversations that clients have with the agent, and what happens in all of them."""

import asyncio
from collections import deque
from contextlib import suppress
from typing import Any, Literal, TypeAlias

from hermes.app.runtime import Runtime
from hermes.app.session import Session
from hermes.core.errors import ToolError
from hermes.core.events import Answer, Approval, TurnEnd
from hermes.core.message import user_message
from hermes.server.mcp.stored_conversations import describe_session

SOURCE = "mcp"
Decision: TypeAlias = Literal["allow-once", "allow-session", "deny"]
_ANSWERS: dict[Decision, Answer] = {
    "allow-once": "once",
    "allow-session": "session",
    "deny": "deny",
}
_MAX_SESSIONS = 20
_MAX_EVENTS = 1000
_WATCHED_SESSIONS = 50
_POLL_SECONDS = 0.5
_MAX_ARGUMENTS, _SHOWN_END = 2000, 900


def _show_ends(arguments: str) -> str:
    """Arguments in limited size; of long ones both ends, since what matters may be at either."""
    if len(arguments) <= _MAX_ARGUMENTS:
        return arguments
    hidden = len(arguments) - 2 * _SHOWN_END
    return f"{arguments[:_SHOWN_END]} [… {hidden} characters …] {arguments[-_SHOWN_END:]}"


class ServedSessions:
    """Sessions stay open between questions; the one unused longest is closed when there are too
    many. An approval that no client answers in time is denied."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._sessions: dict[str, Session] = {}
        self._events: deque[dict[str, Any]] = deque(maxlen=_MAX_EVENTS)
        self._cursor = 0
        self._opening = asyncio.Lock()
        self._seen: dict[str, float] | None = None
        """Session -> when it was last changed; None: nobody asked for events yet."""

    async def ask_agent(self, prompt: str, session_id: str) -> dict[str, Any]:
        """The answer to a prompt, in a new conversation or in this one."""
        if not prompt.strip():
            raise ToolError("The prompt is empty.")
        async with self._opening:  # two questions to one conversation open it once
            session = await self._open_session(session_id)
        answer = session.submit(user_message(prompt))
        try:
            result = await answer
        except asyncio.CancelledError:
            if not answer.done():
                session.stop()
            raise
        self._sessions[session.id] = session  # it has another id after a compression
        row = {"session_id": session.id, "text": result.text, "status": result.status}
        return {**row, "error": result.error} if result.error else row

    async def _open_session(self, session_id: str) -> Session:
        claims = self._runtime.claims
        session = self._sessions.pop(session_id, None)
        if session is None:
            if session_id and claims.is_taken(session_id):
                raise ToolError(
                    f"{session_id} is open elsewhere; nothing was asked. Close it there."
                )
            session = await self._runtime.open_session(
                resume=session_id, source=SOURCE, cwd=None if session_id else self._folder
            )
            claims.claim_session(session.id)
            session.interactions.user_present = True
            self._runtime.spawn_task(self._follow_events(session), f"MCP client {session.id}")
        self._sessions[session.id] = session
        idle = [s for s in self._sessions.values() if not s.is_busy and s is not session]
        if len(self._sessions) > _MAX_SESSIONS and idle:
            await self._close_session(idle[0])
        return session

    async def _close_session(self, session: Session) -> None:
        """Close a session, which may be known by several ids: it gets another one when it is
        compressed."""
        for name in [name for name, known in self._sessions.items() if known is session]:
            del self._sessions[name]
            self._runtime.claims.release_session(name)
        await session.close()

    @property
    def _folder(self) -> Any:
        return self._runtime.working_folder

    async def _follow_events(self, session: Session) -> None:
        async for event in session.subscribe_events():
            match event:
                case Approval():
                    self._add_event("permission", session_id=session.id, id=event.id)
                case TurnEnd():
                    self._add_event("answer", session_id=session.id, status=event.result.status)
                case _:
                    pass

    def list_permissions(self) -> list[dict[str, Any]]:
        """The approvals that wait for an answer, oldest first."""
        return [
            {
                "id": approval.id,
                "session_id": session.id,
                "tool": approval.call.name,
                "arguments": _show_ends(approval.call.args),
                "reason": approval.summary,
            }
            for session in self._sessions.values()
            for approval in session.interactions.pending_approvals
        ]

    def answer_permission(self, approval_id: str, decision: Decision) -> None:
        for session in self._sessions.values():
            for approval in session.interactions.pending_approvals:
                if approval.id == approval_id:
                    answer = _ANSWERS[decision]
                    if answer not in approval.choices:
                        raise ToolError(f"{decision} is not offered; use allow-once or deny.")
                    session.interactions.answer_approval(approval_id, answer)
                    return
        raise ToolError(f"Nothing waits for an answer under {approval_id}.")

    async def list_events(self, after: int, limit: int) -> dict[str, Any]:
        """What happened behind the cursor `after`, and the cursor to continue with."""
        await self._note_changes()
        found = [event for event in self._events if event["cursor"] > after][: max(1, limit)]
        return {"events": found, "cursor": found[-1]["cursor"] if found else self._cursor}

    async def wait_for_events(self, after: int, seconds: float, limit: int) -> dict[str, Any]:
        """The same, as soon as there is something."""
        found = await self.list_events(after, limit)
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                while not found["events"]:
                    await asyncio.sleep(_POLL_SECONDS)
                    found = await self.list_events(after, limit)
        return found

    async def _note_changes(self) -> None:
        """Look for messages that other processes have stored."""
        recent = await self._runtime.store.sessions.list_recent(limit=_WATCHED_SESSIONS)
        known, self._seen = self._seen, {meta.id: meta.updated for meta in recent}
        if known is None:
            return
        for meta in reversed(recent):
            if known.get(meta.id) != meta.updated:
                self._add_event("conversation", **describe_session(meta))

    def _add_event(self, kind: str, **fields: Any) -> None:
        self._cursor += 1
        self._events.append({"cursor": self._cursor, "type": kind, **fields})
