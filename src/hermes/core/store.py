"""The seam between sessions and durable storage."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from hermes.core.ledger import Ledger
from hermes.core.message import Message
from hermes.core.object_store import Objects
from hermes.core.taint import Taint

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
    """Frozen at birth: a byte-stable prefix keeps prompt caches warm. Lists leave it out."""
    model: str = ""
    parent: str = ""
    """Compression and branching start a child instead of editing the past."""
    state: State = "idle"
    created: float = 0.0
    updated: float = 0.0
    messages: int = 0
    taint: Taint = Taint()
    """What it has read; a child starts with its parent's."""
    next: str = ""
    """The child this conversation went on in when it was compressed."""


class Hit(Struct, frozen=True):
    session: SessionMeta
    seq: int
    role: str
    snippet: str


class Stored(Struct, frozen=True):
    """A message and its place in the session."""

    seq: int
    created: float
    message: Message


class Store(Protocol):
    """All methods are awaited; a returned append is on disk (synchronous=FULL).

    Every failure is a StoreError. Cancelling a wait does not undo the write: it happens anyway.
    """

    @property
    def ledger(self) -> Ledger: ...

    @property
    def objects(self) -> Objects: ...

    async def ready(self) -> tuple[str, ...]:
        """Wait until the store is open. What the user should be told, a sentence each."""
        ...

    async def create(self, meta: SessionMeta) -> None: ...
    async def append(
        self,
        session_id: str,
        messages: Sequence[Message],
        *,
        state: State | None = None,
        create: SessionMeta | None = None,
        taint: Taint | None = None,
    ) -> None:
        """Add messages, set the state and (first message) create the session: one transaction.
        Bits of `taint` are added to those the session has.

        Refused while a turn of this session runs in another living process.
        """
        ...

    async def go_on(
        self, session_id: str, child: SessionMeta, messages: Sequence[Message], state: State
    ) -> None:
        """The conversation goes on in a child that begins with these messages: one transaction.
        The parent stays as it is, but for `next`, which leads here."""
        ...

    async def set_state(self, session_id: str, state: State) -> None: ...
    async def describe(
        self, session_id: str, *, title: str | None = None, model: str | None = None
    ) -> None:
        """Change what is said about a session; None leaves it."""
        ...

    async def meta(self, session_id: str) -> SessionMeta | None: ...
    async def load(self, session_id: str) -> list[Message]: ...
    def export(self, session_id: str) -> AsyncIterator[Stored]:
        """All messages in order, fetched piece by piece."""
        ...

    async def sessions(
        self, *, limit: int = 50, cwd: str | None = None, source: str | None = None
    ) -> list[SessionMeta]:
        """The most recently used first; of a compressed conversation only where it goes on."""
        ...

    async def owned(self, owner: str, *, limit: int = 50, offset: int = 0) -> list[SessionMeta]:
        """Those of one owner of the API (`key` is owner/...); the nameless one also has all that
        other surfaces made. The most recently used first."""
        ...

    async def latest(
        self, *, cwd: str | None = None, source: str | None = None, key: str | None = None
    ) -> SessionMeta | None:
        """The most recently used session of this folder, surface, place."""
        ...

    async def find(self, prefix: str, *, limit: int = 20) -> list[SessionMeta]:
        """Sessions whose id starts so."""
        ...

    async def search(self, query: str, *, limit: int = 20) -> list[Hit]:
        """Messages holding all the words and "quoted phrases", best first. Nothing in a query is
        an operator, and no query is an error."""
        ...

    async def delete(self, session_id: str) -> bool:
        """A conversation with all the sessions it was compressed into."""
        ...

    async def backup(self, path: str) -> None:
        """A consistent copy at a path that must not exist yet, while writing goes on."""
        ...

    async def shrink(self) -> None:
        """Give back the room of what was deleted, when it is worth it and nobody is in the way."""
        ...

    async def check(self) -> list[str]:
        """Read the whole file; what is wrong with it, in SQLite's words. Empty: all is well."""
        ...

    async def close(self) -> None: ...
