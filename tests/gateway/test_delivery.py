"""Replies on a bad network: in order, until they arrive, twice only with a mark (F81-F86)."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hermes.gateway import router, texts
from tests.gateway.gateways import LiveGateway, live_gateway
from tests.kit import call, say
from tests.kit.telegram import OWNER, Fault, FaultRule

pytestmark = pytest.mark.e2e

GROUP = -500
WHOLE = {"streaming": False}
"""However slow the machine is, no part of an answer is shown before the whole."""


def once(method: str, fault: Fault, when: Callable[[dict[str, Any]], bool] = bool) -> FaultRule:
    """The first such call fails."""
    left = [fault]

    def rule(name: str, params: dict[str, Any]) -> Fault | None:
        return left.pop() if left and name == method and when(params) else None

    return rule


async def test_f81_a_flood_wait_holds_back_this_chat_only(tmp_path: Path) -> None:
    other = 3003
    async with live_gateway(
        tmp_path, then=say("answer"), platform={"allowed_users": [OWNER, other]}
    ) as g:
        flood = Fault(429, "Too Many Requests", {"retry_after": 3600})
        g.telegram.fault = once("sendMessage", flood)
        await g.telegram.say("one")
        await g.telegram.until(lambda: any(m == "sendMessage" for m, _ in g.telegram.calls))
        await g.telegram.say("two", user=other)
        await g.telegram.until(lambda: g.telegram.texts(other) == ["answer"])
        assert not g.telegram.texts(OWNER)


async def test_f81_a_flood_wait_ends(tmp_path: Path) -> None:
    async with live_gateway(tmp_path, then=say("answer")) as g:
        flood = Fault(429, "Too Many Requests", {"retry_after": 1})
        g.telegram.fault = once("sendMessage", flood)
        begin = time.monotonic()
        await g.telegram.say("one")
        await g.telegram.until(lambda: g.telegram.texts(OWNER) == ["answer"])
        assert time.monotonic() - begin >= 1


async def test_f82_a_send_without_an_answer_is_repeated_with_a_mark(tmp_path: Path) -> None:
    async with live_gateway(tmp_path, [say("the answer")], platform=WHOLE) as g:
        g.telegram.fault = once("sendMessage", Fault(hang_up=True, after=True))
        await g.telegram.say("hi")
        await g.telegram.until_shown(f"{texts.REPEATED}\nthe answer")
        assert g.telegram.texts() == ["the answer", f"{texts.REPEATED}\nthe answer"]


async def test_a_certain_failure_is_repeated_without_a_mark(tmp_path: Path) -> None:
    async with live_gateway(tmp_path, [say("the answer")]) as g:
        g.telegram.fault = once("sendMessage", Fault(502, "Bad Gateway"))
        await g.telegram.say("hi")
        await g.telegram.until_shown("the answer")
        assert g.telegram.texts() == ["the answer"]


async def test_f84_a_blocked_chat_is_given_up_until_it_writes_again(tmp_path: Path) -> None:
    async with live_gateway(tmp_path, then=say("hello")) as g:
        gone = Fault(403, "Forbidden: bot was blocked by the user")
        g.telegram.fault = once("sendMessage", gone)
        await g.telegram.say("hi")
        await g.telegram.until(lambda: any(m == "sendMessage" for m, _ in g.telegram.calls))
        await g.telegram.say("back")
        await g.telegram.until(lambda: "hello" in g.telegram.texts())


async def test_f84_the_owner_is_told_again_when_a_chat_is_lost_again(tmp_path: Path) -> None:
    other = 3003
    platform = {"allowed_users": [OWNER, other], "home_chat": OWNER, **WHOLE}

    def refuse(method: str, params: dict[str, Any]) -> Fault | None:
        is_theirs = method == "sendMessage" and params["chat_id"] == str(other)
        return Fault(403, "Forbidden: bot was blocked by the user") if is_theirs else None

    async with live_gateway(tmp_path, then=say("answer"), platform=platform) as g:
        for times in (1, 2):
            g.telegram.fault = refuse
            await g.telegram.say("hi", user=other)
            await g.telegram.until(lambda times=times: len(g.telegram.texts(OWNER)) == times)  # type: ignore[misc]
            g.telegram.fault = lambda method, params: None
            await g.telegram.say("back", user=other)
            await g.telegram.until(lambda times=times: len(g.telegram.texts(other)) == times)  # type: ignore[misc]


async def test_f84_a_notice_waits_for_the_owners_first_message(tmp_path: Path) -> None:
    platform = {"allowed_users": [OWNER, 2], "admins": [OWNER]}
    async with live_gateway(tmp_path, then=say("hello"), platform=platform) as g:
        blocked = Fault(403, "Forbidden: bot was blocked by the user")
        g.telegram.fault = lambda method, params: (
            blocked if method == "sendMessage" and params["chat_id"] == "2" else None
        )
        await g.telegram.say("hi", user=2)
        async with asyncio.timeout(90):
            while not await g.service.hub.mailbox.list_blocked_chats():
                await asyncio.sleep(0.02)
        await g.telegram.say("hi")
        await g.telegram.until(lambda: len(g.telegram.texts(OWNER)) == 2)
        assert sum("cannot be reached" in t for t in g.telegram.texts(OWNER)) == 1


async def test_f85_rejected_markup_is_sent_as_plain_text(tmp_path: Path) -> None:
    async with live_gateway(tmp_path, [say("a **bold** word")]) as g:
        bad = Fault(400, "Bad Request: can't parse entities: byte 3")
        g.telegram.fault = once("sendMessage", bad)
        await g.telegram.say("hi")
        await g.telegram.until_shown("a **bold** word")


async def test_f85_markup_that_is_refused_for_another_reason_is_sent_as_plain_text(
    tmp_path: Path,
) -> None:
    async with live_gateway(tmp_path, [say("a **bold** word")]) as g:
        g.telegram.fault = once("sendMessage", Fault(400, "Bad Request: ENTITY_TEXT_INVALID"))
        await g.telegram.say("hi")
        await g.telegram.until_shown("a **bold** word")


async def test_a_topic_is_kept_when_the_message_to_answer_to_is_gone(tmp_path: Path) -> None:
    def refuse(method: str, params: dict[str, Any]) -> Fault | None:
        if method == "sendMessage" and params.get("reply_parameters"):
            return Fault(400, "Bad Request: message to be replied not found")
        return None

    platform = {"allowed_chats": [GROUP], "require_mention": False, **WHOLE}
    async with live_gateway(tmp_path, then=say("answer"), platform=platform) as g:
        g.telegram.fault = refuse
        await g.telegram.say("hi", chat=GROUP, is_topic_message=True, message_thread_id=9)
        sent = await g.telegram.until_shown("answer")
        assert sent.params["message_thread_id"] == 9 and "reply_parameters" not in sent.params

        def refuse_all(method: str, params: dict[str, Any]) -> Fault | None:
            is_gone = method == "sendMessage" and params.get("message_thread_id")
            return Fault(400, "Bad Request: message thread not found") if is_gone else None

        g.telegram.fault = refuse_all
        await g.telegram.say("and now", chat=GROUP, is_topic_message=True, message_thread_id=9)
        await g.telegram.until(lambda: len(g.telegram.sent) == 2)
        assert "message_thread_id" not in g.telegram.sent[1].params


async def test_f81_the_code_of_an_answer_counts_more_than_its_status(tmp_path: Path) -> None:
    times: list[float] = []
    parameters = {"retry_after": 1}
    answer = {"ok": False, "error_code": 429, "description": "x", "parameters": parameters}

    def refuse_first(method: str, params: dict[str, Any]) -> Fault | None:
        if method == "sendMessage":
            times.append(time.monotonic())
        return Fault(200, raw=json.dumps(answer).encode()) if len(times) == 1 else None

    async with live_gateway(tmp_path, then=say("answer"), platform=WHOLE) as g:
        g.telegram.fault = refuse_first
        await g.telegram.say("one")
        await g.telegram.until_shown("answer")
        assert times[1] - times[0] >= 1


async def test_f85_too_long_after_all_is_halved(tmp_path: Path) -> None:
    text = "word " * 200
    async with live_gateway(tmp_path, [say(text)], platform=WHOLE) as g:
        long = Fault(400, "Bad Request: message is too long")
        g.telegram.fault = once("sendMessage", long)
        await g.telegram.say("hi")
        await g.telegram.until(lambda: " ".join(g.telegram.texts()).split() == text.split())
        assert len(g.telegram.texts()) >= 2


async def test_f86_a_lost_draft_is_sent_whole(tmp_path: Path) -> None:
    pieces = [f"piece {i} " for i in range(80)]
    async with live_gateway(tmp_path, [say(*pieces).bytes_each(500).slow(0.05)]) as g:
        lost = Fault(400, "Bad Request: message to edit not found")
        g.telegram.fault = once("editMessageText", lost)
        await g.telegram.say("hi")
        await g.telegram.until_shown("".join(pieces).strip())


async def test_a_group_that_became_a_supergroup_is_followed(tmp_path: Path) -> None:
    platform = {"allowed_chats": [GROUP], "require_mention": False}
    new = -1001234
    async with live_gateway(tmp_path, [say("one"), say("two")], platform=platform) as g:
        await g.telegram.say("hello", chat=GROUP)
        await g.telegram.until_shown("one")
        moved = g.telegram.make_message("", chat=GROUP, migrate_to_chat_id=new)
        await g.telegram.push({"message": moved})
        await g.telegram.say("still there?", chat=new)
        sent = await g.telegram.until_shown("two")
        assert sent.chat == new
        assert len(g.provider.requests[1].json["messages"]) > 3, "the session went along"


async def test_g22_an_edited_message_is_answered_once_as_it_is_now(tmp_path: Path) -> None:
    from tests.kit import Gate
    from tests.kit.bodies import messages

    gate = Gate()
    async with live_gateway(tmp_path, [say("one").hold(gate, n=0), say("two")]) as g:
        await g.telegram.say("first")
        await gate.reached()
        id = await g.telegram.say("sceond")
        await g.telegram.until_shown(texts.QUEUED)
        edited = {**g.telegram.make_message("second"), "message_id": id}
        await g.telegram.push({"edited_message": edited})
        await g.telegram.until(lambda: not g.telegram.updates)
        gate.open()
        await g.telegram.until_shown("two")
        late = {**g.telegram.make_message("too late"), "message_id": id}
        await g.telegram.push({"edited_message": late})
        await g.telegram.say("/version")
        await g.telegram.until(lambda: len(g.telegram.texts()) == 4)
        last = [m.text for m in messages(g.provider.requests[-1]) if m.role == "user"]
        assert last == ["first", "second"] and len(g.provider.requests) == 2


async def test_g8_a_replayed_update_is_one_turn(tmp_path: Path) -> None:
    async with live_gateway(tmp_path, [say("once"), say("next")]) as g:
        message = g.telegram.make_message("hi")
        for _ in range(5):
            await g.telegram.push({"message": message})
        await g.telegram.until_shown("once")
        await g.stop()
        await g.telegram.push({"message": message})
        await g.start()
        await g.telegram.say("other")
        await g.telegram.until_shown("next")
        assert g.telegram.texts() == ["once", "next"]


async def test_old_messages_are_counted_and_not_answered(tmp_path: Path) -> None:
    async with live_gateway(tmp_path) as g:
        for _ in range(3):
            await g.telegram.say("old", date=int(time.time()) - 90_000)
        await g.telegram.until(lambda: sum(int(t.split()[0]) for t in g.telegram.texts()) == 3)
        assert g.telegram.texts()[-1].endswith(texts.STALE.format(n="").strip())
        assert not g.provider.requests


async def test_old_messages_are_told_of_also_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(router, "STALE_SECONDS", 3600.0)
    async with live_gateway(tmp_path) as g:
        await g.telegram.say("old", date=int(time.time()) - 90_000)
        await g.telegram.until(lambda: not g.telegram.updates)
        await g.stop()
        monkeypatch.undo()
        again = LiveGateway(g.home, g.provider, g.telegram)
        await again.start()
        await g.telegram.until_shown(texts.STALE.format(n=1))
        await again.stop()
        assert g.telegram.texts() == [texts.STALE.format(n=1)]


async def test_g12_a_flood_is_joined_and_others_are_answered(tmp_path: Path) -> None:
    from tests.kit import Gate

    gate, other = Gate(), 3003
    steps = [say("one").hold(gate, n=0), say("for the other"), *[say("more")] * 4]
    platform = {"allowed_users": [OWNER, other]}
    async with live_gateway(tmp_path, steps, platform=platform, gateway={"max_queued": 3}) as g:
        await g.telegram.say("m0")
        await gate.reached()
        for i in range(1, 40):
            await g.telegram.say(f"m{i}")
        await g.telegram.until_shown(texts.MANY_WAITING)
        await g.telegram.say("hello", user=other)
        await g.telegram.until_shown("for the other")
        gate.open()
        await g.telegram.until(lambda: g.telegram.texts(OWNER).count("more") == 3)
        last = g.provider.requests[-1].json["messages"][-1]["content"]
        joined = "\n".join(f"m{i}" for i in range(3, 40))
        assert joined in str(last if isinstance(last, str) else last[0]["text"])
        assert g.telegram.texts(OWNER).count(texts.MANY_WAITING) == 1


async def test_a_denied_tool_in_a_turn_without_an_answer_is_told(tmp_path: Path) -> None:
    steps = [call(("c1", "terminal", {"command": "git push"})), say("ok")]
    async with live_gateway(tmp_path, steps, gateway={"approval_seconds": 0.2}) as g:
        await g.telegram.say("push")
        await g.telegram.until(
            lambda: any(t.endswith(texts.NOBODY_ANSWERED) for t in g.telegram.texts())
        )
