"""A memory provider behind HTTP: asked in time or not at all, told everything once and in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from hermes.app.commands import CommandContext, run_command
from hermes.memory import external_memory
from hermes.memory.scope import hash_scope
from tests.flow.test_memory import note, notices, result
from tests.kit import Home, Provider, Received, Reply, run_hermes, say
from tests.kit.bodies import messages
from tests.kit.home import KEY
from tests.kit.memory_service import MemoryService
from tests.kit.processes import until
from tests.kit.rig import rig

MOODS = ("silent", "garbage", "broken", "noise", "down", "drip", "flood")
PROFILE = hash_scope("profile")


def settings(service: MemoryService, seconds: float = 30, **more: Any) -> dict[str, Any]:
    http = {"url": service.url, "api_key_env": "KIT_KEY", "timeout_seconds": seconds}
    return {"memory": {"review": False, "provider": "http", "http": http, **more}}


@asynccontextmanager
async def serving() -> AsyncIterator[MemoryService]:
    service = MemoryService()
    await service.start()
    try:
        yield service
    finally:
        service.recover()
        await service.stop()


def answer(request: Received) -> Reply:
    """Notes what the message says, then confirms it."""
    last = messages(request)[-1]
    if last.results:
        return say("noted")
    return note("c1", action="add", content=f"Heron says {last.text[:20]}.")


async def test_every_change_and_every_turn_is_told(tmp_path: Path) -> None:
    steps = [
        note(
            "c1",
            operations=[
                {"action": "add", "content": "Heron is the server."},
                {"action": "add", "target": "user", "content": "Likes tea."},
                {"action": "replace", "old_text": "Heron", "content": "Egret is the server."},
                {"action": "remove", "target": "user", "old_text": "tea"},
            ],
        ),
        say("done"),
    ]
    async with (
        serving() as service,
        rig(tmp_path, steps, config=settings(service), check=False) as r,
    ):
        await r.turn("remember this")
        writes = await service.wait_for(1, "/write")
        (record,) = await service.wait_for(1, "/record")
        assert record == {
            "scope": PROFILE,
            "session_id": r.session.id,
            "user": "remember this",
            "assistant": "done",
            "tainted": False,
        }
        # What was added and taken back in one call has never been there.
        assert writes == [
            {
                "scope": PROFILE,
                "action": "add",
                "target": "memory",
                "id": "f1",
                "content": "Egret is the server.",
            }
        ]
        id = r.session.id
        await run_command(CommandContext(r.runtime, r.session, "cli"), "memory", "add Owls sleep.")
        await run_command(CommandContext(r.runtime, r.session, "cli"), "memory", "remove f2")
        changes = [(w["action"], w["id"]) for w in await service.wait_for(3, "/write")]
        assert changes[1:] == [("add", "f2"), ("remove", "f2")]
        await r.session.close()
        (flush,) = await service.wait_for(1, "/flush")
        assert flush == {"scope": PROFILE, "session_id": id, "reason": "end"}
        assert len(set(service.keys)) == len(service.keys)
        assert all(f"Bearer {KEY}" in head for head in service.headers)


async def test_a_reset_and_a_replaced_entry_are_told_as_such(tmp_path: Path) -> None:
    steps = [
        note("c1", action="add", content="Heron is the server."),
        note("c2", action="replace", old_text="Heron", content="Egret is the server."),
        say("done"),
    ]
    async with (
        serving() as service,
        rig(tmp_path, steps, config=settings(service), check=False) as r,
    ):
        await r.turn()
        writes = await service.wait_for(2, "/write")
        assert [(w["action"], w["id"], w.get("replaces")) for w in writes] == [
            ("add", "f1", None),
            ("replace", "f2", "f1"),
        ]
        reply = await run_command(CommandContext(r.runtime, r.session, "cli"), "new", "")
        await r.session.close()
        assert [f["reason"] for f in await service.wait_for(1, "/flush")] == ["reset"]
        assert reply.session is not None
        await reply.session.close()


async def test_an_answer_that_comes_in_pieces_is_read_to_its_end(tmp_path: Path) -> None:
    async with serving() as service:
        service.mood = "pieces"
        service.facts = [{"text": f"Herons eat fish {n}."} for n in range(2000)]
        config = settings(service, recall="auto")
        async with rig(tmp_path, [say("hello")], config=config, check=False) as r:
            await r.turn("what do herons eat?")
            assert "- Herons eat fish 0." in messages(r.requests[0])[-1].text


@pytest.mark.parametrize("mood", MOODS)
async def test_no_turn_fails_and_nothing_is_lost_while_it_fails(tmp_path: Path, mood: str) -> None:
    async with serving() as service:
        config = settings(service, 0.3, recall="auto")
        service.facts = [{"text": "Herons eat fish."}]
        async with rig(tmp_path, [], then=answer, config=config, check=False) as r:
            await fail(service, mood)
            for n in range(4):
                assert (await r.turn(f"message {n}")).status == "completed"
            complaints = [text for text in notices(r) if "did not answer" in text]
            assert len(complaints) == 1, "it is said once"
            asked = len(service.asked)
            assert asked <= 3, "after three failures it is left alone"
            assert all("Herons" not in messages(q)[-1].text for q in r.requests)
            await recover(service, mood)
            contents = [w["content"] for w in await service.wait_for(4, "/write")]
            assert contents == [f"Heron says message {n}." for n in range(4)]
            assert len(await service.wait_for(4, "/record")) == 4


async def fail(service: MemoryService, mood: str) -> None:
    service.mood = mood
    if mood == "down":
        await service.stop()


async def recover(service: MemoryService, mood: str) -> None:
    if mood == "down":
        await service.start()
    service.recover()


async def test_what_was_not_delivered_is_by_the_next_process_and_once(tmp_path: Path) -> None:
    async with serving() as service:
        await service.stop()
        config = settings(service)
        async with rig(tmp_path, [], then=answer, config=config, check=False) as r:
            await r.turn("message 1")
            await r.turn("message 2")
        await service.start()
        async with rig(tmp_path, [], then=answer, config=config, check=False) as r:
            await r.turn("message 3")
            written = await service.wait_for(3, "/write")
            assert [w["content"][-2] for w in written] == ["1", "2", "3"]
            await service.wait_for(3, "/record")
        paths = [path for path, _ in service.accepted]
        assert paths.count("/write") == 3 and paths.count("/record") == 3


async def test_the_end_waits_for_the_delivery_under_way_and_begins_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given up on, a delivery that has arrived would be repeated by the next process."""
    monkeypatch.setattr(external_memory, "GRACE_SECONDS", 0)
    monkeypatch.setattr(external_memory, "_LAST_SECONDS", 90)
    async with serving() as service:
        config = settings(service)
        async with rig(tmp_path, [], then=answer, config=config, check=False) as r:
            service.mood = "silent"
            await r.turn("message 1")
            await until(lambda: any("/write" in head for head in service.headers))
            closing = asyncio.create_task(r.runtime.knowledge.wait_unfinished())
            external = r.runtime.knowledge.external
            await until(lambda: external is not None and external.is_ending)
            service.recover()
            await closing
            assert [path for path, _ in service.accepted] == ["/write"]
        async with rig(tmp_path, [], then=answer, config=config, check=False) as r:
            await r.turn("message 2")
            await service.wait_for(2, "/record")
        paths = [path for path, _ in service.accepted]
        assert paths.count("/write") == 2 and paths.count("/record") == 2


