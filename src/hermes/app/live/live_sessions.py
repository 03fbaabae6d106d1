"""The open sessions of this process, the stored ones of others, and who watches them."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any, Protocol

from hermes.app.live.conversation import LiveConversations
from hermes.app.live.live_session import CHANGED_FILES, LiveSession
from hermes.app.live.stored_diffs import save_diff
from hermes.app.runtime import Runtime
from hermes.app.session import Session
from hermes.core.errors import StoreError
from hermes.core.store import Objects, SessionMeta
from hermes.store.tables.tenancy import enter_tenant

GROWN = "grown"
"""The event of a session of another process whose data is the place of its last message."""
CHANGED = "session"
DELETED = "session.deleted"
"""The events whose data is the SessionMeta, of a deleted one as it was."""
POLL_SECONDS = 0.8
_LISTED = 50


class Watcher(Protocol):
    tenant: int

    @property
    def watched(self) -> frozenset[str]:
        """The sessions whose events it gets; it gets changes of all of its tenant."""

    def put(self, session_id: str, name: str, data: Any) -> None: ...


class LiveSessions:
    """Every session that this process opens is followed from its first step. Sessions of other
    processes are read from the store while somebody watches."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._live: dict[str, LiveSession] = {}
        self._watchers: list[Watcher] = []
        self._poll: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._known: dict[int, dict[str, SessionMeta]] = {}
        """The sessions as the store had them last, by tenant; none: it was not asked yet."""
        self._began: dict[int, float] = {}
        """When the first watcher of a tenant came."""
        self.conversations = LiveConversations(runtime, self.find_session)
        runtime.on_session = self._follow_session

    @property
    def objects(self) -> Objects:
        return self._runtime.store.objects

    @property
    def sessions(self) -> tuple[LiveSession, ...]:
        return tuple(self._live.values())

    def find_session(self, session_id: str) -> LiveSession | None:
        return self._live.get(session_id)

    def is_busy(self, session_id: str) -> bool:
        live = self._live.get(session_id)
        return live is not None and live.session.is_busy

    def add_watcher(self, watcher: Watcher) -> None:
        self._watchers.append(watcher)
        self._began.setdefault(watcher.tenant, time.time())
        self._wake.set()
        if self._poll is None:
            self._poll = self._runtime.spawn_task(self._poll_store(), "sessions of others")

    def remove_watcher(self, watcher: Watcher) -> None:
        self._watchers.remove(watcher)
        if not self._watchers and self._poll is not None:
            self._poll.cancel()
            self._poll = None
            self._known, self._began = {}, {}

    async def close(self) -> None:
        self._runtime.on_session = lambda session: None
        await self.conversations.close_all()

    def _follow_session(self, session: Session) -> None:
        live = LiveSession(session, self._publish)
        self._live[session.id] = live
        live.on_close = self._forget_session

    def _forget_session(self, live: LiveSession) -> None:
        if self._live.get(live.id) is live:
            del self._live[live.id]

    def _publish(self, session_id: str, name: str, data: Any) -> None:
        if name == "moved" and (live := self._live.pop(session_id, None)):
            self._live[data["to"]] = live
        if name == CHANGED_FILES:
            objects = self._runtime.store.objects
            saving = save_diff(objects, session_id, data["call"], data["diff"])
            self._runtime.spawn_task(saving, f"changes of {data['call']}")
            return
        for watcher in self._watchers:
            if session_id in watcher.watched:
                watcher.put(session_id, name, data)
        if name in ("turns", "end", "approval", "question", "resolved", "moved"):
            self._wake.set()

    async def _poll_store(self) -> None:
        """Tell the watchers what changed in the store, at most a second after it did."""
        while True:
            self._wake.clear()
            tenants = {watcher.tenant for watcher in self._watchers}
            for tenant in self._began.keys() - tenants:
                self._known.pop(tenant, None)
                del self._began[tenant]
            for tenant in tenants:
                with suppress(StoreError), enter_tenant(tenant):  # the next round tries again
                    await self._compare_stored(tenant)
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await self._wake.wait()

    async def _compare_stored(self, tenant: int) -> None:
        sessions = self._runtime.store.sessions
        found = {meta.id: meta for meta in await sessions.list_recent(limit=_LISTED)}
        watchers = [watcher for watcher in self._watchers if watcher.tenant == tenant]
        watched = {id for watcher in watchers for id in watcher.watched}
        known = self._known.get(tenant)
        if known is None:
            began = self._began[tenant]
            known = {id: meta for id, meta in found.items() if meta.updated < began}
        for session_id in (watched | known.keys()) - found.keys():
            if meta := await sessions.get_meta(session_id):
                found[session_id] = meta
        for session_id in known.keys() - found.keys():
            self._tell_all(tenant, DELETED, known[session_id])
        for session_id, meta in found.items():
            before = known.get(session_id)
            if before != meta or self._has_news(session_id):
                self._tell_all(tenant, CHANGED, meta)
            # At first it is not known with how many messages a watcher began.
            if tenant not in self._known or before is None or before.messages != meta.messages:
                self._tell_growth(meta)
        latest = sorted(found.values(), key=lambda meta: -meta.updated)[: 2 * _LISTED]
        self._known[tenant] = {meta.id: meta for meta in latest} | {
            id: found[id] for id in watched & found.keys()
        }

    def _tell_growth(self, meta: SessionMeta) -> None:
        if meta.id in self._live:
            return
        for watcher in self._watchers:
            if meta.id in watcher.watched:
                watcher.put(meta.id, GROWN, meta.messages - 1)

    def _has_news(self, session_id: str) -> bool:
        """Whether what only this process knows has changed: who works, who waits."""
        live = self._live.get(session_id)
        if live is None:
            return False
        news = (live.session.is_busy, live.is_waiting)
        changed = live.shown != news
        live.shown = news
        return changed

    def _tell_all(self, tenant: int, name: str, meta: SessionMeta) -> None:
        for watcher in self._watchers:
            if watcher.tenant == tenant:
                watcher.put(meta.id, name, meta)
