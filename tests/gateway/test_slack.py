"""Slack: whole turns through the gateway against a Slack on loopback that slack-sdk accepts too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hermes.gateway import texts
from tests.gateway.messengers import messenger
from tests.kit import Gate, call, say
from tests.kit.slack import APP_TOKEN, BOT, GROUP, OWNER, TOKEN, slack

pytestmark = pytest.mark.e2e

STRANGER = "U2002"
MENTION = f"<@{BOT}>"


async def test_a_direct_message_is_answered(tmp_path: Path) -> None:
    steps = [say("Hello **you**, a_b_c <!channel> @here & co."), say("Again.")]
    async with messenger(slack(), tmp_path, steps, process=True) as g:
        await g.chat.say("is 1 &lt; 2?")
        sent = await g.chat.until_shown("Hello you, a_b_c <!channel> @here & co.")
        assert sent.chat == g.chat.find_dm(OWNER) and not sent.thread
        assert not sent.params["unfurl_links"] and not sent.params["unfurl_media"]
        await g.chat.say("and now")
        await g.chat.until_shown("Again.")
        await g.chat.until(lambda: not g.chat.waiting)
        assert g.prompts == ["is 1 < 2?", "and now"]
        assert await g.run.stop() == 0


async def test_a_group_needs_a_place_on_the_list_and_a_mention(tmp_path: Path) -> None:
    platform = {"allowed_chats": [GROUP]}
    async with messenger(slack(), tmp_path, [say("yes?"), say("go on")], platform=platform) as g:
        await g.chat.say(f"{MENTION} elsewhere", chat="C9002")
        await g.chat.say("just chatting", chat=GROUP)
        await g.chat.say(f"`{MENTION}` in code", chat=GROUP)
        await g.chat.say(f"&gt; {MENTION} quoted", chat=GROUP)
        await g.chat.say(f"{MENTION} hi", chat=GROUP, user=STRANGER)
        await g.chat.say(f"{MENTION} hi", chat=GROUP, bot_id="B31")
        event = g.chat.make_event(f"{MENTION} hello <@U5|ann>", chat=GROUP)
        await g.chat.push_event(event)
        await g.chat.push_event({**event, "type": "app_mention"})
        sent = await g.chat.until_shown("yes?")
        assert (sent.chat, sent.thread) == (GROUP, event["ts"])
        await g.chat.say(f"{MENTION} and more", chat=GROUP, thread_ts=event["ts"])
        assert (await g.chat.until_shown("go on")).thread == event["ts"]
        assert g.prompts == [f"[P{OWNER}] hello @ann", f"[P{OWNER}] and more"]
        assert len(g.provider.requests[1].json["messages"]) > 3, "the conversation continues"
        assert any(s["thread_ts"] == event["ts"] for s in g.chat.statuses)
        asked = [p["user"] for m, p in g.chat.calls if m == "users.info"]
        assert asked == [OWNER], "strangers are not looked up"


async def test_a_long_answer_keeps_the_pace_and_is_split(tmp_path: Path) -> None:
    pieces = [f"{'word ' * 9}{i} & " for i in range(90)]
    whole = "".join(pieces).strip()
    answer = say(*pieces).bytes_each(3000).slow(0.05)
    async with messenger(slack(), tmp_path, [answer]) as g:
        await g.chat.say("tell me")
        await g.chat.until(lambda: " ".join(g.chat.texts()) == whole)
        first = g.chat.sent[0]
        assert len(first.versions) > 1 and len(g.chat.texts()) == 2
        gaps = [b - a for a, b in zip(first.times, first.times[1:], strict=False)]
        assert min(gaps) > 1.0, "edits keep the pace"
        assert all(whole.startswith(version) for version in first.versions)


async def test_the_command_and_the_exclamation_mark(tmp_path: Path) -> None:
    async with messenger(slack(), tmp_path, [say("one")]) as g:
        await g.chat.run_command("platforms")
        await g.chat.until_shown("slack: connected")
        await g.chat.until(lambda: g.chat.acks)
        assert g.chat.acks[0]["payload"] == {"text": "/platforms"}
        await g.chat.run_command("")
        await g.chat.until(lambda: any("/version" in t for t in g.chat.texts()))
        await g.chat.say("!platforms")
        await g.chat.until_shown("slack: connected", count=2)
        await g.chat.run_command("queue what is it?")
        await g.chat.until_shown("one")
        assert g.prompts == ["what is it?"]
        id = await g.chat.run_command("platforms", user=STRANGER, chat=GROUP)
        await g.chat.until(lambda: g.chat.acks[-1]["envelope_id"] == id)
        assert g.chat.acks[-1]["payload"] == {"text": texts.NOT_HERE}


async def test_an_approval_is_asked_with_buttons(tmp_path: Path) -> None:
    command = "git push origin main"
    steps = [call(("c1", "terminal", {"command": command})), say("Fine.")]
    platform = {"allowed_users": [OWNER, STRANGER], "admins": [OWNER]}
    async with messenger(slack(), tmp_path, steps, platform=platform) as g:
        await g.chat.say("push it")
        await g.chat.until(lambda: any(s.buttons for s in g.chat.sent))
        asked = next(s for s in g.chat.sent if s.buttons)
        assert asked.text.startswith("⚠️ Approval needed: ") and command in asked.text
        await g.chat.press(asked, "Deny", user=STRANGER)
        await g.chat.until(lambda: g.chat.count_calls("chat.postEphemeral"))
        await g.chat.press(asked, "Deny")
        await g.chat.until_shown("Fine.")
        await g.chat.until(lambda: asked.text.endswith(f"❌ Denied by P{OWNER}"))
        assert not asked.buttons


async def test_an_approval_is_answered_in_words(tmp_path: Path) -> None:
    steps = [call(("c1", "terminal", {"command": "git push origin main"})), say("Fine.")]
    async with messenger(slack(), tmp_path, steps) as g:
        await g.chat.say("push it")
        await g.chat.until(lambda: any(s.buttons for s in g.chat.sent))
        await g.chat.say("!deny")
        await g.chat.until_shown("Fine.")


async def test_attachments_come_in_and_go_out(tmp_path: Path) -> None:
    async with messenger(slack(), tmp_path, [say("Here.\nMEDIA:out.txt")]) as g:
        g.home.file("out.txt", "result")
        g.chat.files["f1"] = b"content of the file"
        base = g.chat.url.removesuffix("/api")
        files = [
            {"id": "F1", "name": "../a.txt", "url_private_download": f"{base}/files/f1"},
            {"id": "F2", "name": "b", "url_private_download": "http://169.254.169.254/x"},
        ]
        await g.chat.say("look", files=files, subtype="file_share")
        await g.chat.until(lambda: any(s.file == b"result" for s in g.chat.sent))
        (stored,) = (g.home.path / "cache" / "media").iterdir()
        assert stored.read_bytes() == b"content of the file" and str(stored) in g.prompts[0]
        assert "[attachment b was not fetched: it is not stored at Slack]" in g.prompts[0]


async def test_g8_a_replayed_event_is_one_turn(tmp_path: Path) -> None:
    async with messenger(slack(), tmp_path, [say("once"), say("next")]) as g:
        event = g.chat.make_event("hi")
        for _ in range(5):
            await g.chat.push_event(event)
        await g.chat.until_shown("once")
        await g.run.stop()
        await g.chat.push_event(event)
        await g.run.start()
        await g.chat.say("other")
        await g.chat.until_shown("next")
        assert g.chat.texts() == ["once", "next"] and not g.chat.waiting


async def test_an_edited_message_is_answered_as_it_is_now(tmp_path: Path) -> None:
    gate = Gate()
    async with messenger(slack(), tmp_path, [say("one").hold(gate, n=0), say("two")]) as g:
        await g.chat.say("first")
        await gate.reached()
        event = g.chat.make_event("sceond")
        await g.chat.push_event(event)
        await g.chat.until_shown(texts.QUEUED)
        edited = {**event, "text": "second"}
        changed = {"subtype": "message_changed", "message": edited, "previous_message": event}
        await g.chat.push_event(g.chat.make_event("", **changed))
        await g.chat.until(lambda: not g.chat.waiting)
        gate.open()
        await g.chat.until_shown("two")
        assert g.prompts == ["first", "second"]


async def test_slack_sdk_accepts_the_fake() -> None:
    import asyncio

    from slack_sdk.socket_mode.aiohttp import SocketModeClient
    from slack_sdk.socket_mode.response import SocketModeResponse
    from slack_sdk.web.async_client import AsyncWebClient

    async with slack() as fake:
        web = AsyncWebClient(TOKEN, base_url=f"{fake.url}/")
        assert (await web.auth_test())["user_id"] == BOT
        sent = await web.chat_postMessage(channel=GROUP, text="*hello*")
        await web.chat_update(channel=GROUP, ts=str(sent["ts"]), text="_changed_")
        await web.files_upload_v2(channel=GROUP, content="x", filename="x.txt")
        assert [s.text for s in fake.sent] == ["changed", "x.txt"]
        client = SocketModeClient(APP_TOKEN, web_client=web)
        seen: list[dict[str, Any]] = []

        async def answer(socket: Any, request: Any) -> None:
            seen.append(request.payload)
            await socket.send_socket_mode_response(
                SocketModeResponse(envelope_id=request.envelope_id)
            )

        client.socket_mode_request_listeners.append(answer)
        await client.connect()
        await fake.say("hi")
        await fake.until(lambda: seen and not fake.waiting)
        await client.disconnect()
        await client.close()
        assert seen[0]["event"]["text"] == "hi"
        await asyncio.sleep(0)
