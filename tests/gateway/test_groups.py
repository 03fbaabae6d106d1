"""Messages in groups: which of them are meant for the agent, and who may answer what it asks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hermes.gateway import texts
from tests.gateway.gateways import LiveGateway, live_gateway
from tests.gateway.test_turns import prompts
from tests.kit import call, say
from tests.kit.telegram import BOT, OWNER, Sent

pytestmark = pytest.mark.e2e

GROUP = -100500
OTHER = 2002
MENTION = [{"type": "mention", "offset": 0, "length": len(f"@{BOT['username']}")}]
LISTED = {"allowed_users": [OWNER, OTHER], "admins": [OWNER], "allowed_chats": [GROUP]}
SHARED = {"group_sessions_per_user": False}


async def mention(g: LiveGateway, text: str, **more: Any) -> None:
    more = {"user": OWNER, "entities": MENTION, **more}
    await g.telegram.say(f"@{BOT['username']} {text}", chat=GROUP, **more)


async def until_asked(g: LiveGateway) -> Sent:
    await g.telegram.until(lambda: any(s.buttons for s in g.telegram.sent))
    return next(s for s in g.telegram.sent if s.buttons)


async def test_an_album_whose_caption_mentions_the_bot_is_one_message(tmp_path: Path) -> None:
    async with live_gateway(tmp_path, [say("seen"), say("next")], platform=LISTED) as g:
        g.telegram.files = {name: b"\x89PNG\r\n\x1a\n" + name.encode() for name in "abc"}
        for name in "abc":
            picture = {"file_id": name, "file_unique_id": name, "file_size": 9}
            message = g.telegram.make_message("", chat=GROUP, photo=[picture])
            message["media_group_id"] = "1" if name != "c" else "2"
            if name == "a":
                message |= {"caption": f"@{BOT['username']} look", "caption_entities": MENTION}
            await g.telegram.push({"message": message})
        await g.telegram.until_shown("seen")
        await mention(g, "and?")
        await g.telegram.until_shown("next")
        assert prompts(g)[0].startswith("look\n[attachment: ")
        assert prompts(g)[0].count("[attachment: ") == 2, "the other album was not meant for it"


@pytest.mark.parametrize("mark", ["forward_origin", "forward_date"])
async def test_g5_a_forwarded_mention_does_not_count(tmp_path: Path, mark: str) -> None:
    async with live_gateway(tmp_path, [say("yes?")], platform=LISTED) as g:
        await mention(g, "somebody wrote this", **{mark: 1})
        await mention(g, "I wrote this")
        await g.telegram.until_shown("yes?")
        assert prompts(g) == ["I wrote this"]


async def test_the_general_topic_is_answered_without_a_thread(tmp_path: Path) -> None:
    async with live_gateway(tmp_path, then=say("yes?"), platform=LISTED) as g:
        for thread in (1, 77):
            await mention(g, "hi", is_topic_message=True, message_thread_id=thread)
        await g.telegram.until(lambda: len(g.telegram.sent) == 2)
        threads = [sent.params.get("message_thread_id") for sent in g.telegram.sent]
        assert sorted(threads, key=str) == [77, None]


async def test_commands_of_every_kind_need_no_mention(tmp_path: Path) -> None:
    async with live_gateway(tmp_path, then=say("done"), platform=LISTED) as g:
        (g.home.path / "commands").mkdir()
        (g.home.path / "commands" / "tidy_up.md").write_text("Tidy up the $ARGUMENTS.")
        for count, text in enumerate(("/tidy_up shed", "/code_review it", "/code-review it"), 1):
            await g.telegram.say(text, chat=GROUP)
            await g.telegram.until(lambda n=count: g.telegram.texts().count("done") == n)  # type: ignore[misc]
        await g.telegram.say("/no_such_thing", chat=GROUP)
        await mention(g, "the end")
        await g.telegram.until(lambda: g.telegram.texts().count("done") == 4)
        assert prompts(g)[0] == "Tidy up the shed." and prompts(g)[-1] == "the end"
        assert g.telegram.texts() == ["done"] * 4


async def test_a_question_is_answered_by_who_caused_it_or_an_administrator(tmp_path: Path) -> None:
    ask = {"question": "Which colour?", "choices": ["red", "blue"]}
    steps = [call(("c1", "clarify", ask)), say("Painted."), say("Two what?")]
    async with live_gateway(tmp_path, steps, platform=LISTED, gateway=SHARED) as g:
        await mention(g, "paint")
        await until_asked(g)
        await mention(g, "2", user=OTHER)
        await g.telegram.until_shown(texts.QUEUED)
        await mention(g, "1")
        await g.telegram.until_shown("Painted.")
        await g.telegram.until_shown("Two what?")
        assert b"red" in g.provider.requests[1].body


async def test_g6_whoever_presses_a_foreign_button_is_told_whose_it_is(tmp_path: Path) -> None:
    steps = [call(("c1", "terminal", {"command": "git push origin main"})), say("Fine.")]
    async with live_gateway(tmp_path, steps, platform=LISTED) as g:
        await mention(g, "push")
        asked = await until_asked(g)
        for person in (OTHER, 4004):
            await g.telegram.press(asked, "Allow once", user=person)
        await g.telegram.press(asked, "Deny")
        await g.telegram.until_shown("Fine.")
        said = [p.get("text") for m, p in g.telegram.calls if m == "answerCallbackQuery"]
        refusal = texts.NOT_YOURS.format(name=f"P{OWNER}")
        assert said == [refusal, refusal, None]


async def test_menus_show_commands_of_administrators_to_them_alone(tmp_path: Path) -> None:
    async with live_gateway(tmp_path, platform=LISTED) as g:
        await g.telegram.until(
            lambda: len([m for m, _ in g.telegram.calls if m == "setMyCommands"]) == 2
        )
        menus = {
            (p.get("scope") or {}).get("chat_id"): {row["command"] for row in p["commands"]}
            for m, p in g.telegram.calls
            if m == "setMyCommands"
        }
        assert "reload_mcp" not in menus[None] and "help" in menus[None]
        assert menus[str(OWNER)] > menus[None] | {"reload_mcp", "model"}
