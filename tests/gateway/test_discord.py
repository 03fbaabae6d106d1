"""Discord: whole turns through the gateway and discord.py against a Discord on loopback."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from hermes.gateway import texts
from hermes.gateway.platforms import _discord_client
from tests.gateway.messengers import messenger
from tests.kit import Gate, call, run_hermes, say
from tests.kit.discord import BOT, GROUP, OWNER, TOKEN, discord
from tests.kit.messenger import Fault, once

pytestmark = pytest.mark.e2e

STRANGER = "2002"
MENTION = f"<@{BOT['id']}>"
SEND, EDIT = "POST channels/messages", "PATCH channels/messages/:id"


async def test_a_direct_message_is_answered(tmp_path: Path) -> None:
    steps = [say("Hello **you**, a_b_c @everyone."), say("Again.")]
    async with messenger(discord(), tmp_path, steps, process=True) as g:
        await g.chat.say("hi")
        sent = await g.chat.until_shown("Hello you, a_b_c @everyone.")
        assert sent.params["allowed_mentions"]["parse"] == [], "nobody is notified"
        assert sent.params["flags"] == 4, "link previews are off"
        await g.chat.say("and now")
        await g.chat.until_shown("Again.")
        assert g.prompts == ["hi", "and now"] and sent.chat == g.chat.find_dm(OWNER)
        assert g.chat.find_dm(OWNER) in g.chat.typing
        assert await g.run.stop() == 0


async def test_a_group_needs_a_place_on_the_list_and_a_mention(tmp_path: Path) -> None:
    platform = {"allowed_chats": [GROUP]}
    async with messenger(discord(), tmp_path, [say("yes?"), say("go on")], platform=platform) as g:
        await g.chat.say(f"{MENTION} elsewhere", chat="9002")
        await g.chat.say("just chatting", chat=GROUP)
        await g.chat.say(f"`{MENTION}` in code", chat=GROUP)
        await g.chat.say(f"> {MENTION} quoted\nso", chat=GROUP)
        await g.chat.say(f"{MENTION} hi", chat=GROUP, user=STRANGER)
        bot = {"id": "31", "username": "b", "discriminator": "0", "avatar": None, "bot": True}
        await g.chat.say(f"{MENTION} hi", chat=GROUP, author=bot)
        asked = await g.chat.say(f"{MENTION} hello", chat=GROUP)
        sent = await g.chat.until_shown("yes?")
        assert sent.params["message_reference"]["message_id"] == int(asked)
        said = next(m for m in g.chat.history[GROUP] if m["id"] == sent.id)
        reference = {"message_id": sent.id, "channel_id": GROUP}
        more = {"message_reference": reference, "referenced_message": said, "type": 19}
        await g.chat.say("and more", chat=GROUP, **more)
        await g.chat.until_shown("go on")
        assert g.prompts[0] == "hello" and g.prompts[1].endswith("and more")
        assert "yes?" in g.prompts[1], "what it answers comes along"


async def test_a_long_answer_keeps_the_pace_and_is_split(tmp_path: Path) -> None:
    pieces = [f"{'word ' * 9}{i} " for i in range(60)]
    whole = "".join(pieces).strip()
    answer = say(*pieces).bytes_each(2000).slow(0.05)
    async with messenger(discord(), tmp_path, [answer]) as g:
        await g.chat.say("tell me")
        await g.chat.until(lambda: " ".join(g.chat.texts()) == whole)
        first = g.chat.sent[0]
        assert len(first.versions) > 1 and len(g.chat.texts()) == 2
        gaps = [b - a for a, b in zip(first.times, first.times[1:], strict=False)]
        assert min(gaps) > 1.0, "edits keep the pace"
        assert all(whole.startswith(version) for version in first.versions)


async def test_more_escapes_than_fit_do_not_lose_text(tmp_path: Path) -> None:
    text = "a_b" * 600
    async with messenger(discord(), tmp_path, [say(text)]) as g:
        await g.chat.say("hi")
        await g.chat.until(lambda: g.chat.sent)
        assert g.chat.sent[0].params["content"] == text


async def test_commands_of_the_menu_are_answered_in_time(tmp_path: Path) -> None:
    async with messenger(discord(), tmp_path, [say("one"), say("two")]) as g:
        await g.chat.until(lambda: g.chat.commands)
        names = {row["name"] for row in g.chat.commands}
        assert {"new", "stop", "help", "reload-mcp"} - names == {"reload-mcp"}
        await g.chat.run_command("platforms")
        await g.chat.until_shown("discord: connected")
        assert g.chat.answers[0]["type"] == 4
        assert g.chat.answers[0]["data"] == {**g.chat.answers[0]["data"], "flags": 64}
        assert g.chat.answers[0]["data"]["content"] == "/platforms"
        await g.chat.run_command("queue", "what is it?")
        await g.chat.until_shown("one")
        assert g.prompts == ["what is it?"]
        await g.chat.run_command("platforms", user=STRANGER, chat=GROUP)
        await g.chat.until(lambda: len(g.chat.answers) == 3)
        assert g.chat.answers[-1]["data"]["content"] == texts.NOT_HERE
        await g.chat.say("/platforms")
        await g.chat.until_shown("discord: connected", count=2)


async def test_an_approval_is_asked_with_buttons(tmp_path: Path) -> None:
    command = "git push origin main"
    steps = [call(("c1", "terminal", {"command": command})), say("Fine.")]
    async with messenger(discord(), tmp_path, steps, platform={"admins": [OWNER]}) as g:
        await g.chat.say("push it")
        await g.chat.until(lambda: any(s.buttons for s in g.chat.sent))
        asked = next(s for s in g.chat.sent if s.buttons)
        assert asked.text.startswith("⚠️ Approval needed: ") and command in asked.text
        await g.chat.press(asked, "Deny", user=STRANGER)
        await g.chat.press(asked, "Deny")
        await g.chat.until_shown("Fine.")
        await g.chat.until(lambda: asked.text.endswith(f"❌ Denied by P{OWNER}"))
        assert not asked.buttons and len(g.chat.answers) == 2


async def test_an_approval_is_answered_with_a_command(tmp_path: Path) -> None:
    steps = [call(("c1", "terminal", {"command": "git push origin main"})), say("Fine.")]
    async with messenger(discord(), tmp_path, steps) as g:
        await g.chat.say("push it")
        await g.chat.until(lambda: any(s.buttons for s in g.chat.sent))
        await g.chat.run_command("deny")
        await g.chat.until_shown("Fine.")
        await g.chat.until(lambda: "❌ Denied by" in g.chat.sent[0].text)


async def test_attachments_come_in_and_go_out(tmp_path: Path) -> None:
    async with messenger(discord(), tmp_path, [say("Here.\nMEDIA:out.txt")]) as g:
        g.home.file("out.txt", "result")
        g.chat.files["f1"] = b"content of the file"
        base = g.chat.url.removesuffix("/api/v10")

        def attach(url: str) -> dict[str, Any]:
            return {"id": "1", "filename": "../evil.sh", "size": 19, "url": url, "proxy_url": url}

        files = [attach(f"{base}/attachments/f1"), attach("http://169.254.169.254/x")]
        await g.chat.say("look", attachments=files)
        await g.chat.until(lambda: any(s.file == b"result" for s in g.chat.sent))
        (stored,) = (g.home.path / "cache" / "media").iterdir()
        assert stored.read_bytes() == b"content of the file" and str(stored) in g.prompts[0]
        assert "was not fetched: it is not stored at Discord]" in g.prompts[0]


async def test_threads_have_sessions_of_their_own(tmp_path: Path) -> None:
    platform = {"allowed_chats": [GROUP], "require_mention": False}
    steps = [say("in the channel"), say("in the thread")]
    async with messenger(discord(), tmp_path, steps, platform=platform, start=False) as g:
        g.chat.threads["9100"] = GROUP
        await g.run.start()
        await g.chat.say("one", chat=GROUP)
        await g.chat.until_shown("in the channel")
        await g.chat.say("two", chat="9100")
        sent = await g.chat.until_shown("in the thread")
        assert (sent.chat, sent.thread) == (GROUP, "9100")
        listed = await run_hermes(["sessions", "list", "--json"], g.home)
        keys = {row["key"] for row in listed.json}
        assert f"agent:main:discord:group:{GROUP}:9100" in keys and len(keys) == 2


async def test_auto_thread_answers_in_a_new_thread(tmp_path: Path) -> None:
    platform = {"allowed_chats": [GROUP], "auto_thread": True}
    steps = [say("first"), say("second")]
    async with messenger(discord(), tmp_path, steps, platform=platform) as g:
        asked = await g.chat.say(f"{MENTION} what now?", chat=GROUP)
        sent = await g.chat.until_shown("first")
        assert sent.thread == asked and g.chat.threads == {asked: GROUP}
        made = next(p for m, p in g.chat.calls if m.endswith("/threads"))
        assert made["name"] == "what now?"
        await g.chat.say(f"{MENTION} and then?", chat=asked)
        assert (await g.chat.until_shown("second")).thread == asked
        assert len(g.provider.requests[1].json["messages"]) > 3, "the conversation continues"


async def test_g8_a_replayed_message_is_one_turn(tmp_path: Path) -> None:
    async with messenger(discord(), tmp_path, [say("once"), say("next")]) as g:
        message = g.chat.make_message("hi")
        for _ in range(5):
            await g.chat.push_message(message)
        await g.chat.until_shown("once")
        await g.chat.say("other")
        await g.chat.until_shown("next")
        assert g.chat.texts() == ["once", "next"]


async def test_an_edited_message_is_answered_as_it_is_now(tmp_path: Path) -> None:
    gate = Gate()
    async with messenger(discord(), tmp_path, [say("one").hold(gate, n=0), say("two")]) as g:
        await g.chat.say("first")
        await gate.reached()
        message = g.chat.make_message("sceond")
        await g.chat.push_message(message)
        await g.chat.until_shown(texts.QUEUED)
        edited = {**message, "content": "second", "edited_timestamp": message["timestamp"]}
        await g.chat.push("MESSAGE_UPDATE", edited)
        await g.chat.run_command("version")
        await g.chat.until(lambda: g.chat.answers)
        gate.open()
        await g.chat.until_shown("two")
        assert g.prompts == ["first", "second"]


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
    async with messenger(discord(), tmp_path, [say("the answer")]) as g:
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


async def test_plain_http_to_another_machine_is_refused(tmp_path: Path) -> None:
    platform = {"base_url": "http://discord.example/api/v10"}
    async with messenger(discord(), tmp_path, platform=platform) as g:
        found = g.run.service.status.platforms["discord"]
        assert (found.state, found.error_code) == ("fatal", "unconfigured")
