"""session_search: the originals behind a handoff, and nobody else's conversations."""

from __future__ import annotations

import re
from pathlib import Path

from hermes.core.message import user_message
from hermes.core.store import SessionMeta
from tests.kit import Received, Reply, call, say
from tests.kit.bodies import messages, quoted
from tests.kit.rig import rig


def result(request: Received) -> str:
    return quoted(messages(request)[-1].results[-1][1])


async def test_a_message_is_found_by_its_words_and_read_in_full(tmp_path: Path) -> None:
    def read(request: Received) -> Reply:
        found = re.search(r"session (\S+) message (\d+) \(user", result(request))
        assert found, result(request)
        args = {"session": found[1], "message": int(found[2]), "count": 2}
        return call(("c2", "session_search", args))

    long = "the zeppelin " + "flew on " * 200 + "and landed"
    steps = [say("noted"), call(("c1", "session_search", {"query": "zeppelin"})), read, say("yes")]
    async with rig(tmp_path, steps) as r:
        await r.turn(long)
        await r.turn("where was the airship?")
        assert long in result(r.requests[3]) and "noted" in result(r.requests[3])


async def test_only_conversations_of_the_same_place(tmp_path: Path) -> None:
    def look(request: Received) -> Reply:
        assert "secret zeppelin" not in result(request)
        return call(("c2", "session_search", {"session": "other", "message": 0}))

    steps = [call(("c1", "session_search", {"query": "zeppelin"})), look, say("no")]
    async with rig(tmp_path, steps) as r:
        store = r.runtime.store
        for id, source, key in (("other", "telegram", "42"), ("third", "cli", "room")):
            meta = SessionMeta(id, source=source, key=key)
            await store.sessions.append(id, [user_message("the secret zeppelin")], create=meta)
        await r.turn("what did they say?")
        assert "There is no session other" in result(r.requests[2])


async def test_what_cannot_be_answered_is_said(tmp_path: Path) -> None:
    steps = [
        call(("c1", "session_search", {"query": "x", "session": "y"})),
        lambda q: call(("c3", "session_search", {"query": "nowhere"})),
        say("ok"),
    ]
    async with rig(tmp_path, steps) as r:
        await r.turn()
        told = [text for _, text in messages(r.requests[1])[-1].results]
        assert all("either query, or session" in text for text in told)
        assert "Nothing was found" in result(r.requests[2])


async def test_browsing_grouping_and_counting_from_the_end(tmp_path: Path) -> None:
    steps = [
        say("noted"),
        call(("c1", "session_search", {})),
        lambda q: call(("c2", "session_search", {"query": "zeppelin"})),
        lambda q: call(("c3", "session_search", {"session": "old0", "message": -1})),
        say("ok"),
    ]
    async with rig(tmp_path, steps) as r:
        store = r.runtime.store
        await r.turn("hello")
        for n in range(5):
            texts = [user_message(f"the zeppelin number {k} of {n}") for k in range(5)]
            await store.sessions.append(
                f"old{n}", texts, create=SessionMeta(f"old{n}", title=f"t{n}")
            )
        await r.turn("what was there?")
        latest = result(r.requests[2]).splitlines()
        assert len(latest) == 6 and all(line.startswith("session ") for line in latest)
        hits = result(r.requests[3]).splitlines()
        assert len(hits) == 10
        assert max(sum(f"session old{n} " in hit for hit in hits) for n in range(5)) == 3
        assert re.match(r"session old\d message \d \(user; t\d; \d{4}-\d\d-\d\d\): ", hits[0])
        assert "number 4 of 0" in result(r.requests[4])


async def test_a_long_conversation_hides_no_other(tmp_path: Path) -> None:
    steps = [call(("c1", "session_search", {"query": "zeppelin"})), say("ok")]
    async with rig(tmp_path, steps) as r:
        store = r.runtime.store
        loud = [user_message("zeppelin zeppelin") for _ in range(150)]
        await store.sessions.append("loud", loud, create=SessionMeta("loud"))
        for n in range(7):
            text = f"once there was a zeppelin, which flew over town number {n}"
            await store.sessions.append(f"s{n}", [user_message(text)], create=SessionMeta(f"s{n}"))
        await r.turn("what was there?")
        found = re.findall(r"^session (\S+)", result(r.requests[1]), re.MULTILINE)
        assert sorted(found) == ["loud"] * 3 + [f"s{n}" for n in range(7)]
