"""A reply that is changed while it is on its way, where messages cannot be changed."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from hermes.gateway.adapter import Capabilities, Part, PlainPlatform, Receiver, Target
from hermes.gateway.content.reply import Content
from hermes.gateway.outbox import Outbox
from hermes.store.sqlite import SqliteStore


class SlowPlatform(PlainPlatform):
    """Everybody has read a message before the call that sent it returns."""

    capabilities = Capabilities()

    def __init__(self) -> None:
        self.shown: asyncio.Queue[str] = asyncio.Queue()
        self.is_acknowledged = asyncio.Event()

    async def run(self, receiver: Receiver) -> None:
        return None

    async def send_part(self, target: Target, part: Part) -> str:
        self.shown.put_nowait(part.text)
        await self.is_acknowledged.wait()
        return "1"


class NobodyListens:
    async def handle_gone_chat(self, platform: str, chat: str, why: str) -> None: ...

    async def follow_chat(self, platform: str, old: str, new: str) -> None: ...

    async def handle_lost_result(self, job: str, due: int, why: str) -> None: ...

    def note_delivery(self, platform: str) -> None: ...


@pytest.mark.parametrize("is_acknowledged", [True, False])
async def test_what_is_added_arrives(tmp_path: Path, is_acknowledged: bool) -> None:
    store, platform = SqliteStore(tmp_path / "hermes.db"), SlowPlatform()
    store.open()

    def spawn(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        return asyncio.create_task(work, name=name)

    outbox = Outbox(store.mailbox, {"slow": platform}, NobodyListens(), spawn)
    async with asyncio.timeout(60):
        reply = await outbox.post("slow", "alice", Content("May I?"))
        assert await platform.shown.get() == "May I?"
        if is_acknowledged:
            platform.is_acknowledged.set()
            await outbox.wait_until_sent(60)
        await outbox.revise(reply, Content("May I?\nDenied by alice"))
        platform.is_acknowledged.set()
        await outbox.wait_until_sent(60)
        assert await platform.shown.get() == "Denied by alice"
        assert platform.shown.empty()
        await store.close()
