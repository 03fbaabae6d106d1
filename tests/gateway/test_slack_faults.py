"""Slack when something fails: broken sockets, restarts, refusals and limits."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from hermes.gateway import texts
from hermes.gateway.platforms import _slack_api
from tests.gateway.messengers import messenger
from tests.kit import Gate, run_hermes, say
from tests.kit.messenger import Fault, once
from tests.kit.slack import APP_TOKEN, TOKEN, slack

pytestmark = pytest.mark.e2e

SEND = "chat.postMessage"


async def test_what_was_sent_while_it_was_down_is_answered(tmp_path: Path) -> None:
    config: Any = {"gateway": {"busy_ack": False}}
    async with messenger(
        slack(), tmp_path, then=say("answer"), process=True, start=False, **config
    ) as g:
        await g.chat.say("first")
        await g.chat.say("second")
        await g.run.start()
        await g.chat.until(lambda: len(g.chat.texts()) == 2)
        assert g.prompts == ["first", "second"]


async def test_a_kill_while_the_model_answers_is_one_turn(tmp_path: Path) -> None:
    gate = Gate()
    steps = [say("never").hold(gate, n=0), say("the answer")]
    async with messenger(slack(), tmp_path, steps, process=True) as g:
        event = g.chat.make_event("hello")
        await g.chat.push_event(event)
        await gate.reached()
        await g.run.kill()
        await g.chat.push_event(event)
        gate.open()
        await g.run.start()
        await g.chat.until_shown("the answer")
        await g.chat.until(lambda: not g.chat.waiting)
        assert g.chat.texts() == ["the answer"]


async def test_f87_the_new_socket_opens_before_the_old_one_closes(tmp_path: Path) -> None:
    async with messenger(slack(), tmp_path, [say("one"), say("two")]) as g:
        await g.chat.ask_to_reconnect()
        await g.chat.until(lambda: g.chat.opened == 2)
        await g.chat.say("first")
        await g.chat.until_shown("one")
        await g.chat.until(lambda: len(g.chat.sockets) == 1)
        assert g.chat.most_sockets == 2
        await g.chat.break_connections()
        await g.chat.say("second")
        await g.chat.until_shown("two")
        assert g.chat.texts() == ["one", "two"]


async def test_a_silent_socket_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_slack_api, "HEARTBEAT_SECONDS", 1.0)
    async with messenger(slack(), tmp_path, [say("one")]) as g:
        (socket,) = g.chat.sockets
        socket._reader = None  # it answers no ping any more
        assert socket._req is not None and socket._req.transport is not None
        socket._req.transport.pause_reading()  # type: ignore[attr-defined]
        await g.chat.until(lambda: g.chat.opened == 2)
        await g.chat.say("hello")
        await g.chat.until_shown("one")


async def test_f81_a_flood_wait_is_kept(tmp_path: Path) -> None:
    async with messenger(slack(), tmp_path, [say("answer")]) as g:
        g.chat.fault = once(SEND, Fault(429, headers={"Retry-After": "2"}, raw=b"slow down"))
        begin = time.monotonic()
        await g.chat.say("hi")
        await g.chat.until_shown("answer")
        assert time.monotonic() - begin >= 2 and g.chat.texts() == ["answer"]


async def test_a_wait_without_a_number_is_a_short_one(tmp_path: Path) -> None:
    async with messenger(slack(), tmp_path, then=say("answer")) as g:
        date = {"Retry-After": "Wed, 21 Oct 2099 07:28:00 GMT"}
        g.chat.fault = once(SEND, Fault(429, headers=date, raw=b"slow down"))
        await g.chat.say("hi")
        await g.chat.until_shown("answer")
        assert g.chat.texts() == ["answer"]


async def test_f82_a_send_without_an_answer_is_repeated_with_a_mark(tmp_path: Path) -> None:
    whole = {"streaming": False}  # however slow the machine is
    async with messenger(slack(), tmp_path, [say("the answer")], platform=whole) as g:
        g.chat.fault = once(SEND, Fault(hang_up=True, after=True))
        await g.chat.say("hi")
        await g.chat.until_shown(f"{texts.REPEATED}\nthe answer")
        assert g.chat.texts() == ["the answer", f"{texts.REPEATED}\nthe answer"]


@pytest.mark.parametrize(
    "fault",
    [
        Fault(503, raw=b"<html>"),
        Fault(200, {"ok": False, "error": "request_timeout"}),
        Fault(200, {"ok": False, "error": "invalid_blocks"}),
    ],
)
async def test_a_certain_failure_is_repeated_without_a_mark(tmp_path: Path, fault: Fault) -> None:
    async with messenger(slack(), tmp_path, [say("the answer")]) as g:
        g.chat.fault = once(SEND, fault)
        await g.chat.say("hi")
        await g.chat.until_shown("the answer")
        assert g.chat.texts() == ["the answer"]


async def test_f84_a_chat_that_is_gone_is_given_up_until_it_writes(tmp_path: Path) -> None:
    async with messenger(slack(), tmp_path, then=say("hello")) as g:
        g.chat.fault = once(SEND, Fault(200, {"ok": False, "error": "channel_not_found"}))
        await g.chat.say("hi")
        await g.chat.until(lambda: g.chat.count_calls(SEND))
        await g.chat.say("back")
        await g.chat.until_shown("hello")


async def test_f86_a_deleted_draft_is_sent_whole(tmp_path: Path) -> None:
    pieces = [f"piece {i} " for i in range(80)]
    async with messenger(slack(), tmp_path, [say(*pieces).bytes_each(500).slow(0.05)]) as g:
        lost = Fault(200, {"ok": False, "error": "message_not_found"})
        g.chat.fault = once("chat.update", lost)
        await g.chat.say("hi")
        await g.chat.until_shown("".join(pieces).strip())


@pytest.mark.parametrize("which", ["token", "app_token"])
async def test_f91_a_refused_token_is_fatal(tmp_path: Path, which: str) -> None:
    async with messenger(slack(), tmp_path, process=True, start=False) as g:
        setattr(g.chat, which, "another")
        await g.run.start()
        found = await g.until_state("fatal")
        assert found["error_code"] == "unauthorized"
        assert f"SLACK_{'APP' if which == 'app_token' else 'BOT'}_TOKEN" in found["error_message"]
        assert await g.run.stop() == 0
        assert TOKEN not in g.run.stderr and APP_TOKEN not in g.run.stderr


async def test_setup_tries_both_tokens(tmp_path: Path) -> None:
    async with messenger(slack(), tmp_path, process=True, start=False) as g:
        for variable in type(g.chat).variables:
            del g.home.env[variable]
        setup = ["gateway", "setup", "slack"]
        wrong = await run_hermes(setup, g.home, stdin=f"{TOKEN}\nxapp-wrong\n")
        assert wrong.rc == 2 and "SLACK_APP_TOKEN" in wrong.stderr
        assert not (g.home.path / ".env").exists()
        done = await run_hermes(setup, g.home, stdin=f"{TOKEN}\n{APP_TOKEN}\n")
        assert done.rc == 0 and "@kit_bot in kit." in done.stdout, done.stderr
        env = (g.home.path / ".env").read_text()
        assert TOKEN in env and APP_TOKEN in env and TOKEN not in done.stdout + done.stderr
