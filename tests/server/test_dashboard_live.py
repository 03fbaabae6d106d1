"""Live sessions of the dashboard: the feed, messages, approvals, questions."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from hermes.app.live.stored_queue import QueuedMessage, StoredQueue
from hermes.config.paths import database_file
from hermes.core.message import user_message
from hermes.core.store import SessionMeta
from hermes.server.dashboard import feed as feed_module
from hermes.server.dashboard.sign_in import end_browser_sessions
from hermes.store.sqlite import SqliteStore
from tests.kit import call, say, status
from tests.kit.api import api
from tests.kit.dashboard import ON, sign_in

ALL = "/api/sessions"


def texts(messages: list[dict[str, object]]) -> list[str]:
    return [p["text"] for m in messages for p in m["content"] if p["type"] == "text"]  # type: ignore


async def test_a_turn_is_watched_from_the_message_to_its_end(tmp_path: Path) -> None:
    async with api(tmp_path, [say("Hello from the model.")], config=ON) as a:
        browser = await sign_in(a)
        session = await browser.create_session()
        async with browser.watch(f"{session}:-1") as feed:
            assert (await feed.next())[0] == "hello"
            snapshot = await feed.until("snapshot", session=session)
            assert not snapshot["busy"] and snapshot["approvals"] == []
            sent = await browser.send(session, "hi there")
            assert sent.status == 202 and sent.json["state"] == "running"
            user = await feed.until("message", role="user")
            assert user["seq"] == 0 and texts([user]) == ["hi there"]
            answer = await feed.until("message", role="assistant")
            assert answer["seq"] == 1 and texts([answer]) == ["Hello from the model."]
            end = await feed.until("end", session=session)
            assert end["status"] == "completed"
            streamed = "".join(d["text"] for n, d in feed.seen if n == "delta")
            assert streamed == "Hello from the model."
        stored = (await browser.get(f"{ALL}/{session}/messages")).json["data"]
        assert texts(stored) == ["hi there", "Hello from the model."]
        listed = (await browser.get(f"{ALL}/{session}")).json
        assert listed["title"] == "hi there" and listed["source"] == "web"
        assert listed["last_text"] == "Hello from the model." and not listed["busy"]


async def test_results_that_are_stored_together_are_told_at_their_places(tmp_path: Path) -> None:
    reads = [(f"c{n}", "read_file", {"path": f"f{n}.txt"}) for n in range(6)]
    async with api(tmp_path, [call(*reads), say("Read.")], config=ON) as a:
        browser = await sign_in(a)
        session = await browser.create_session()
        async with browser.watch(f"{session}:-1") as feed:
            await browser.send(session, "read them")
            await feed.until("end")
        told = {d["seq"]: d["content"] for name, d in feed.seen if name == "message"}
        stored = (await browser.get(f"{ALL}/{session}/messages")).json["data"]
        assert told == {m["seq"]: m["content"] for m in stored}


async def test_a_repeated_send_is_the_same_turn(tmp_path: Path) -> None:
    async with api(tmp_path, then=say("Yes."), config=ON) as a:
        browser = await sign_in(a)
        session = await browser.create_session()
        async with browser.watch(f"{session}:-1") as feed:
            first = await browser.send(session, "once", "same-client-id")
            again = await browser.send(session, "once", "same-client-id")
            assert first.json["id"] == again.json["id"]
            await feed.until("end")
            assert (await browser.send(session, "once", "same-client-id")).status == 202
        found = (await browser.get(f"{ALL}/{session}/messages")).json["data"]
        assert texts(found) == ["once", "Yes."]


async def test_a_page_that_reconnects_gets_what_it_missed_once(tmp_path: Path) -> None:
    async with api(tmp_path, then=say("Answer."), config=ON) as a:
        browser = await sign_in(a)
        session = await browser.create_session()
        for n in range(3):
            async with browser.watch(f"{session}:-1") as feed:
                await browser.send(session, f"m{n}", f"client-id-{n}")
                await feed.until("end")
        async with browser.watch(f"{session}:2") as feed:
            await feed.until("snapshot")
            missed = [d["seq"] for name, d in feed.seen if name == "message"]
        assert missed == [3, 4, 5]


async def test_a_page_that_connects_right_after_the_end_of_a_turn_is_not_busy(
    tmp_path: Path,
) -> None:
    """A snapshot with `busy` would never be followed by the end."""
    async with api(tmp_path, [say("Done.")], config=ON) as a:
        browser = await sign_in(a)
        session = await browser.create_session()
        live = a.server.services.dashboard.live  # type: ignore[union-attr]
        busy: list[bool] = []

        class Page:
            tenant = 0
            watched = frozenset({session})

            def put(self, session_id: str, name: str, data: object) -> None:
                if name in ("step", "end"):
                    busy.append(live.find_session(session_id).describe()["busy"])  # type: ignore

        page = Page()
        live.add_watcher(page)
        async with browser.watch(f"{session}:-1") as feed:
            await browser.send(session, "hello")
            await feed.until("end")
        live.remove_watcher(page)
        assert busy == [True, False]


async def test_a_page_that_connects_after_a_failure_is_told_of_it(tmp_path: Path) -> None:
    """A turn can fail before the page of a new conversation watches it."""
    steps = [status(400, "No such thing."), say("Better.")]
    async with api(tmp_path, steps, config=ON) as a:
        browser = await sign_in(a)
        session = await browser.create_session()
        async with browser.watch(f"{session}:-1") as feed:
            assert (await feed.until("snapshot"))["ended"] is None
            await browser.send(session, "hello")
            end = await feed.until("end")
        assert end["status"] == "failed" and "No such thing." in end["error"]
        async with browser.watch(f"{session}:0") as feed:
            snapshot = await feed.until("snapshot")
            assert {"session": session, **snapshot["ended"]} == end and not snapshot["busy"]
            await browser.send(session, "again")
            await feed.until("end")
        async with browser.watch(f"{session}:2") as feed:
            assert (await feed.until("snapshot"))["ended"]["error"] == ""


async def test_the_feed_of_a_browser_that_is_signed_out_ends(tmp_path: Path) -> None:
    async with api(tmp_path, then=say("Secret."), config=ON) as a:
        signed_out, operator = await sign_in(a), await sign_in(a)
        session = await operator.create_session()
        async with signed_out.watch(f"{session}:-1") as feed, operator.watch() as other:
            await feed.until("snapshot")
            await other.until("hello")
            assert (await signed_out.post("/api/web/logout", {})).status == 200
            with pytest.raises(AssertionError, match="the feed ended"):
                await feed.until("nothing more")
            assert [name for name, _ in feed.seen] == ["hello", "snapshot"]
            await operator.send(session, "hello")
            await other.until("session")
        assert (await signed_out.get(f"/api/events?watch={session}:-1")).status == 401


async def test_a_tab_that_opens_its_feed_anew_ends_the_one_before(tmp_path: Path) -> None:
    """Without a word, and only its own: another tab, another browser and whoever does not say which
    tab it is keep theirs."""
    async with api(tmp_path, config=ON) as a:
        one, two = await sign_in(a), await sign_in(a)
        feeds = a.server.services.dashboard.feeds  # type: ignore[union-attr]
        tab = {"X-Hermes-Tab": "a"}
        async with (
            one.watch(**tab) as first,
            one.watch(**{"X-Hermes-Tab": "b"}) as other,
            two.watch(**tab) as foreign,
            one.watch() as nameless,
            one.watch(**tab) as second,
        ):
            for feed in (first, other, foreign, nameless, second):
                await feed.until("hello")
            with pytest.raises(AssertionError, match="the feed ended"):
                await first.until("nothing more")
            assert "bye" not in [name for name, _ in first.seen]
            assert len(feeds) == 4
            session = await two.create_session()
            for feed in (other, foreign, nameless, second):
                assert (await feed.until("session"))["session"]["id"] == session


async def test_a_feed_ends_when_another_process_signs_its_browser_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "CHECK_SECONDS", 0.05)
    async with api(tmp_path, config=ON) as a:
        browser = await sign_in(a)
        async with browser.watch() as feed:
            await feed.until("hello")
            await end_browser_sessions(a.server.runtime.store.objects)
            with pytest.raises(AssertionError, match="the feed ended"):
                await feed.until("nothing more")


async def test_waiting_messages_can_be_changed_and_removed(tmp_path: Path) -> None:
    gate = asyncio.Event()

    async def wait_for_gate(request: object) -> object:
        await gate.wait()
        return say("First.")

    async with api(tmp_path, [wait_for_gate], then=say("Next."), config=ON) as a:  # type: ignore
        browser = await sign_in(a)
        session = await browser.create_session()
        async with browser.watch(f"{session}:-1") as feed:
            await browser.send(session, "one", "client-one")
            await feed.until("message", role="user")
            two = (await browser.send(session, "two", "client-two")).json
            three = (await browser.send(session, "three", "client-three")).json
            assert two["state"] == three["state"] == "queued"
            path = f"{ALL}/{session}/turns"
            changed = await browser.call("PATCH", f"{path}/{two['id']}", {"content": "2"})
            assert changed.status == 200
            assert (await browser.call("DELETE", f"{path}/{three['id']}")).status == 200
            assert (await browser.call("DELETE", f"{path}/{three['id']}")).status == 409
            gate.set()
            await feed.until("end")
            await feed.until("end")
        found = (await browser.get(f"{ALL}/{session}/messages")).json["data"]
        assert texts(found) == ["one", "First.", "2", "Next."]


async def test_an_approval_is_answered_once_with_what_was_shown(tmp_path: Path) -> None:
    steps = [call(("c1", "terminal", {"command": "git push origin main"})), say("Done.")]
    async with api(tmp_path, steps, config=ON) as a:
        browser = await sign_in(a)
        session = await browser.create_session()
        async with browser.watch(f"{session}:-1") as feed:
            await browser.send(session, "push it")
            asked = await feed.until("approval", session=session)
            assert asked["command"] == "git push origin main" and asked["expires_at"]
            path = f"{ALL}/{session}/approvals/{asked['id']}"
            assert (await browser.post(path, {"choice": "once"})).status == 400
            wrong = {"choice": "once", "digest": "0" * 32}
            assert (await browser.post(path, wrong)).status == 409
            listed = (await browser.get(f"{ALL}/{session}")).json
            assert listed["waiting"] and listed["busy"]
            right = {"choice": "deny", "digest": asked["digest"]}
            assert (await browser.post(path, right)).status == 200
            assert (await feed.until("resolved"))["answer"] == "deny"
            assert (await browser.post(path, right)).status == 409
            await feed.until("end")


async def test_a_stopped_turn_keeps_what_it_wrote(tmp_path: Path) -> None:
    async def never(request: object) -> object:
        await asyncio.Event().wait()
        raise AssertionError

    async with api(tmp_path, [never], config=ON) as a:  # type: ignore
        browser = await sign_in(a)
        session = await browser.create_session()
        stop = f"{ALL}/{session}/stop"
        assert (await browser.post(stop)).status == 409
        async with browser.watch(f"{session}:-1") as feed:
            await browser.send(session, "wait")
            await feed.until("message", role="user")
            assert (await browser.post(stop)).status == 200
            assert (await feed.until("end"))["status"] == "interrupted"


async def test_messages_of_another_process_arrive(tmp_path: Path) -> None:
    async with api(tmp_path, config=ON) as a:
        browser = await sign_in(a)
        other = SqliteStore(database_file(a.server.runtime.setup.home))
        other.open()
        await other.wait_until_open()
        meta = SessionMeta("20260101-000000-aaaa", source="cli", cwd=str(tmp_path))
        await other.sessions.append(meta.id, [user_message("from a terminal")], create=meta)
        async with browser.watch(f"{meta.id}:-1") as feed:
            first = await feed.until("message")
            assert texts([first]) == ["from a terminal"]
            await feed.until("snapshot")
            await other.sessions.append(meta.id, [user_message("and another")])
            assert texts([await feed.until("message")]) == ["and another"]
        await other.close()


@pytest.mark.parametrize("place", ["before", "after", "around"])
async def test_a_window_of_a_long_session(tmp_path: Path, place: str) -> None:
    async with api(tmp_path, config=ON) as a:
        browser = await sign_in(a)
        meta = SessionMeta("long", source="cli", cwd=str(tmp_path))
        said = [user_message(f"m{n}") for n in range(500)]
        await a.server.runtime.store.sessions.append("long", said, create=meta)
        page = (await browser.get(f"{ALL}/long/messages?{place}=250&limit=10")).json
        seqs = [m["seq"] for m in page["data"]]
        wanted = {
            "before": list(range(240, 250)),
            "after": list(range(251, 261)),
            "around": list(range(245, 255)),
        }
        assert seqs == wanted[place] and page["has_more"]


async def test_a_feed_refuses_what_it_cannot_show(tmp_path: Path) -> None:
    async with api(tmp_path, config=ON) as a:
        browser = await sign_in(a)
        many = ",".join(f"s{n}:0" for n in range(21))
        assert (await browser.get(f"/api/events?watch={many}")).status == 400
        assert (await browser.get("/api/events?watch=x")).status == 400
        assert (await browser.get("/api/events?watch=nothing:0")).status == 404


async def test_lists_learn_of_new_renamed_and_deleted_sessions(tmp_path: Path) -> None:
    async with api(tmp_path, then=say("Yes."), config=ON) as a:
        browser = await sign_in(a)
        async with browser.watch() as feed:
            assert (await feed.next())[0] == "hello"
            await asyncio.sleep(0)
            session = await browser.create_session()
            await browser.send(session, "a first message")
            async with asyncio.timeout(90):
                while (found := (await feed.until("session"))["session"])["state"] != "idle" or (
                    found["last_text"] != "Yes."
                ):
                    pass
            assert found["id"] == session and found["title"] == "a first message"
            await browser.call("DELETE", f"{ALL}/{session}")
            assert (await feed.until("session.deleted"))["session"] == session


async def test_a_stopping_server_says_goodbye(tmp_path: Path) -> None:
    async with api(tmp_path, config=ON) as a:
        browser = await sign_in(a)
        async with browser.watch() as feed:
            await feed.next()
            a.server.services.dashboard.end_feeds()  # type: ignore[union-attr]
            assert (await feed.until("bye"))["reason"] == "stopping"


async def test_accepted_messages_are_answered_after_a_kill(tmp_path: Path) -> None:
    """What another process accepted and did not come to stands in the store."""
    async with api(tmp_path, then=say("Yes."), config=ON) as a:
        session = await (await sign_in(a)).create_session()
        queue = StoredQueue(a.server.runtime.store.objects)
        for n in (1, 2):
            item = QueuedMessage(f"t_{n}", user_message(f"question {n}"), session)
            await queue.put_message(item)
        gone = QueuedMessage("t_3", user_message("lost"), "no-such-session")
        await queue.put_message(gone)
        provider = a.provider
    async with api(tmp_path, then=say("Late."), config=ON) as a:
        browser = await sign_in(a)
        async with browser.watch(f"{session}:-1") as feed:
            while (
                len(found := texts((await browser.get(f"{ALL}/{session}/messages")).json["data"]))
                < 4
            ):
                await feed.next()
        assert found == ["question 1", "Late.", "question 2", "Late."]
        assert provider.requests == []
        queue = StoredQueue(a.server.runtime.store.objects)
        async with asyncio.timeout(90):
            while await queue.list_messages():
                await asyncio.sleep(0.02)


async def test_a_client_that_goes_away_while_its_message_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with api(tmp_path, then=say("Yes."), config=ON) as a:
        browser = await sign_in(a)
        session = await browser.create_session()
        objects = a.server.runtime.store.objects
        put, entered, release = objects.put, asyncio.Event(), asyncio.Event()

        async def put_slowly(*stored: Any, **options: Any) -> None:
            await put(*stored, **options)
            entered.set()
            await release.wait()

        monkeypatch.setattr(objects, "put", put_slowly)
        async with browser.watch(f"{session}:-1") as feed:
            await feed.until("snapshot", session=session)
            before = a.server.connection_count
            body = json.dumps({"client_id": "client-id-1", "content": "hello"}).encode()
            head = [f"POST {ALL}/{session}/turns HTTP/1.1", f"Host: {urlsplit(a.url).netloc}"]
            head += [f"{name}: {value}" for name, value in browser.headers.items()]
            head += ["Content-Type: application/json", f"Content-Length: {len(body)}", "", ""]
            _, writer = await asyncio.open_connection("127.0.0.1", urlsplit(a.url).port)
            writer.write("\r\n".join(head).encode() + body)
            async with asyncio.timeout(90):
                await entered.wait()
                writer.transport.abort()
                while a.server.connection_count > before:
                    await asyncio.sleep(0.02)
            release.set()
            again = await browser.send(session, "hello", "client-id-1")
            assert again.status == 202
            await feed.until("end")
        found = (await browser.get(f"{ALL}/{session}/messages")).json["data"]
        assert texts(found) == ["hello", "Yes."]
