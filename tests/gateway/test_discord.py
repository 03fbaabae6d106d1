"""Discord: whole turns through the gateway and discord.py against a Discord on loopback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hermes.gateway import texts
from tests.flow.loop_parts import results
from tests.gateway.messengers import messenger
from tests.kit import Gate, call, run_hermes, say
from tests.kit.discord import BOT, GROUP, OWNER, discord

pytestmark = pytest.mark.e2e

STRANGER = "2002"
MENTION = f"<@{BOT['id']}>"


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


async def test_any_name_of_a_person_who_is_mentioned_is_read(tmp_path: Path) -> None:
    def describe(id: str, name: str) -> dict[str, Any]:
        return {"id": id, "username": "p", "global_name": name, "discriminator": "0"}

    people = [describe("41", r"¯\_(ツ)_/¯"), describe("42", r"\g<0>"), describe("43", "<@41>")]
    mentions = [{**person, "avatar": None} for person in people]
    async with messenger(discord(), tmp_path, then=say("yes")) as g:
        await g.chat.say("<@41> and <@!42>, <@43>: <@44>", mentions=mentions)
        await g.chat.until_shown("yes")
        assert g.prompts == [r"@¯\_(ツ)_/¯ and @\g<0>, @<@41>: <@44>"]


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
        assert {"new", "stop", "help", "reload-mcp"} <= names  # administrators use it too
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
        await g.chat.until(lambda: any("❌ Denied by" in s.text for s in g.chat.sent))


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
    steps = [say("one").hold(gate, n=0), say("elsewhere"), say("two")]
    platform = {"allowed_chats": [GROUP]}
    async with messenger(discord(), tmp_path, steps, platform=platform) as g:
        await g.chat.say("first")
        await gate.reached()
        message = g.chat.make_message("sceond")
        await g.chat.push_message(message)
        await g.chat.until_shown(texts.QUEUED)
        edited = {**message, "content": "second", "edited_timestamp": message["timestamp"]}
        await g.chat.push("MESSAGE_UPDATE", edited)
        await g.chat.say(f"{MENTION} hi", chat=GROUP)  # read after the edit
        await g.chat.until_shown("elsewhere")
        gate.open()
        await g.chat.until_shown("two")
        assert g.prompts == ["first", "hi", "second"]


async def test_only_administrators_look_into_servers(tmp_path: Path) -> None:
    rows = [{"action": "list_channels"}, {"action": "find_members", "name": "p"}]
    rows.append({"action": "read_messages", "channel": GROUP})
    looks = [call((f"c{n}", "discord_server", row)) for n, row in enumerate(rows)]
    steps = [*looks, say("seen"), looks[0], say("not allowed")]
    platform = {"allowed_users": [OWNER, STRANGER], "admins": [OWNER]}
    async with messenger(discord(), tmp_path, steps, platform=platform) as g:
        await g.chat.say("hello all", chat=GROUP, user=STRANGER)
        await g.chat.say("look around")
        await g.chat.until_shown("seen")
        channels, members, talk = (results(r)[-1] for r in g.provider.requests[1:4])
        assert GROUP in channels and f"P{OWNER}" in members and "hello all" in talk
        await g.chat.say("look around", user=STRANGER)
        await g.chat.until_shown("not allowed")
        assert "There is no tool" in results(g.provider.requests[-1])[0]
