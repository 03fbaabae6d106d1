"""Chats that messages can be sent to from outside the gateway."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from hermes.cli.gateway.channels import list_channels, queue_message
from hermes.core.errors import ToolError
from hermes.core.store import Conversation, MailboxChange
from hermes.gateway.content.reply import Content
from hermes.gateway.outbox import FOREIGN
from hermes.store.sqlite import SqliteStore


async def test_only_chats_that_have_written_are_written_to(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "hermes.db")
    try:
        for key in ("agent:main:telegram:dm:42", "agent:main:telegram:group:-7:99"):
            await store.mailbox.apply(MailboxChange(conversation=Conversation(key)))
        assert await list_channels(store) == [
            {"target": "telegram:-7", "platform": "telegram", "type": "group"},
            {"target": "telegram:42", "platform": "telegram", "type": "dm"},
        ]
        assert await queue_message(store, "telegram:42", "hello") == "queued"
        (entry,) = await store.mailbox.list_open_replies()
        assert (entry.platform, entry.chat, entry.inbox) == ("telegram", "42", FOREIGN)
        assert msgspec.msgpack.decode(entry.body, type=Content).text == "hello"
        for target, text in (("telegram:43", "x"), ("telegram:42", " "), ("nowhere", "x")):
            with pytest.raises(ToolError):
                await queue_message(store, target, text)
        assert len(await store.mailbox.list_open_replies()) == 1
    finally:
        await store.close()
