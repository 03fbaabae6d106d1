"""A platform whose calls are held, fail or are refused as a test says, and an outbox for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from hermes.core.store import MailboxChange
from hermes.core.tool import Workspace
from hermes.gateway.adapter import (
    Capabilities,
    Part,
    PlainPlatform,
    Platform,
    Receiver,
    SendFailure,
    Target,
)
from hermes.gateway.outbox import Outbox
from hermes.store.sqlite import SqliteStore
from hermes.store.tables.mailbox import SqlMailbox

NAME = "gated"
CHAT = "alice"


class GatedPlatform(PlainPlatform):
    """`shown` is what the chat shows; a call is visible before it returns."""

    def __init__(self, capabilities: Capabilities) -> None:
        self.capabilities = capabilities
        self.shown: list[str] = []
        self.calls: asyncio.Queue[str] = asyncio.Queue()
        self.gate = asyncio.Event()
        self.gate.set()
        self.fail: Callable[[str], Exception | None] = lambda text: None
        """Says what a call ends with instead of taking effect."""

    async def run(self, receiver: Receiver) -> None:
        return None

    async def _call(self, text: str) -> None:
        self.calls.put_nowait(text)
        error = self.fail(text)
        await self.gate.wait()
        if error is not None:
            raise error

    async def send_part(self, target: Target, part: Part) -> str:
        await self._call(part.text)
        self.shown.append(part.text)
        return str(len(self.shown) - 1)

    async def edit_part(self, target: Target, id: str, part: Part) -> None:
        await self._call(part.text)
        self.shown[int(id)] = part.text


class Events:
    """What the outbox tells; `gate` holds the news that a chat is gone."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()

    async def handle_gone_chat(self, platform: str, chat: str, why: str) -> None:
        self.gone.set()
        await self.gate.wait()

    async def follow_chat(self, platform: str, old: str, new: str) -> None: ...

    async def handle_lost_result(self, job: str, due: int, why: str) -> None: ...

    def note_delivery(self, platform: str) -> None: ...


class GatedMailbox(SqlMailbox):
    """Changes are held by `gate`, or fail as `fail` says."""

    gate: asyncio.Event
    fail: Callable[[MailboxChange], Exception | None]

    async def apply(self, change: MailboxChange) -> None:
        error = self.fail(change)
        await self.gate.wait()
        if error is not None:
            raise error
        await super().apply(change)


class Delivery:
    """An outbox, the platform it sends to, and its mailbox."""

    def __init__(self, store: SqliteStore, platform: Any, name: str = NAME) -> None:
        self.store = store
        self.platform = platform
        self.events = Events()
        self.mailbox: GatedMailbox = store.mailbox  # type: ignore[assignment]
        self.mailbox.__class__ = GatedMailbox
        self.mailbox.gate = asyncio.Event()
        self.mailbox.gate.set()
        self.mailbox.fail = lambda change: None
        self.tasks: set[asyncio.Task[None]] = set()
        self.outbox = Outbox(store.mailbox, {name: platform}, self.events, self.spawn)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self.tasks.add(task)
        return task

    async def until_sent(self) -> list[str]:
        """What the chat shows when everything has gone out."""
        assert await self.outbox.wait_until_sent(90)
        shown: list[str] = self.platform.shown
        return shown


@asynccontextmanager
async def delivery(folder: Path, **capabilities: Any) -> AsyncIterator[Delivery]:
    settings = {"edits": True, "pace": 0.0, "group_pace": 0.0, **capabilities}
    async with open_delivery(folder, NAME, GatedPlatform(Capabilities(**settings))) as made:
        yield made


@asynccontextmanager
async def open_delivery(folder: Path, name: str, platform: Platform) -> AsyncIterator[Delivery]:
    store = SqliteStore(folder / "hermes.db")
    store.open()
    made = Delivery(store, platform, name)
    try:
        async with asyncio.timeout(90):
            yield made
    finally:
        for task in made.tasks:
            task.cancel()
        await asyncio.gather(*made.tasks, return_exceptions=True)
        await store.close()


def make_workspace(folder: Path) -> Workspace:
    """A session's folder, beside the agent's own."""
    return Workspace(folder, folder.parent / "agent", folder.parent / "agent" / "outputs")


def fail_once(error: Exception) -> Callable[[object], Exception | None]:
    """The first call fails."""
    errors = [error]
    return lambda _: errors.pop() if errors else None


def refuse(kind: Any, times: int = 1) -> Callable[[object], Exception | None]:
    errors = [SendFailure(kind, "refused") for _ in range(times)]
    return lambda _: errors.pop() if errors else None
