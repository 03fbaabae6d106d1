"""The mailbox: one row per message, changes together with a transcript, and what damage leaves."""

from __future__ import annotations

from typing import Any

import pytest

from hermes.core.errors import StoreError
from hermes.core.message import user_message
from hermes.core.store import (
    Conversation,
    InboxEntry,
    MailboxChange,
    MailboxCounts,
    OutboxEntry,
    Pairing,
    SessionMeta,
)
from hermes.store.sqlite import SqliteStore
from tests.unit.store.conftest import MakeStore
from tests.unit.store.stores import on_both_databases


@pytest.fixture
def store(make_store: MakeStore) -> Any:
    now = iter(range(1, 10_000))
    return make_store(clock=lambda: float(next(now)))


def entry(id: str, chat: str = "1") -> InboxEntry:
    return InboxEntry("tg", chat, id, f"agent:main:tg:dm:{chat}", b"body")


@on_both_databases
async def test_a_replayed_message_is_stored_once(store: SqliteStore) -> None:
    first = await store.mailbox.add_message(entry("5"))
    assert first and not await store.mailbox.add_message(entry("5"))
    assert await store.mailbox.add_message(entry("5", chat="2")), "ids are unique per chat only"
    await store.mailbox.set_state([first], "done")
    assert not await store.mailbox.add_message(entry("5")), "also when it is done"


@on_both_databases
async def test_an_edit_replaces_only_what_still_waits(store: SqliteStore) -> None:
    n = await store.mailbox.add_message(entry("5"))
    assert await store.mailbox.replace_waiting("tg", "1", "5", b"new") == n
    found = await store.mailbox.find_waiting("tg", "1", "5")
    assert found is not None and (found.n, found.body) == (n, b"new")
    assert await store.mailbox.find_waiting("tg", "2", "5") is None
    assert (await store.mailbox.list_open_messages())[0].body == b"new"
    await store.mailbox.set_state([n], "running")
    assert not await store.mailbox.replace_waiting("tg", "1", "5", b"late")
    assert await store.mailbox.find_waiting("tg", "1", "5") is None


@on_both_databases
async def test_a_turns_end_its_reply_and_the_inbox_change_together(store: SqliteStore) -> None:
    n = await store.mailbox.add_message(entry("5"))
    meta = SessionMeta("s", source="tg", key="k")
    begun = MailboxChange(running=(n,), session="s", conversation=Conversation("k", "s"))
    await store.sessions.append(
        "s", [user_message("hi")], state="running", create=meta, mailbox=begun
    )
    (found,) = await store.mailbox.list_open_messages()
    assert (found.state, found.session) == ("running", "s")
    reply = OutboxEntry(7, "tg", "1", b"text", inbox=n)
    await store.sessions.set_state("s", "idle", mailbox=MailboxChange(done=(n,), replies=(reply,)))
    assert await store.mailbox.list_open_messages() == []
    assert await store.mailbox.list_open_replies() == [reply]
    assert await store.mailbox.find_last_number() == 7
    assert await store.mailbox.count_open() == MailboxCounts(pending=1)
    assert (await store.mailbox.get_conversation("k")).session == "s"


@on_both_databases
async def test_a_refused_append_changes_no_mailbox(store: SqliteStore) -> None:
    n = await store.mailbox.add_message(entry("5"))
    with pytest.raises(StoreError):
        await store.sessions.append(
            "missing", [user_message("hi")], mailbox=MailboxChange(done=(n,))
        )
    assert [m.state for m in await store.mailbox.list_open_messages()] == ["waiting"]


@on_both_databases
async def test_a_chat_that_moved_takes_everything_along(store: SqliteStore) -> None:
    old, new = "agent:main:tg:group:-1:9", "agent:main:tg:group:-100:9"
    await store.mailbox.add_message(InboxEntry("tg", "-1", "5", old, b""))
    await store.mailbox.apply(MailboxChange(replies=(OutboxEntry(1, "tg", "-1", b""),)))
    await store.mailbox.put_conversation(Conversation(old, "s", strikes=2))
    await store.sessions.create(SessionMeta("s", source="tg", key=old))
    assert await store.mailbox.list_keys("agent:main:tg:group:-1:") == [old]
    await store.mailbox.move_chat("tg", "-1", "-100", {old: new})
    assert (await store.mailbox.list_open_messages())[0].key == new
    assert (await store.mailbox.list_open_replies())[0].chat == "-100"
    assert (await store.mailbox.get_conversation(new)).strikes == 2
    latest = await store.sessions.find_latest(source="tg", key=new)
    assert latest is not None and latest.id == "s"


@on_both_databases
async def test_done_messages_are_forgotten_and_open_ones_are_not(store: SqliteStore) -> None:
    done = await store.mailbox.add_message(entry("1"))
    await store.mailbox.add_message(entry("2"))
    await store.mailbox.set_state([done], "done")
    await store.mailbox.forget_before(1e9)
    assert [m.id for m in await store.mailbox.list_open_messages()] == ["2"]
    assert await store.mailbox.add_message(entry("1"))


async def test_salvage_keeps_the_mailbox(store: SqliteStore) -> None:
    await store.mailbox.add_message(entry("5"))
    await store.mailbox.apply(MailboxChange(replies=(OutboxEntry(1, "tg", "1", b"x"),)))
    await store.mailbox.put_conversation(Conversation("k", "s", suspended=True))
    await store.mailbox.block_chat("tg", "9", dead=True, until=0.0)
    await store.pairings.put(Pairing("tg", "7", "Ann", "7", 1.0, approved=True))
    await store.pairings.set_failures("tg", 3)
    await store.maintenance.salvage()
    assert [m.id for m in await store.mailbox.list_open_messages()] == ["5"]
    assert [r.body for r in await store.mailbox.list_open_replies()] == [b"x"]
    assert (await store.mailbox.get_conversation("k")).suspended
    assert await store.mailbox.list_blocked_chats() == [("tg", "9", True, 0.0)]
    assert await store.pairings.is_paired("tg", "7")
    assert (await store.pairings.count_failures("tg"))[0] == 3
