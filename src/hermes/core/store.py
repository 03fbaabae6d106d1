"""The seam between sessions and durable storage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from hermes.core.message import Message

State: TypeAlias = Literal["idle", "running", "interrupted", "partial", "failed"]
"""Of a session's last turn. A `running` turn whose process is gone reads as `interrupted`."""


class SessionMeta(Struct, frozen=True):
    id: str
    source: str = "cli"
    """Which surface it belongs to: cli, api, telegram, ..."""
    key: str = ""
    """Where it lives on that surface: a chat, a channel; empty for one-shots."""
    cwd: str = ""
    title: str = ""
    system: str = ""
    """Frozen at birth: a byte-stable prefix is what keeps prompt caches warm."""
    model: str = ""
    parent: str = ""
    """Compression and branching start a child instead of editing the past."""
    state: State = "idle"
    created: float = 0.0
    updated: float = 0.0
    messages: int = 0


class Hit(Struct, frozen=True):
    session: SessionMeta
    seq: int
    role: str
    snippet: str


class Store(Protocol):
    """All methods are awaited; a returned append is on disk (synchronous=FULL)."""

    async def create(self, meta: SessionMeta) -> None: ...
    async def append(
        self,
        session_id: str,
        messages: Sequence[Message],
        *,
        state: State | None = None,
        create: SessionMeta | None = None,
    ) -> None:
        """Add messages, set the state and (first message) create the session: one transaction."""
        ...

    async def set_state(self, session_id: str, state: State) -> None: ...
    async def meta(self, session_id: str) -> SessionMeta | None: ...
    async def load(self, session_id: str) -> list[Message]: ...
    async def sessions(self, *, limit: int = 50, cwd: str | None = None) -> list[SessionMeta]: ...
    async def search(self, query: str, *, limit: int = 20) -> list[Hit]: ...
    async def delete(self, session_id: str) -> bool: ...
    async def backup(self, path: str) -> None: ...
    async def close(self) -> None: ...