async def test_a_single_prompt_tells_of_its_turn_and_its_end(tmp_path: Path) -> None:
    async with serving() as service, Provider([say("one"), say("two")]) as p:
        home = Home.of(tmp_path, p)
        home.configure(**settings(service))
        for number, words in ((1, "first"), (2, "second")):
            ran = await run_hermes(["chat", "-q", words], home)
            assert ran.rc == 0, ran
            assert [path for path, _ in service.accepted] == ["/record", "/flush"] * number
        assert [body["user"] for body in service.list_bodies("/record")] == ["first", "second"]


async def test_facts_that_match_join_the_message_quoted(tmp_path: Path) -> None:
    async with serving() as service:
        service.facts = [{"id": n, "text": f"fact {n} {'x' * 400}"} for n in range(5)]
        config = settings(service, recall="auto")
        async with rig(tmp_path, [say("hello"), say("again")], config=config, check=False) as r:
            await r.turn("where is heron?")
            text = messages(r.requests[0])[-1].text
            own, _, added = text.partition("\n\n")
            assert own == "where is heron?" and "From memory" in added and "fact 0" in added
            assert len(added.encode()) <= 1000 and "fact 3" not in added
            assert service.asked == [{"scope": PROFILE, "query": "where is heron?", "limit": 3}]
            assert r.session.transcript.taint.untrusted, "it is another program's word"
            (record,) = await service.wait_for(1, "/record")
            assert record["user"] == "where is heron?" and record["tainted"] is True
            stored = await r.runtime.store.sessions.load_messages(r.session.id)
            assert stored[0].text == text, "stored with it"
            await r.turn("again?")
            assert messages(r.requests[1])[0].text == text


async def test_a_search_asks_it_too(tmp_path: Path) -> None:
    steps = [note("c1", action="search", query="heron"), say("found")]
    async with serving() as service:
        service.facts = [{"id": "x1", "text": "Herons eat fish.", "time": "2026-01-02"}]
        async with rig(tmp_path, steps, config=settings(service), check=False) as r:
            await r.turn()
            assert result(r.requests[1])["facts"] == [
                {
                    "id": "x1",
                    "text": "Herons eat fish.",
                    "target": "memory",
                    "time": "2026-01-02",
                    "state": "stored",
                }
            ]
            assert r.session.transcript.taint.untrusted


async def test_recall_works_without_a_provider(tmp_path: Path) -> None:
    config = {"memory": {"recall": "auto", "memory_char_limit": 10}}
    async with rig(tmp_path, [say("hello")], config=config, check=False) as r:
        context = CommandContext(r.runtime, r.session, "cli")
        await run_command(context, "memory", "add Heron is the staging server.")
        await r.turn("what is heron?")
        assert "- Heron is the staging server." in messages(r.requests[0])[-1].text
        assert r.session.transcript.taint.private


async def test_a_provider_that_is_not_set_up_is_named(tmp_path: Path) -> None:
    async with rig(tmp_path, [say("hello")], config={"memory": {"provider": "owl"}}) as r:
        assert (await r.turn()).status == "completed"
        texts = [notice.text for notice in r.notices]
        assert "No plugin offers the memory provider owl. " in "".join(texts)
