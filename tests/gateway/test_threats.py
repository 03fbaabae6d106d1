"""What strangers, files and other programs try in a messenger (G10-G23), and crowded queues."""

from __future__ import annotations

import asyncio
import io
import json
import struct
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hermes.gateway import texts
from hermes.gateway.adapter import Inbound
from hermes.gateway.people import loop_breaker
from hermes.gateway.platforms.telegram import BotApi
from tests.gateway.gateways import LiveGateway, live_gateway
from tests.gateway.platform_gateways import free_port, live_platform
from tests.gateway.test_turns import GROUP, STRANGER, prompts
from tests.gateway.test_webhook import configure, post
from tests.kit import Gate, Home, call, run_hermes, say
from tests.kit.irc import irc
from tests.kit.telegram import BOT, OWNER, Fault

pytestmark = pytest.mark.e2e


async def test_g10_a_challenge_without_a_signature_is_refused(tmp_path: Path) -> None:
    port = free_port()
    async with live_gateway(tmp_path, start=False) as g:
        configure(g, port, open={"deliver": "log"})
        await g.start()
        challenge = json.dumps({"type": "url_verification", "challenge": "c"}).encode()
        status, answer = await post(port, "open", challenge, {})
        assert status == 401 and "challenge" not in answer


async def test_g11_no_option_takes_the_signature_away(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.env["WEBHOOK_SECRET"] = "s" * 32
    home.configure(platforms={"webhook": {"routes": {"open": {"skip_verification": True}}}})
    ended = await run_hermes(["gateway", "run"], home)
    assert ended.rc == 2 and "skip_verification" in ended.stderr


async def test_g13_long_texts_arrive_whole_in_both_directions(tmp_path: Path) -> None:
    words = " ".join(f"word{i}" for i in range(4000))
    async with live_gateway(tmp_path, [say(words)]) as g:
        await g.telegram.say(words[::-1])
        await g.telegram.until(lambda: " ".join(g.telegram.texts()) == words)
        assert len(g.telegram.texts()) > 8 and prompts(g) == [words[::-1]]


def push_file(g: LiveGateway, name: str, **file: Any) -> Any:
    document = {"file_id": "f1", "file_name": name, **file}
    return g.telegram.push({"message": {**g.telegram.make_message("look"), "document": document}})


def answer_file(path: str) -> Any:
    """`getFile` names this path, and no size."""
    body = json.dumps({"ok": True, "result": {"file_path": path}}).encode()
    return lambda method, _: Fault(200, raw=body) if method == "getFile" else None


async def test_g14_a_file_that_is_longer_than_it_says_is_cut_off_and_deleted(
    tmp_path: Path,
) -> None:
    async def send_zeros() -> AsyncIterator[bytes]:
        for _ in range(500):
            yield bytes(1000)

    async with live_gateway(tmp_path, [say("ok")], gateway={"max_media_bytes": 50_000}) as g:
        g.telegram.fault = answer_file("f1")
        g.telegram.files["f1"] = send_zeros()  # type: ignore[assignment]
        await push_file(g, "endless", file_size=10)
        await g.telegram.until_shown("ok")
        note = "[attachment endless was not fetched: it is larger than 50,000 bytes]"
        assert note in prompts(g)[0]
        assert not list((g.home.path / "cache" / "media").iterdir())


async def test_g16_archives_and_huge_pictures_stay_as_they_are(tmp_path: Path) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("../../bomb", bytes(50_000_000))
    picture = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sIIB", 13, b"IHDR", 100_000, 100_000, 8)
    async with live_gateway(tmp_path, [say("one"), say("two")]) as g:
        for name, content, answer in (
            ("bomb.zip", packed.getvalue(), "one"),
            ("huge.png", picture, "two"),
        ):
            g.telegram.files["f1"] = content
            await push_file(g, name)
            await g.telegram.until_shown(answer)
        stored = [file.read_bytes() for file in (g.home.path / "cache" / "media").iterdir()]
        assert sorted(stored) == sorted([packed.getvalue(), picture])


async def test_g17_files_come_from_the_messenger_only(tmp_path: Path) -> None:
    seen: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.read(1000))
        writer.close()

    trap = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = trap.sockets[0].getsockname()[1]
    async with trap, live_gateway(tmp_path, [say("ok")]) as g:
        g.telegram.fault = answer_file(f"http://127.0.0.1:{port}/secret")
        await push_file(g, "x")
        await g.telegram.until_shown("ok")
        assert "[attachment x was not fetched" in prompts(g)[0] and not seen


