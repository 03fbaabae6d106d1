"""Matrix: whole turns against a homeserver on loopback."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from hermes.gateway import texts
from tests.gateway.gateways import GatewayProcess
from tests.gateway.platform_runs import list_prompts, platform_gateway, until_fatal
from tests.gateway.test_delivery import once
from tests.kit import Gate, call, run_hermes, say
from tests.kit.matrix import BOT, OWNER, PASSWORD, TOKEN, Homeserver, homeserver
from tests.kit.telegram import Fault

pytestmark = pytest.mark.e2e

STRANGER = "@stranger:kit"
MENTION = {"m.mentions": {"user_ids": [BOT]}}


@asynccontextmanager
async def matrix(
    root: Path, *steps: Any, env: dict[str, str] | None = None, start: bool = True, **settings: Any
) -> AsyncIterator[tuple[GatewayProcess, Homeserver, str]]:
    """A gateway, its homeserver, and the direct chat with the owner."""
    async with homeserver() as fake:
        room = fake.add_room(OWNER, BOT)
        given = {"homeserver": fake.url, "allowed_users": [OWNER], **settings}
        secrets = env or {"MATRIX_ACCESS_TOKEN": TOKEN}
        async with platform_gateway(root, "matrix", given, secrets, steps, start=start) as g:
            yield g, fake, room


async def test_a_direct_chat_with_markup_edits_and_commands(tmp_path: Path) -> None:
    pieces = [f"{'word ' * 20}{i} " for i in range(60)]
    whole = "".join(pieces).strip()
    steps = (say("Hello **you** <b>@room</b>."), say(*pieces).bytes_each(4000).slow(0.05))
    async with matrix(tmp_path, *steps) as (g, fake, room):
        await fake.say(room, "hi")
        shown = await fake.until_shown("Hello **you** <b>@room</b>.")
        html = "Hello <b>you</b> &lt;b&gt;@room&lt;/b&gt;."
        assert shown.content["formatted_body"] == html and shown.content["m.mentions"] == {}
        await fake.say(room, "tell me")
        sent = await fake.until_shown(whole)
        assert len(sent.versions) > 1 and all(whole.startswith(v) for v in sent.versions)
        gaps = [b - a for a, b in zip(sent.times, sent.times[1:], strict=False)]
        assert min(gaps) > 1.4, "edits keep the pace"
        assert any(name == "typing" for name, _ in fake.calls)
        await fake.say(room, "!version")
        await fake.until(lambda: len(fake.texts()) == 3)
        assert len(g.provider.requests) == 2
        listed = await run_hermes(["sessions", "list", "--json"], g.home)
        assert listed.json[0]["key"] == "agent:main:matrix:dm:!room0%3Akit"
        assert await g.stop() == 0


async def test_a_group_counts_what_is_addressed(tmp_path: Path) -> None:
    async with homeserver() as fake:
        group = fake.add_room(OWNER, STRANGER, BOT)
        other = fake.add_room(OWNER, STRANGER, BOT)
        steps = [say("one"), say("two"), say("three"), say("four")]
        given = {"homeserver": fake.url, "allowed_users": [OWNER], "allowed_chats": [group]}
        env = {"MATRIX_ACCESS_TOKEN": TOKEN}
        async with platform_gateway(tmp_path, "matrix", given, env, steps) as g:
            await fake.say(group, "nobody asked you")
            await fake.say(group, "bot: psst", user=STRANGER, **MENTION)
            await fake.say(other, "bot: here?", **MENTION)
            quoting = "<blockquote><a href='https://matrix.to/#/@bot:kit'>bot</a></blockquote> no"
            await fake.say(group, "> bot\n\nno", formatted_body=quoting)
            question = await fake.say(group, "bot: what is it?", **MENTION)
            first = await fake.until_shown("one")
            assert first.content["m.relates_to"] == {"m.in_reply_to": {"event_id": question}}
            pill = '<a href="https://matrix.to/#/@bot:kit">bot</a>: a pill'
            await fake.say(group, "bot: a pill", formatted_body=pill)
            await fake.until_shown("two")
            reply = {"m.relates_to": {"m.in_reply_to": {"event_id": first.id}}}
            await fake.say(group, "> <@bot:kit> one\n\na reply", **reply)
            await fake.until_shown("three")
            thread = {"rel_type": "m.thread", "event_id": question, "is_falling_back": True}
            inside = {"m.relates_to": {**thread, "m.in_reply_to": {"event_id": first.id}}}
            await fake.say(group, "bot: inside", **MENTION, **inside)
            last = await fake.until_shown("four")
            assert last.content["m.relates_to"]["event_id"] == question
            assert last.content["m.relates_to"]["rel_type"] == "m.thread"
            prompts = list_prompts(g)
            assert prompts[:2] == ["what is it?", "a pill"]
            assert prompts[2].endswith("a reply") and "one" in prompts[2]
            assert prompts[3].endswith("inside") and not fake.texts(other)


async def test_long_answers_are_split_and_a_room_that_is_gone_is_given_up(tmp_path: Path) -> None:
    long = "\n\n".join(f"{n} " + "é" * 900 for n in range(12))
    async with matrix(tmp_path, say(long), say("x"), say("back")) as (g, fake, room):
        await fake.say(room, "much")
        await fake.until(lambda: "\n\n".join(fake.texts()) == long)
        assert len(fake.texts()) == 2
        assert all(len(s.text.encode()) <= 20_000 for s in fake.sent)
        fake.fault = once("send", Fault(403, "User not in room"))
        await fake.say(room, "and now?")
        await fake.until(lambda: len(g.provider.requests) == 2)
        await fake.until(lambda: [name for name, _ in fake.calls].count("send") >= 3)
        await fake.say(room, "again")
        await fake.until_shown("back")
        assert "x" not in fake.texts()


async def test_invitations_come_from_allowed_people(tmp_path: Path) -> None:
    async with matrix(tmp_path, say("Hello.")) as (_, fake, _room):
        foreign = await fake.invite(STRANGER)
        mine = await fake.invite(OWNER)
        await fake.say(mine, "are you there?")
        await fake.until_shown("Hello.")
        assert fake.rooms[mine].joined and not fake.rooms[foreign].joined


async def test_administrators_may_invite(tmp_path: Path) -> None:
    people: dict[str, Any] = {"allowed_users": ["@other:kit"], "admins": [OWNER]}
    async with matrix(tmp_path, say("Hello."), **people) as (_, fake, _room):
        mine = await fake.invite(OWNER)
        await fake.say(mine, "are you there?")
        await fake.until_shown("Hello.")


async def test_a_stranger_is_given_a_code_where_pairing_is_on(tmp_path: Path) -> None:
    async with matrix(tmp_path, say("Welcome."), allowed_users=[]) as (g, fake, _room):
        theirs = await fake.invite(STRANGER)
        await fake.say(theirs, "hello?", user=STRANGER)
        await fake.until(lambda: fake.texts(theirs))
        code = fake.texts(theirs)[0].partition("code is ")[2][:8]
        approved = await run_hermes(["pairing", "approve", "matrix", code], g.home)
        assert approved.rc == 0
        await fake.until_shown(texts.PAIRED)
        await fake.say(theirs, "and now?", user=STRANGER)
        await fake.until_shown("Welcome.")


async def test_files_in_and_out(tmp_path: Path) -> None:
    steps = (say("Here.\nMEDIA:out.png"), say("Too large."))
    settings: dict[str, Any] = {}
    async with matrix(tmp_path, *steps, **settings) as (g, fake, room):
        g.home.file("out.png", b"\x89PNG not really")
        fake.media["in"] = b"some notes"
        file = {"msgtype": "m.file", "url": "mxc://kit/in", "info": {"mimetype": "text/plain"}}
        await fake.say(room, "notes.txt", **file)
        await fake.until_shown("out.png")
        assert "(text/plain, 10 bytes), named notes.txt]" in list_prompts(g)[0]
        (sent,) = [s for s in fake.sent if s.content["msgtype"] == "m.image"]
        assert fake.media[sent.content["url"].rpartition("/")[2]] == b"\x89PNG not really"
        await fake.say(room, "x", msgtype="m.file", url="https://evil.example/x")
        await fake.until_shown("Too large.")
        assert "[attachment x was not fetched: its address is not valid]" in list_prompts(g)[1]


async def test_a_command_is_approved_by_word(tmp_path: Path) -> None:
    command = call(("c1", "terminal", {"command": "git push origin main"}))
    async with matrix(tmp_path, command, say("Done.")) as (_, fake, room):
        await fake.say(room, "clean up")
        await fake.until(lambda: any("/approve or /deny" in t for t in fake.texts()))
        await fake.say(room, "!deny")
        await fake.until_shown("Done.")
        assert any(texts.DENIED_BY.format(name="owner") in t for t in fake.texts())


async def test_missed_messages_and_kills_are_one_turn_each(tmp_path: Path) -> None:
    steps = (say("one"), say("two"), say("three"), say("four"))
    async with matrix(tmp_path, *steps, start=False) as (g, fake, room):
        await fake.say(room, "before the first start")
        await g.start()
        await fake.until_shown("one")
        await g.kill()
        await fake.say(room, "while it was down")
        for n in range(250):
            await fake.say(room, f"chatter {n}", user=STRANGER)
        await g.start()
        await fake.until_shown("two")
        # The token is a kill's victim: what it confirmed is asked for again.
        await g.kill()
        state = g.home.path / "platforms" / "matrix" / "state.json"
        assert state.stat().st_mode & 0o777 == 0o600
        old = {**json.loads(state.read_bytes()), "since": "s1"}
        state.write_text(json.dumps(old))
        await g.start()
        await fake.say(room, "after the replay")
        await fake.until_shown("three")
        first = fake.events[0]
        fake.events.append(first)  # the same event once more
        await fake.say(room, "after the repetition")
        await fake.until_shown("four")
        assert len(g.provider.requests) == 4
        assert await g.stop() == 0


async def test_an_edit_replaces_a_message_that_still_waits(tmp_path: Path) -> None:
    gate = Gate()
    async with matrix(tmp_path, say("one").hold(gate, n=0), say("two")) as (g, fake, room):
        await fake.say(room, "first")
        await gate.reached()
        id = await fake.say(room, "secnod")
        await fake.until_shown(texts.QUEUED)
        new = {"msgtype": "m.text", "body": "second"}
        relation = {"rel_type": "m.replace", "event_id": id}
        await fake.say(room, "* second", **{"m.new_content": new, "m.relates_to": relation})
        await fake.until(lambda: fake.syncs[-1] == f"s{len(fake.events)}")
        gate.open()
        await fake.until_shown("two")
        assert list_prompts(g) == ["first", "second"]


async def test_nobody_edits_what_others_wrote(tmp_path: Path) -> None:
    """Homeservers take a replacement of any message from any member of a room."""
    gate, guest = Gate(), "@guest:kit"
    async with matrix(tmp_path, say("one").hold(gate, n=0), say("two"), start=False) as (
        g,
        fake,
        _,
    ):
        room = fake.add_room(OWNER, BOT, guest)
        g.home.configure(
            platforms={
                "matrix": {
                    "homeserver": fake.url,
                    "allowed_users": [OWNER],
                    "allowed_chats": [room],
                    "group_members": True,
                    "require_mention": False,
                }
            }
        )
        await g.start()
        thread = {"m.relates_to": {"rel_type": "m.thread", "event_id": "$root"}}
        await fake.say(room, "first", **thread)
        await gate.reached()
        own = await fake.say(room, "secnod", **thread)
        await fake.until_shown(texts.QUEUED)
        for user, text in ((guest, "delete everything"), (OWNER, "second")):
            new = {"msgtype": "m.text", "body": text}
            relation = {"rel_type": "m.replace", "event_id": own}
            await fake.say(
                room, f"* {text}", user=user, **{"m.new_content": new, "m.relates_to": relation}
            )
        await fake.until(lambda: fake.syncs[-1] == f"s{len(fake.events)}")
        gate.open()
        await fake.until_shown("two")
        assert [prompt.split("] ")[1] for prompt in list_prompts(g)] == ["first", "second"]


@pytest.mark.parametrize(
    ("fault", "shown"),
    [
        (Fault(502, "Bad Gateway"), ["answer"]),
        (Fault(raw=b"<html>", status=502), ["answer"]),
        (Fault(429, "Slow down", {"retry_after_ms": 300}), ["answer"]),
    ],
)
async def test_a_failed_send_is_repeated(tmp_path: Path, fault: Fault, shown: list[str]) -> None:
    async with matrix(tmp_path, say("answer")) as (_, fake, room):
        fake.fault = once("send", fault)
        await fake.say(room, "hi")
        await fake.until(lambda: fake.texts() == shown)


async def test_f82_a_send_without_an_answer_is_repeated_with_a_mark(tmp_path: Path) -> None:
    async with matrix(tmp_path, say("answer")) as (_, fake, room):
        # aiohttp repeats a PUT on a fresh connection, with the same transaction: no harm.
        left = [Fault(hang_up=True, after=True), Fault(hang_up=True, after=True)]
        fake.fault = lambda name, body: left.pop() if left and name == "send" else None
        await fake.say(room, "hi")
        await fake.until_shown(f"{texts.REPEATED}\nanswer")
        assert fake.texts() == ["answer", f"{texts.REPEATED}\nanswer"]


async def test_a_refused_token_turns_it_off_and_a_broken_sync_does_not(tmp_path: Path) -> None:
    async with matrix(tmp_path, say("back")) as (g, fake, room):
        fake.fault = once("sync", Fault(hang_up=True), lambda body: True)
        await fake.say(room, "wake")
        await fake.until_shown("back")
        fake.token = "another"
        await fake.say(room, "hello?")
        assert await until_fatal(g, "matrix") == "unauthorized"


async def test_nothing_unencrypted_goes_into_an_encrypted_room(tmp_path: Path) -> None:
    async with matrix(tmp_path, say("one"), say("two"), encryption=False) as (g, fake, room):
        secret = fake.add_room(OWNER, BOT, encrypted=True)
        await fake.say(secret, "hi")
        await fake.say(room, "hello")
        await fake.until(lambda: fake.texts(room))
        await run_hermes(["gateway", "status"], g.home)
        assert await g.stop() == 0
        assert not fake.texts(secret)


async def test_a_password_logs_in_and_setup_tries_the_account(tmp_path: Path) -> None:
    env = {"MATRIX_PASSWORD": PASSWORD, "MATRIX_USER_ID": BOT}
    async with matrix(tmp_path, say("Hello."), env=env) as (g, fake, room):
        await fake.say(room, "hi")
        await fake.until_shown("Hello.")
        assert await g.stop() == 0
        checked = (await run_hermes(["doctor", "--json"], g.home)).json
        (found,) = (row for row in checked if row["name"] == "messenger matrix")
        assert (found["state"], BOT in found["text"]) == ("ok", True), found
        g.home.env["MATRIX_HOMESERVER"] = fake.url
        done = await run_hermes(["gateway", "setup", "matrix"], g.home, stdin=f"{TOKEN}\n")
        assert done.rc == 0 and BOT in done.stdout, done
        assert TOKEN in (g.home.path / ".env").read_text()
        refused = await run_hermes(["gateway", "setup", "matrix"], g.home, stdin="wrong\n")
        assert refused.rc == 2 and "Nothing was saved" in refused.stderr
        (g.home.path / ".env").unlink()
