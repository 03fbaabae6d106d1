"""The commands around the gateway: setup, start and stop, install, damage, and what loads it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from hermes.cli.gateway.unit import quote_word
from hermes.gateway import texts
from tests.gateway.gateways import gateway, live_gateway
from tests.kit import Home, call, run_hermes, say
from tests.kit.bodies import messages
from tests.kit.telegram import OWNER, TOKEN

pytestmark = pytest.mark.e2e

OTHER = 3003


async def test_setup_tries_the_token_and_saves_it(tmp_path: Path) -> None:
    async with gateway(tmp_path, start=False) as g:
        del g.home.env["TELEGRAM_BOT_TOKEN"]
        wrong = await run_hermes(["gateway", "setup", "telegram"], g.home, stdin="1:wrong-token")
        assert wrong.rc == 2 and "Nothing was saved" in wrong.stderr
        assert not (g.home.path / ".env").exists()
        done = await run_hermes(["gateway", "setup"], g.home, stdin=TOKEN)
        assert done.rc == 0 and "The token works: @kit_bot." in done.stdout, done.stderr
        assert TOKEN not in done.stdout + done.stderr
        env = g.home.path / ".env"
        assert TOKEN in env.read_text() and env.stat().st_mode & 0o777 == 0o600
        await g.start()
        assert await g.stop() == 0
        env.unlink()


async def test_it_starts_and_stops_in_the_background(tmp_path: Path) -> None:
    async with gateway(tmp_path, [say("hello")], start=False) as g:
        started = await run_hermes(["gateway", "start"], g.home)
        assert started.rc == 0 and "The gateway is running (pid " in started.stdout, started.stderr
        try:
            again = await run_hermes(["gateway", "start"], g.home)
            assert again.rc == 2 and "already running" in again.stderr
            await g.telegram.say("hi")
            await g.telegram.until_shown("hello")
        finally:
            stopped = await run_hermes(["gateway", "stop"], g.home)
        assert stopped.rc == 0 and "has stopped" in stopped.stdout
        assert (await run_hermes(["gateway", "status"], g.home)).rc == 3
        assert (await run_hermes(["gateway", "stop"], g.home)).rc == 2


async def test_install_writes_a_unit_and_uninstall_removes_it(tmp_path: Path) -> None:
    home = Home(tmp_path)
    tools = tmp_path / "bin"
    tools.mkdir()
    fake = tools / "systemctl"
    fake.write_text('#!/bin/sh\necho "$@" >> "$HOME/systemctl.log"\n')
    fake.chmod(0o755)
    home.env["PATH"] = f"{tools}:{home.env['PATH']}"
    assert (await run_hermes(["gateway", "install"], home)).rc == 0
    unit = tmp_path / ".config" / "systemd" / "user" / "hermes-gateway.service"
    text = unit.read_text()
    assert "Type=notify" in text and " -m hermes gateway run\n" in text
    assert f"\nEnvironment=HERMES_HOME={home.path}\n" in text
    assert (await run_hermes(["gateway", "uninstall"], home)).rc == 0
    assert not unit.exists()
    log = (tmp_path / "systemctl.log").read_text().splitlines()
    assert log == [f"--user {word} --now hermes-gateway.service" for word in ("enable", "disable")]
    assert (await run_hermes(["gateway", "uninstall"], home)).rc == 2


def test_words_of_a_unit_are_read_as_they_are() -> None:
    assert quote_word("/usr/bin/python3.11") == "/usr/bin/python3.11"
    assert quote_word("HERMES_HOME=/a b") == '"HERMES_HOME=/a b"'
    assert quote_word('50%"\\') == '"50%%\\"\\\\"'


async def test_f67_a_damaged_database_is_salvaged_and_the_owner_told(
    tmp_path: Path, raw_database: Callable[[], AbstractContextManager[None]]
) -> None:
    async with gateway(tmp_path, [say("one"), say("two")]) as g:
        await g.telegram.say("hello")
        await g.telegram.until_shown("one")
        assert await g.stop() == 0
        database = g.home.path / "hermes.db"
        with raw_database():
            data = database.read_bytes()
            database.write_bytes(data[: len(data) - 1000])
        await g.start()
        await g.telegram.until(lambda: any("was damaged" in t for t in g.telegram.texts()))
        told = next(t for t in g.telegram.texts() if "was damaged" in t)
        assert told.startswith("⚠️ The session database was damaged. Kept: 1 sessions, 2 messages;")
        await g.telegram.say("still there?")
        await g.telegram.until_shown("two")
        assert list(g.home.path.glob("hermes.db.damaged-*"))


async def test_a_database_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    import apsw

    async with gateway(tmp_path, start=False) as g:
        assert (await run_hermes(["pairing", "list"], g.home)).rc == 0
        db = apsw.Connection(str(g.home.path / "hermes.db"))
        db.execute("PRAGMA user_version = 999")
        db.close()
        ended = await run_hermes(["gateway", "run"], g.home)
        assert ended.rc == 2 and "newer" in ended.stderr


def test_chat_and_serve_load_nothing_of_the_gateway() -> None:
    code = (
        "import sys, hermes.app.runtime, hermes.cli.commands.chat, hermes.cli.commands.serve\n"
        "import hermes.server.app\n"
        "from hermes.app.commands import load_commands\n"
        "load_commands()\n"
        "print([m for m in sys.modules if m.startswith(('hermes.gateway', 'markdown_it'))])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


async def test_a_slow_platform_does_not_hold_back_the_start(tmp_path: Path) -> None:
    async with gateway(tmp_path, start=False) as g:
        g.home.configure(platforms={"telegram": {"base_url": "http://127.0.0.1:9"}})
        await g.start()
        shown = await run_hermes(["gateway", "status", "--json"], g.home)
        found = shown.json["platforms"]["telegram"]
        assert (found["state"], found["error_code"]) == ("retrying", "unreachable")
        async with asyncio.timeout(60):
            assert await g.stop() == 0


async def test_quick_commands_run_in_the_sandbox_for_administrators(tmp_path: Path) -> None:
    quick = {
        "place": {"type": "exec", "command": "echo in $(basename $PWD); echo x > ../outside"},
        "s": {"type": "alias", "target": "/version"},
    }
    platform = {"allowed_users": [OWNER, OTHER], "admins": [OWNER]}
    async with live_gateway(tmp_path, platform=platform, gateway={"quick_commands": quick}) as g:
        await g.telegram.say("/place", user=OTHER)
        await g.telegram.until_shown(texts.ADMINS_ONLY.format(name="place"))
        await g.telegram.say("/place")
        await g.telegram.until(lambda: any("in work" in t for t in g.telegram.texts(OWNER)))
        assert not (tmp_path / "outside").exists()
        await g.telegram.say("/s", user=OTHER)
        await g.telegram.until(lambda: any("hermes" in t.lower() for t in g.telegram.texts(OTHER)))
        await g.telegram.say("/help")
        await g.telegram.until(lambda: any("/place – echo" in t for t in g.telegram.texts(OWNER)))
        assert not g.provider.requests


async def test_a_quick_command_that_says_nothing_is_refused(tmp_path: Path) -> None:
    async with gateway(
        tmp_path, start=False, gateway={"quick_commands": {"x": {"type": "exec"}}}
    ) as g:
        ended = await run_hermes(["gateway", "run"], g.home)
        assert ended.rc == 2 and "gateway.quick_commands.x needs a command" in ended.stderr


async def test_undo_asks_with_buttons_and_skills_are_commands(tmp_path: Path) -> None:
    async with live_gateway(tmp_path, [say("one"), say("reviewed"), say("two")]) as g:
        await g.telegram.say("first")
        await g.telegram.until_shown("one")
        await g.telegram.say("/undo")
        await g.telegram.until(lambda: any(s.buttons for s in g.telegram.sent))
        asked = next(s for s in g.telegram.sent if s.buttons)
        await g.telegram.press(asked, "no")
        await g.telegram.until(lambda: asked.text.endswith("no"))
        await g.telegram.say("/code-review calc.py")
        await g.telegram.until_shown("reviewed")
        assert "calc.py" in messages(g.provider.requests[-1])[-1].text
        await g.telegram.say("/undo")
        await g.telegram.until(lambda: any(s.buttons for s in g.telegram.sent))
        await g.telegram.press(next(s for s in g.telegram.sent if s.buttons), "yes")
        await g.telegram.until(lambda: any("Went back" in t for t in g.telegram.texts()))
        await g.telegram.say("second")
        await g.telegram.until_shown("two")
        asked_now = [m.text for m in messages(g.provider.requests[-1]) if m.role == "user"]
        assert asked_now == ["first", "second"]


async def test_send_message_reaches_the_owners_chats_only(tmp_path: Path) -> None:
    def send(target: str) -> tuple[str, str, dict[str, str]]:
        return (f"c{target}", "send_message", {"target": target, "message": f"hello {target}"})

    group = -500
    steps = [
        call(send(f"telegram:{group}")),
        say("sent"),
        call(send("telegram:999")),
        say("refused"),
        call(send(f"telegram:{group}")),
        say("none"),
    ]
    platform = {"allowed_users": [OWNER, OTHER], "admins": [OWNER], "allowed_chats": [group]}
    async with live_gateway(tmp_path, steps, platform=platform) as g:
        await g.telegram.say("tell the group")
        await g.telegram.until(lambda: any(s.buttons for s in g.telegram.sent))
        asked = next(s for s in g.telegram.sent if s.buttons)
        assert f"hello telegram:{group}" in asked.text
        await g.telegram.press(asked, "Allow once")
        await g.telegram.until_shown("sent")
        await g.telegram.until(lambda: g.telegram.texts(group) == [f"hello telegram:{group}"])
        await g.telegram.say("tell a stranger")
        await g.telegram.until(lambda: any(s.buttons for s in g.telegram.sent))
        await g.telegram.press(next(s for s in g.telegram.sent if s.buttons), "Allow once")
        await g.telegram.until_shown("refused")
        assert not g.telegram.texts(999)
        await g.telegram.say("me too", user=OTHER)
        await g.telegram.until_shown("none")
        assert g.telegram.texts(group) == [f"hello telegram:{group}"]


async def test_f67_damage_while_it_runs_is_salvaged_and_serving_goes_on(
    tmp_path: Path, raw_database: Callable[[], AbstractContextManager[None]]
) -> None:
    async with gateway(tmp_path, [say("one"), say("two")]) as g:
        await g.telegram.say("hello")
        await g.telegram.until_shown("one")
        pid, database = g.process.pid, g.home.path / "hermes.db"
        with raw_database():
            for file in (database, database.with_name("hermes.db-wal")):
                if file.exists() and file.stat().st_size:
                    with file.open("r+b") as handle:
                        handle.write(b"\xff" * file.stat().st_size)
        await g.telegram.until(lambda: any("was damaged" in t for t in g.telegram.texts()))
        assert list(g.home.path.glob("hermes.db.damaged-*"))
        assert g.process.pid == pid and g.process.returncode is None
        await g.telegram.say("still there?")
        await g.telegram.until_shown("two")
        assert sum("was damaged" in t for t in g.telegram.texts()) == 1


async def test_doctor_tries_the_token_and_looks_at_the_gateway(tmp_path: Path) -> None:
    async with gateway(tmp_path, start=False) as g:
        before = await run_hermes(["doctor", "--json"], g.home)
        found = {check["name"]: check for check in before.json}
        assert found["messenger telegram"]["text"] == "the token works: @kit_bot"
        assert found["gateway"]["state"] == "note" and "not running" in found["gateway"]["text"]
        await g.start()
        g.telegram.token = "another"
        after = await run_hermes(["doctor", "--json"], g.home)
        found = {check["name"]: check for check in after.json}
        assert found["messenger telegram"]["state"] == "failed" and after.rc == 1
        assert "running (pid " in found["gateway"]["text"]
        assert TOKEN not in after.stdout + after.stderr


async def test_settings_of_the_original_are_taken_and_reported(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.configure(
        session_reset={"mode": "idle", "idle_minutes": 30},
        group_sessions_per_user=False,
        streaming=False,
        display={"busy_input_mode": "steer"},
    )
    checked = await run_hermes(["config", "check"], home)
    text = checked.stdout + checked.stderr
    for old, new in (
        ("session_reset", "gateway.reset"),
        ("group_sessions_per_user", "gateway.group_sessions_per_user"),
        ("streaming", "gateway.streaming"),
        ("display.busy_input_mode", "gateway.busy_input_mode"),
    ):
        assert f"{old} is an old name; write {new}" in text
    assert checked.rc == 0