async def test_half_a_character_holds_nothing_up(tmp_path: Path) -> None:
    """Programs cut emoji in two; what is left of one is no text that could be stored."""
    async with live_gateway(tmp_path, [say("one"), say("two"), say("three")]) as g:
        await g.telegram.say("cut \ud83d here")
        await g.telegram.until_shown("one")
        owner = str(OWNER)
        name, id = "A\udcff", "m\udcff"
        half = Inbound(owner, "dm", owner, id, "also \ude00", user_name=name, quote="\ud83d")
        assert await g.service.router.receive_message("telegram", half)
        assert not await g.service.router.receive_message("telegram", half)
        await g.telegram.until_shown("two")
        await g.telegram.say("whole 😀")
        await g.telegram.until_shown("three")
        assert prompts(g) == ["cut ? here", "> ?\nalso ?", "whole 😀"]


async def test_updates_that_make_no_sense_hold_nothing_up(tmp_path: Path) -> None:
    async with live_gateway(tmp_path, [say("one"), say("two")]) as g:
        for odd in ({"chat": 5}, {**g.telegram.make_message("x"), "entities": "none"}, ["x"]):
            await g.telegram.push({"message": odd})
        document = {"file_id": "f1", "file_name": "n", "file_size": "large"}
        g.telegram.files["f1"] = b"content"
        message = {**g.telegram.make_message("when?"), "date": "soon", "document": document}
        await g.telegram.push({"message": message})
        await g.telegram.until_shown("one")
        await g.telegram.say("after it")
        await g.telegram.until_shown("two")
        assert prompts(g)[0].startswith("when?") and "(unknown type, 7 bytes)" in prompts(g)[0]
        assert g.service.status.platforms["telegram"].state == "connected"


async def test_keys_in_the_sessions_folder_are_not_sent(tmp_path: Path) -> None:
    async with live_gateway(tmp_path, [say("Here.\nMEDIA:.ssh/id_rsa\nMEDIA:a.txt")]) as g:
        (g.home.work / ".ssh").mkdir()
        g.home.file(".ssh/id_rsa", "the key")
        g.home.file("a.txt", "result")
        await g.telegram.say("send me the key")
        await g.telegram.until(lambda: any(sent.file for sent in g.telegram.sent))
        assert [sent.file for sent in g.telegram.sent if sent.file] == [b"result"]
        assert "(not sent: .ssh/id_rsa: the agent may not read it)" in g.telegram.texts()[0]


async def test_g21_bots_and_the_account_itself_are_ignored(tmp_path: Path) -> None:
    platform = {"allow_all_users": True, "allowed_chats": [GROUP], "require_mention": False}
    async with live_gateway(tmp_path, [say("hello")], platform=platform) as g:
        for sender in (BOT, {"id": 77, "is_bot": True, "first_name": "Other"}):
            for chat in (None, GROUP):
                await g.telegram.say("beep", chat=chat, **{"from": sender})
        await g.telegram.say("hi")
        await g.telegram.until_shown("hello")
        assert prompts(g) == ["hi"] and g.telegram.texts() == ["hello"]


async def test_g21_a_program_that_repeats_itself_is_not_answered_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_breaker, "REACTION_SECONDS", 3600.0)
    monkeypatch.setattr(loop_breaker, "LOOP_SECONDS", 3600.0)
    async with irc() as server:
        settings = {"port": server.port, "tls": False, "allowed_users": ["alice"]}
        env = {"IRC_SERVER": "127.0.0.1"}
        async with live_platform(
            tmp_path, name="irc", settings=settings, env=env, then=say("pong")
        ) as g:
            for count in range(1, loop_breaker.MAX_REPEATS + 1):
                await server.say("alice", "ping")
                await server.until_said("pong", count=count)
            await server.say("alice", "ping")
            await server.until(lambda: any("two programs" in t for t in server.texts()))
            await server.say("alice", "ping")
            await server.say("alice", "something else")
            await server.until_said("pong", count=loop_breaker.MAX_REPEATS + 1)
            assert prompts(g)[-1] == "something else"
            assert len(g.provider.requests) == loop_breaker.MAX_REPEATS + 1


