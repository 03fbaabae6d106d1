"""Discord when something fails: broken sockets, restarts, refusals and limits."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest

from hermes.gateway import texts
from hermes.gateway.platforms import _discord_client
from tests.gateway.messengers import messenger
from tests.kit import Gate, run_hermes, say
from tests.kit.discord import BOT, GROUP, TOKEN, discord
from tests.kit.messenger import Fault, once

pytestmark = pytest.mark.e2e

MENTION = f"<@{BOT['id']}>"
SEND, EDIT = "POST channels/messages", "PATCH channels/messages/:id"


async def test_f87_a_broken_socket_is_resumed(tmp_path: Path) -> None:
    async with messenger(discord(), tmp_path, [say("one"), say("two"), say("three")]) as g:
        await g.chat.say("first")
        await g.chat.until_shown("one")
        await g.chat.break_connections()
        await g.chat.say("second")
        await g.chat.until_shown("two")
        await g.chat.ask_to_reconnect()
        await g.chat.until(lambda: g.chat.resumes == 2)
        await g.chat.say("third")
        await g.chat.until_shown("three")
        assert g.chat.identifies == 1 and g.prompts == ["first", "second", "third"]


async def test_f87_after_a_failed_resume_missed_messages_are_read(tmp_path: Path) -> None:
    async with messenger(discord(), tmp_path, [say("one"), say("two")]) as g:
        await g.chat.say("first")
        await g.chat.until_shown("one")
        await g.chat.break_connections(forget=True)
        await g.chat.say("second")
        await g.chat.until_shown("two")
        assert g.chat.identifies == 2 and g.chat.texts() == ["one", "two"]


async def test_messages_sent_while_it_was_down_are_answered_in_order(tmp_path: Path) -> None:
    platform = {"allowed_chats": [GROUP]}
    config: Any = {"gateway": {"busy_ack": False}}
    async with messenger(
        discord(), tmp_path, then=say("answer"), platform=platform, process=True, **config
    ) as g:
        await g.chat.say("before")
        await g.chat.until_shown("answer")
        assert await g.run.stop() == 0
        await g.chat.break_connections(forget=True)
        await g.chat.say("second")
        await g.chat.say("third")
        await g.chat.say("not for it", chat=GROUP)
        await g.chat.say(f"{MENTION} in the group", chat=GROUP)
        await g.run.start()
        await g.chat.until(lambda: len(g.chat.texts()) == 4)
        assert sorted(g.prompts[1:]) == ["in the group", "second", "third"]
        assert g.prompts.index("second") < g.prompts.index("third")


async def test_a_kill_while_the_model_answers_is_one_turn(tmp_path: Path) -> None:
    gate = Gate()
    steps = [say("never").hold(gate, n=0), say("the answer")]
    async with messenger(discord(), tmp_path, steps, process=True) as g:
        await g.chat.say("hello")
        await gate.reached()
        await g.run.kill()
        gate.open()
        await g.run.start()
        await g.chat.until_shown("the answer")
        assert g.chat.texts() == ["the answer"]


async def test_a_silent_socket_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_discord_client, "SILENT_SECONDS", 1.0)
    async with messenger(discord(), tmp_path, [say("one")], start=False) as g:
        g.chat.heartbeat_ms = 300
        await g.run.start()
        g.chat.acknowledges = False
        await g.chat.until(lambda: g.chat.resumes)
        g.chat.acknowledges = True
        await g.chat.say("hello")
        await g.chat.until_shown("one")


async def test_f81_a_flood_wait_is_kept(tmp_path: Path) -> None:
    async with messenger(discord(), tmp_path, [say("answer")]) as g:
        flood = {"message": "You are being rate limited.", "retry_after": 2.5, "global": False}
        g.chat.fault = once(SEND, Fault(429, flood, {"Via": "1.1 google"}))
        begin = time.monotonic()
        await g.chat.say("hi")
        await g.chat.until_shown("answer")
        assert time.monotonic() - begin >= 2.5 and g.chat.texts() == ["answer"]


async def test_f82_a_send_without_an_answer_is_repeated_with_a_mark(tmp_path: Path) -> None:
    whole = {"streaming": False}  # however slow the machine is
    async with messenger(discord(), tmp_path, [say("the answer")], platform=whole) as g:
        g.chat.fault = once(SEND, Fault(hang_up=True, after=True))
        await g.chat.say("hi")
        await g.chat.until_shown(f"{texts.REPEATED}\nthe answer")
        assert g.chat.texts() == ["the answer", f"{texts.REPEATED}\nthe answer"]


async def test_a_certain_failure_is_repeated_without_a_mark(tmp_path: Path) -> None:
    async with messenger(discord(), tmp_path, [say("the answer")]) as g:
        g.chat.fault = once(SEND, Fault(503, {"message": "down", "code": 0}))
        await g.chat.say("hi")
        await g.chat.until_shown("the answer")
        assert g.chat.texts() == ["the answer"]


async def test_f84_a_person_who_takes_no_messages_is_given_up(tmp_path: Path) -> None:
    async with messenger(discord(), tmp_path, then=say("hello")) as g:
        refusal = {"message": "Cannot send messages to this user", "code": 50007}
        g.chat.fault = once(SEND, Fault(403, refusal))
        await g.chat.say("hi")
        await g.chat.until(lambda: g.chat.count_calls(SEND))
        await g.chat.say("back")
        await g.chat.until_shown("hello")


async def test_f86_a_deleted_draft_is_sent_whole(tmp_path: Path) -> None:
    pieces = [f"piece {i} " for i in range(80)]
    async with messenger(discord(), tmp_path, [say(*pieces).bytes_each(500).slow(0.05)]) as g:
        g.chat.fault = once(EDIT, Fault(404, {"message": "Unknown Message", "code": 10008}))
        await g.chat.say("hi")
        await g.chat.until_shown("".join(pieces).strip())


async def test_f91_a_refused_token_is_fatal(tmp_path: Path) -> None:
    async with messenger(discord(), tmp_path, process=True, start=False) as g:
        g.chat.token = "another"
        await g.run.start()
        found = await g.until_state("fatal")
        assert found["error_code"] == "unauthorized"
        assert await g.run.stop() == 0 and TOKEN not in g.run.stderr


@pytest.mark.parametrize(("code", "error"), [(4014, "intents"), (4004, "unauthorized")])
async def test_the_gateway_says_why_it_was_closed(tmp_path: Path, code: int, error: str) -> None:
    async with messenger(discord(), tmp_path, start=False) as g:
        g.chat.close_code = code
        await g.run.start()
        found = g.run.service.status.platforms["discord"]
        assert (found.state, found.error_code) == ("fatal", error)
        assert "developer portal" in found.error_message


async def test_an_outage_is_retried_until_it_is_over(tmp_path: Path) -> None:
    async with messenger(discord(), tmp_path, [say("back")], start=False) as g:
        g.chat.fault = lambda method, _: Fault(503) if method == "GET users/@me" else None
        await g.run.start()
        found = g.run.service.status.platforms["discord"]
        assert (found.state, found.error_code) == ("retrying", "unreachable")
        g.chat.fault = lambda method, _: None
        await g.chat.until(lambda: g.chat.is_connected)
        await g.chat.say("hello")
        await g.chat.until_shown("back")
        await g.chat.until(lambda: g.chat.commands)


async def test_setup_tries_the_token(tmp_path: Path) -> None:
    async with messenger(discord(), tmp_path, process=True, start=False) as g:
        del g.home.env["DISCORD_BOT_TOKEN"]
        setup = ["gateway", "setup", "discord"]
        wrong = await run_hermes(setup, g.home, stdin="wrong-token")
        assert wrong.rc == 2 and "Nothing was saved" in wrong.stderr
        done = await run_hermes(setup, g.home, stdin=TOKEN)
        assert done.rc == 0 and "The token works: @kit_bot." in done.stdout, done.stderr
        assert TOKEN not in done.stdout + done.stderr
        assert TOKEN in (g.home.path / ".env").read_text()


async def test_a_missing_intent_is_said_before_the_start(tmp_path: Path) -> None:
    async with messenger(discord(), tmp_path, process=True, start=False) as g:
        g.chat.application_flags = 0
        checked = await run_hermes(["doctor", "--json"], g.home)
        found = {check["name"]: check for check in checked.json}["messenger discord"]
        assert found["state"] == "failed" and "Message Content Intent" in found["text"]
        assert found["text"].startswith("the token works") and checked.rc == 1
        setup = await run_hermes(["gateway", "setup", "discord"], g.home, stdin=TOKEN)
        assert setup.rc == 0 and "Message Content Intent" in setup.stdout
        g.chat.application_flags = 1 << 19
        checked = await run_hermes(["doctor", "--json"], g.home)
        found = {check["name"]: check for check in checked.json}["messenger discord"]
        assert (found["state"], found["text"]) == ("ok", "the token works: @kit_bot")


async def test_plain_http_to_another_machine_is_refused(tmp_path: Path) -> None:
    platform = {"base_url": "http://discord.example/api/v10"}
    async with messenger(discord(), tmp_path, platform=platform) as g:
        found = g.run.service.status.platforms["discord"]
        assert (found.state, found.error_code) == ("fatal", "unconfigured")


async def test_a_missing_library_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, _discord_client.__name__)
    monkeypatch.setitem(sys.modules, "discord", None)
    async with messenger(discord(), tmp_path) as g:
        found = g.run.service.status.platforms["discord"]
        assert (found.state, found.error_code) == ("fatal", "missing_dependency")
        assert "pip install 'hermes-runtime[discord]'" in found.error_message


async def test_a_slow_command_is_answered_in_time_and_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_discord_client, "ANSWER_SECONDS", 0.0)
    async with messenger(discord(), tmp_path) as g:
        await g.chat.run_command("platforms")
        await g.chat.until_shown("discord: connected")
        await g.chat.until(lambda: len(g.chat.answers) == 2)
        assert [a.get("type") for a in g.chat.answers] == [5, None]
        assert g.chat.answers[1]["content"] == "/platforms"
