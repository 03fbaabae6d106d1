"""The feed of one browser: what is recorded, what is not yet, and what happens, over sessions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from hermes.app.live.live_sessions import CHANGED, DELETED, LiveSessions
from hermes.app.live.stored_diffs import load_diffs
from hermes.core.store import SessionMeta, SessionStore, StoredMessage
from hermes.server.turns.message_objects import describe_stored
from hermes.server.turns.sse import encode_frame

FLUSH_SECONDS = 0.033
CHECK_SECONDS = 5.0
"""How long a feed may go on after its browser was signed out by another process."""
MAX_WATCHED = 20
_FIRST_MESSAGES = 100
"""How many messages a page gets that knows none."""
_PAGE = 200
_MAX_UNSENT = 20_000
_JOINED = ("delta", "reasoning")
DescribeSession: TypeAlias = Callable[[SessionMeta], Awaitable[Any]]


class Feed:
    """Joins the events of many sessions for one reader. It subscribes and takes the snapshot of a
    session in one step, so that nothing is lost or doubled between them."""

    def __init__(  # noqa: PLR0913 - whose feed it is, and what it may show
        self,
        live: LiveSessions,
        sessions: SessionStore,
        watched: Mapping[str, int],
        *,
        tenant: int,
        may_see: Callable[[SessionMeta], bool],
        describe: DescribeSession,
        is_signed_in: Callable[[], Awaitable[bool]],
    ) -> None:
        self.reader = ""
        """Who reads; of one reader only the latest feed goes on. Empty: nobody in particular."""
        self.tenant = tenant
        self.watched = frozenset(watched)
        self._live = live
        self._sessions = sessions
        self._known = dict(watched)
        """By session: the place of the last message that was sent."""
        self._may_see = may_see
        self._describe = describe
        self._is_signed_in = is_signed_in
        self._needs_check = False
        self._events: list[tuple[str, str, Any]] = []
        self._wake = asyncio.Event()
        self._bye = ""
        self._is_replaced = False

    def put(self, session_id: str, name: str, data: Any) -> None:
        if name in (CHANGED, DELETED) and not self._may_see(data):
            return
        if name == "moved":  # what happens there from this step on
            self.watched |= {data["to"]}
            self._known.setdefault(data["to"], -1)
        if name in _JOINED and self._events and self._events[-1][:2] == (session_id, name):
            self._events[-1][2]["text"] += data["text"]
            return
        if len(self._events) >= _MAX_UNSENT:
            self.end("slow")
            return
        self._events.append((session_id, name, dict(data) if name in _JOINED else data))
        self._wake.set()

    def end(self, reason: str) -> None:
        self._bye = self._bye or reason
        self._wake.set()

    def replace(self) -> None:
        """End without a word: its reader has opened another. Browsers hold a connection that they
        have left for seconds, and they have few."""
        self._is_replaced = True
        self._wake.set()

    def request_check(self) -> None:
        """End soon unless its reader is still signed in."""
        self._needs_check = True
        self._wake.set()

    async def stream_frames(self, hello: dict[str, Any]) -> AsyncIterator[bytes]:
        """The frames, until `end`; text is sent at most every FLUSH_SECONDS, joined."""
        loop = asyncio.get_running_loop()
        check = loop.call_later(CHECK_SECONDS, self.request_check)
        self._live.add_watcher(self)
        try:
            snapshots = {id: self._take_snapshot(id) for id in self.watched}
            yield encode_frame("hello", {**hello, "now": time.time()})
            for session_id, (boundary, snapshot) in snapshots.items():
                async for frame in self._send_messages(session_id, boundary):
                    yield frame
                yield encode_frame("snapshot", {"session": session_id, **snapshot})
            sent = 0.0
            while not self._bye and not self._is_replaced:
                await self._wake.wait()
                if (early := sent + FLUSH_SECONDS - loop.time()) > 0:
                    await asyncio.sleep(early)
                self._wake.clear()
                if self._needs_check:
                    if not await self._is_signed_in():
                        return
                    self._needs_check = False
                    check = loop.call_later(CHECK_SECONDS, self.request_check)
                if data := await self._encode_events():
                    sent = loop.time()
                    yield data
            if self._bye:
                yield encode_frame("bye", {"reason": self._bye})
        finally:
            check.cancel()
            self._live.remove_watcher(self)

    async def _encode_events(self) -> bytes:
        events, self._events = self._events, []
        return b"".join([frame for event in events async for frame in self._encode_event(*event)])

    def _take_snapshot(self, session_id: str) -> tuple[int | None, dict[str, Any]]:
        """The place of the last message before it, and the snapshot."""
        live = self._live.find_session(session_id)
        if live is None:
            return None, EMPTY_SNAPSHOT
        return live.last_seq, live.describe()

    async def _send_messages(self, session_id: str, boundary: int | None) -> AsyncIterator[bytes]:
        """What was recorded since the page last knew, up to the snapshot."""
        if self._known[session_id] >= 0:
            async for frame in self._read_messages(session_id, boundary):
                yield frame
            return
        before = 1 << 24 if boundary is None else boundary + 1
        found = await self._sessions.load_window(
            session_id, before=before, limit=_FIRST_MESSAGES, last=True
        )
        for stored in found:
            yield await self._encode_message(session_id, stored)

    async def _read_messages(self, session_id: str, upto: int | None) -> AsyncIterator[bytes]:
        before = 1 << 24 if upto is None else upto + 1
        while self._known[session_id] + 1 < before:
            known = self._known[session_id]
            found = await self._sessions.load_window(
                session_id, after=known, before=before, limit=_PAGE, last=False
            )
            for stored in found:
                yield await self._encode_message(session_id, stored)
            if len(found) < _PAGE:
                return

    async def _encode_message(self, session_id: str, stored: StoredMessage) -> bytes:
        self._known[session_id] = stored.seq
        diffs = await load_diffs(self._live.objects, session_id, (stored,))
        described = describe_stored(stored, str, diffs)
        return encode_frame("message", {"session": session_id, **described})

    async def _encode_event(self, session_id: str, name: str, data: Any) -> AsyncIterator[bytes]:
        match name:
            case "recorded":
                known = self._known.get(session_id, -1)
                if data.seq > known:
                    if data.seq > known + 1 and known >= 0:
                        async for frame in self._read_messages(session_id, data.seq - 1):
                            yield frame
                    yield await self._encode_message(session_id, data)
            case "grown":
                async for frame in self._read_messages(session_id, data):
                    yield frame
            case "session":
                yield encode_frame(CHANGED, {"session": await self._describe(data)})
            case "session.deleted":
                self.watched -= {session_id}
                yield encode_frame(DELETED, {"session": session_id})
            case _:
                concerned = {"session": session_id} if session_id else {}
                yield encode_frame(name, {**concerned, **data})


EMPTY_SNAPSHOT: dict[str, Any] = {
    "busy": False,
    "step": 0,
    "turns": [],
    "partial": {"text": "", "reasoning": "", "tools": []},
    "approvals": [],
    "questions": [],
    "todo": [],
    "usage": {},
    "ended": None,
}