async def test_g23_a_bridge_elsewhere_needs_tls(tmp_path: Path) -> None:
    env = {"SIGNAL_HTTP_URL": "http://192.0.2.1:8080", "SIGNAL_ACCOUNT": "+4915112345678"}
    async with live_platform(tmp_path, name="signal", settings={}, env=env) as g:
        found = g.service.status.platforms["signal"]
        assert (found.state, found.error_code) == ("fatal", "unconfigured")


async def test_a_reply_to_a_file_of_the_bot_addresses_it(tmp_path: Path) -> None:
    platform = {"allowed_chats": [GROUP]}
    async with live_gateway(tmp_path, [say("about the file")], platform=platform) as g:
        opened = {"message_id": 1, "from": BOT, "forum_topic_created": {"name": "t"}}
        await g.telegram.say("to nobody", chat=GROUP, reply_to_message=opened)
        file = {"message_id": 2, "from": BOT, "document": {"file_id": "f"}, "caption": "report"}
        await g.telegram.say("what is this?", chat=GROUP, reply_to_message=file)
        await g.telegram.until_shown("about the file")
        assert prompts(g) == ["> report\nwhat is this?"]


async def test_a_full_queue_loses_nothing_behind_a_command(tmp_path: Path) -> None:
    gate = Gate()
    steps = [say("one").hold(gate, n=0), say("two"), say("three")]
    async with live_gateway(tmp_path, steps, gateway={"max_queued": 1}) as g:
        await g.telegram.say("first")
        await gate.reached()
        await g.telegram.say("/queue second")
        await g.telegram.until(lambda: len(g.telegram.texts()) >= 1)
        await g.telegram.say("third")
        await g.telegram.until(lambda: not g.telegram.updates)
        gate.open()
        await g.telegram.until_shown("three")
        assert prompts(g) == ["first", "second", "third"]


async def test_other_commands_wait_for_the_turn_to_end(tmp_path: Path) -> None:
    gate = Gate()
    quick = {"place": {"type": "exec", "command": "echo here"}}
    settings = {"quick_commands": quick}
    async with live_gateway(tmp_path, [say("done").hold(gate, n=0)], gateway=settings) as g:
        await g.telegram.say("work")
        await gate.reached()
        await g.telegram.say("/place")
        await g.telegram.until_shown(texts.TURN_RUNNING)
        gate.open()
        await g.telegram.until_shown("done")


async def test_only_a_request_that_waits_is_somebodys(tmp_path: Path) -> None:
    """Also who has asked nothing is told that nothing waits, or whose request it is."""
    people = {"allowed_users": [OWNER, STRANGER], "admins": [OWNER]}
    platform = {**people, "allowed_chats": [GROUP], "require_mention": False}
    steps = [call(("c1", "terminal", {"command": "git push"})), say("fine")]
    settings = {"group_sessions_per_user": False}
    async with live_gateway(tmp_path, steps, platform=platform, gateway=settings) as g:
        await g.telegram.say("/approve", chat=GROUP, user=STRANGER)
        await g.telegram.until_shown("No request is waiting for approval.")
        await g.telegram.say("push", chat=GROUP, user=OWNER)
        await g.telegram.until(lambda: any("Approval needed" in t for t in g.telegram.texts()))
        await g.telegram.say("/approve", chat=GROUP, user=STRANGER)
        await g.telegram.until_shown(texts.NOT_YOURS.format(name=f"P{OWNER}"))
        await g.telegram.say("/deny", chat=GROUP, user=OWNER)
        await g.telegram.until_shown("fine")


async def test_g12_nobody_waits_for_the_answer_to_a_stranger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(vars(BotApi)["call"].__kwdefaults__, "seconds", 3600)
    stranger = 6006

    def hang(method: str, params: dict[str, Any]) -> Fault | None:
        is_theirs = method == "sendMessage" and params["chat_id"] == str(stranger)
        return Fault(silent=True) if is_theirs else None

    platform = {"pairing": True}
    async with live_gateway(tmp_path, then=say("answer"), platform=platform) as g:
        g.telegram.fault = hang
        await g.telegram.say("let me in", user=stranger)
        await g.telegram.say("hi")
        await g.telegram.until_shown("answer")
