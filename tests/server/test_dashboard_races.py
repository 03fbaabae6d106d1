"""Sends that are repeated at a bad moment, and changes that come in between."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hermes.app.live.stored_queue import QueuedMessage, StoredQueue
from hermes.config.paths import database_file
from hermes.core.message import Message, Text, user_message
from hermes.core.store import SessionMeta
from hermes.server.http.errors import ApiError
from hermes.server.routes.dashboard import live as live_routes
from hermes.store.sqlite import SqliteStore
from tests.flow.test_compression import Model
from tests.kit import Gate, say
from tests.kit.api import api
from tests.kit.bodies import messages
from tests.kit.dashboard import ON, Browser, sign_in
from tests.server.key_owners import ANN, ENV, SETTINGS
from tests.server.test_dashboard_live import texts
from tests.server.test_dashboard_work import SMALL, attach

ALL = "/api/sessions"


async def test_what_another_process_stores_before_the_first_look_arrives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with api(tmp_path, config=ON) as a:
        browser, sessions = await sign_in(a), a.server.runtime.store.sessions
        other = SqliteStore(database_file(a.server.runtime.setup.home))
        other.open()
        await other.wait_until_open()
        meta = SessionMeta("20260101-000000-aaaa", source="cli", cwd=str(tmp_path))
        await other.sessions.append(meta.id, [user_message("one")], create=meta)
        look, was_read, added = sessions.list_recent, asyncio.Event(), list[str]()

        async def look_late(**options: Any) -> Any:
            await was_read.wait()
            if not added:
                added.append("two")
                await other.sessions.append(meta.id, [user_message("two")])
            return await look(**options)

        monkeypatch.setattr(sessions, "list_recent", look_late)
        async with browser.watch(f"{meta.id}:-1") as feed:
            assert texts([await feed.until("message")]) == ["one"]
            was_read.set()
            assert texts([await feed.until("message")]) == ["two"]
        await other.close()


async def test_a_conversation_that_is_compressed_is_watched_where_it_goes_on(
    tmp_path: Path,
) -> None:
    """From the step on in which it moves, though nobody has asked for the new session yet."""
    window = {"model": {"context_length": 16_000}}
    model = Model(16_000, lambda n: say("Here ", "it ", "is."))
    async with api(tmp_path, then=model, config={**ON, **window}) as a:
        browser = await sign_in(a)
        session = await browser.create_session()
        said: list[Message] = []
        for n in range(30):
            text = f"{n} " + "word " * 250
            said += [user_message(f"question {text}"), Message("assistant", (Text(text),))]
        await a.server.runtime.store.sessions.append(session, said)
        async with browser.watch(f"{session}:-1") as feed:
            await feed.until("snapshot")
            await browser.send(session, "go on", "c1")
            end = await feed.until("end", status="completed")
            moved = next(data["to"] for name, data in feed.seen if name == "moved")
            assert moved == end["session"] != session
            deltas = [d for name, d in feed.seen if name == "delta"]
            assert "".join(d["text"] for d in deltas) == "Here it is."
            assert {d["session"] for d in deltas} == {moved}


async def test_deleted_sessions_are_told_to_their_owner_alone(tmp_path: Path) -> None:
    async with api(tmp_path, key="", settings=SETTINGS, env=ENV, config=ON) as a:
        answer = await a.post("/api/web/login", {"key": ANN}, key="", headers={"Origin": a.url})
        cookie = answer.headers["Set-Cookie"].partition(";")[0]
        ann, operator = Browser(a, cookie, answer.json["page_token"]), await sign_in(a)
        own, foreign = await ann.create_session(), await operator.create_session()
        async with ann.watch() as feed, operator.watch() as other:
            await feed.until("hello")
            await other.until("hello")
            for session in (own, foreign):
                await operator.call("PATCH", f"{ALL}/{session}", {"title": "seen"})
            await other.until("session")
            await operator.call("DELETE", f"{ALL}/{foreign}")
            assert (await other.until("session.deleted"))["session"] == foreign
            await ann.call("DELETE", f"{ALL}/{own}")
            assert (await feed.until("session.deleted"))["session"] == own


async def test_a_waiting_message_that_is_changed_keeps_its_pictures(tmp_path: Path) -> None:
    gate = Gate()
    async with api(tmp_path, [say("First.").hold(gate)], then=say("Seen."), config=ON) as a:
        browser = await sign_in(a)
        session = await browser.create_session()
        picture = await attach(browser, "real.png", "image/png", SMALL)
        async with browser.watch(f"{session}:-1") as feed:
            await browser.send(session, "one", "c1")
            await gate.reached()
            waiting = await browser.send(session, "two", "c2", uploads=[picture["id"]])
            path = f"{ALL}/{session}/turns/{waiting.json['id']}"
            assert (await browser.call("PATCH", path, {"content": "  "})).status == 400
            assert (await browser.call("PATCH", path, {"content": "2"})).status == 200
            gate.open()
            for _ in range(2):
                await feed.until("end", status="completed")
        last = messages(a.provider.requests[-1])[-1]
        assert last.text == "2" and last.images == [SMALL]


async def test_a_send_that_is_repeated_while_it_fails_fails_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is told that a message was accepted that was then refused."""
    entered, release = asyncio.Event(), asyncio.Event()

    async def refuse_late(*_: Any) -> Any:
        entered.set()
        await release.wait()
        raise ApiError(409, "This conversation is open in another program.", code="in_use")

    monkeypatch.setattr(live_routes, "submit_message", refuse_late)
    async with api(tmp_path, config=ON) as a:
        browser = await sign_in(a)
        session = await browser.create_session()
        first = asyncio.create_task(browser.send(session, "hello", "c1"))
        await entered.wait()
        again = asyncio.create_task(browser.send(session, "hello", "c1"))
        async with asyncio.timeout(90):
            while a.server.connection_count < 2 and not again.done():
                await asyncio.sleep(0.02)
        release.set()
        assert [(await task).status for task in (first, again)] == [409, 409]


@pytest.mark.parametrize("is_resumed", [False, True])
async def test_a_send_whose_server_died_right_after_storing_it_is_the_same_turn(
    tmp_path: Path, is_resumed: bool
) -> None:
    async with api(tmp_path, config=ON) as a:
        session = await (await sign_in(a)).create_session()
        stored = QueuedMessage("t_1", user_message("hello"), session, sent_id=f"{session}/c1")
        if is_resumed:
            await StoredQueue(a.server.runtime.store.objects).put_message(stored)
    async with api(tmp_path, then=say("Yes."), config=ON) as a:
        browser = await sign_in(a)
        if is_resumed:
            async with browser.watch(f"{session}:-1") as feed:
                await feed.until("message", role="assistant")
        else:
            await StoredQueue(a.server.runtime.store.objects).put_message(stored)
        assert (await browser.send(session, "hello", "c1")).json["id"] == "t_1"
        found = (await browser.get(f"{ALL}/{session}/messages")).json["data"]
        assert texts(found) == (["hello", "Yes."] if is_resumed else [])
