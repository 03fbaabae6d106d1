"""Whatever fails, it ends as it should, and the others go on answering: every failure of a platform
beside another platform, a full disk, a database that is damaged."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import Any

import pytest

from hermes.gateway import texts
from hermes.gateway.platforms import telegram as platform
from hermes.gateway.process import supervisor
from tests.gateway.gateways import GatewayProcess, gateway
from tests.gateway.messengers import messenger
from tests.kit import Gate, Received, Reply, run_hermes, say
from tests.kit.bodies import messages
from tests.kit.slack import slack
from tests.kit.telegram import OWNER, TOKEN, Fault, telegram

pytestmark = pytest.mark.e2e

FAILURES: dict[str, tuple[Fault, str, str]] = {
    "401": (Fault(401, "Unauthorized"), "fatal", "unauthorized"),
    "403": (Fault(403, "Forbidden"), "retrying", "unreachable"),
    "409": (Fault(409, "Conflict: terminated by other"), "retrying", "conflict"),
    "429": (Fault(429, "Too Many", {"retry_after": 0.02}), "retrying", "unreachable"),
    "500": (Fault(500), "retrying", "unreachable"),
    "502 without JSON": (Fault(502, raw=b"<html>bad gateway"), "retrying", "unreachable"),
    "200 without JSON": (Fault(200, raw=b"<html>log in first"), "retrying", "unreachable"),
    "JSON of another shape": (Fault(200, raw=b"[1]"), "retrying", "unreachable"),
    "an update without a number": (
        Fault(200, raw=b'{"ok": true, "result": [{}]}'),
        "retrying",
        "error",
    ),
    "a hang-up before": (Fault(hang_up=True), "retrying", "unreachable"),
    "a hang-up after": (Fault(hang_up=True, after=True), "retrying", "unreachable"),
    "silence": (Fault(silent=True), "retrying", "unreachable"),
}


def echo(request: Received) -> Reply:
    """Each prompt is answered by itself, so that no answer is another's."""
    return say(f"re {[m.text for m in messages(request) if m.role == 'user'][-1]}")


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "FIRST_WAIT", 0.01)
    monkeypatch.setattr(supervisor, "LONGEST_WAIT", 0.05)
    monkeypatch.setattr(platform, "_FIRST_CONFLICT_WAIT", 0.01)
    monkeypatch.setattr(platform, "_LONGEST_CONFLICT_WAIT", 0.05)


@pytest.mark.usefixtures("short_waits")
@pytest.mark.parametrize("failure", FAILURES)
async def test_a_platform_that_fails_holds_back_no_other(
    tmp_path: Path, failure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault, state, code = FAILURES[failure]
    if fault.silent:
        monkeypatch.setattr(platform, "DEAD_SECONDS", 0.2)
        monkeypatch.setattr(platform, "POLL_SECONDS", 0.1)
    async with (
        telegram() as other,
        messenger(slack(), tmp_path, then=echo, start=False) as g,
    ):
        settings = {"base_url": other.url, "allowed_users": [OWNER]}
        g.home.configure(platforms={"telegram": settings})
        g.home.env["TELEGRAM_BOT_TOKEN"] = TOKEN
        other.fault = lambda method, _: fault if method == "getUpdates" else None
        await g.run.start()
        await other.say("first")
        seen = g.run.service.status.platforms["telegram"]
        await until(lambda: seen.state == state and seen.error_code == code)
        assert TOKEN not in seen.error_message and other.url not in seen.error_message
        await g.chat.say("to slack")
        await g.chat.until_shown("re to slack")
        assert g.run.service.status.platforms["slack"].state == "connected"
        if state == "fatal":
            told = f"⚠️ telegram was turned off: {seen.error_message}."
            await g.chat.until_shown(told)  # now that a chat of the owner is known
            await g.chat.say("again")
            await g.chat.until_shown("re again")
            assert g.chat.texts().count(told) == 1
            return
        other.fault = lambda method, _: None
        await other.until_shown("re first")
        await other.say("second")
        await other.until_shown("re second")
        assert seen.state == "connected" and not seen.error_code
        assert other.texts() == ["re first", "re second"]


async def until(test: Callable[[], Any]) -> None:
    async with asyncio.timeout(90):
        while not test():
            await asyncio.sleep(0.005)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=6m,mode=700", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("cannot mount a tmpfs")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@contextmanager
def fill_disk(folder: Path) -> Iterator[FileIO]:
    """A file that takes all space; truncating it gives the space back."""
    with (folder / "ballast").open("wb", buffering=0) as ballast:
        with suppress(OSError):
            while ballast.write(bytes(4096)):
                pass
        yield ballast


async def until_polled_in_vain(g: GatewayProcess) -> None:
    """Until the gateway has found out that it can store nothing."""
    await g.telegram.say(f"unstored {'x' * 3000}")
    polls = g.telegram.polls
    await g.telegram.until(lambda: g.telegram.polls >= polls + 2)


async def test_f63_with_a_full_disk_nothing_is_confirmed_and_nothing_lost(
    small_disk: Path,
) -> None:
    async with gateway(small_disk, then=echo, gateway={"busy_ack": False}) as g:
        await g.telegram.say("before")
        await g.telegram.until_shown("re before")
        with fill_disk(small_disk) as ballast:
            sent = [f"m{number}" for number in range(4)]
            for text in sent:
                await g.telegram.say(f"{text} {'x' * 3000}")
            polls = g.telegram.polls
            await g.telegram.until(lambda: g.telegram.polls >= polls + 3)
            assert len(g.telegram.updates) == len(sent), "a message was confirmed"
            assert g.process.returncode is None and g.telegram.texts() == ["re before"]
            ballast.truncate(0)
        await g.telegram.until(lambda: len(g.telegram.texts()) == len(sent) + 1)
        assert [t.split()[1] for t in g.telegram.texts()[1:]] == sent
        assert len(g.provider.requests) == len(sent) + 1
        assert await g.stop() == 0


async def test_f63_a_turn_that_ends_while_the_disk_is_full_ends_once_it_is_not(
    small_disk: Path,
) -> None:
    gate = Gate()
    steps = [say("the answer").hold(gate, n=0)]
    config = {"busy_ack": False, "streaming": False}
    async with gateway(small_disk, steps, then=echo, gateway=config) as g:
        await g.telegram.say("first")
        await gate.reached()
        await g.telegram.say("second")
        await g.telegram.until(lambda: not g.telegram.updates)
        with fill_disk(small_disk) as ballast:
            gate.open()
            await until_polled_in_vain(g)
            ballast.truncate(0)
        await g.telegram.until(lambda: len(g.telegram.texts()) == 3)
        first, second, _ = g.telegram.texts()
        assert first.startswith("the answer\n\n⚠️ The disk is full: ")
        assert second.endswith("second")
        assert await g.stop() == 0
        await g.start()
        await g.telegram.say("third")
        await g.telegram.until_shown("re third")
        assert len(g.telegram.texts()) == 4, "nothing is left over for the next start"


async def test_f63_a_turn_that_cannot_begin_on_a_full_disk_begins_once_it_can(
    small_disk: Path,
) -> None:
    config = {"busy_ack": False, "streaming": False}
    async with gateway(small_disk, then=echo, gateway=config) as g:
        g.telegram.files["f1"] = b"content"
        g.telegram.may_download.clear()
        message = g.telegram.make_message("", caption="look", document={"file_id": "f1"})
        await g.telegram.push({"message": message})
        await g.telegram.until(lambda: any(m == "getFile" for m, _ in g.telegram.calls))
        await g.telegram.until(lambda: not g.telegram.updates)
        with fill_disk(small_disk) as ballast:
            g.telegram.may_download.set()
            await until_polled_in_vain(g)
            ballast.truncate(0)
        await g.telegram.until(lambda: len(g.telegram.texts()) == 2)
        assert g.telegram.texts()[0].startswith("re look")


def zero_header(data: bytes) -> bytes:
    return bytes(100) + data[100:]


def cut_in_half(data: bytes) -> bytes:
    return data[: len(data) // 2]


def leave_nothing(data: bytes) -> bytes:
    return b""


@pytest.mark.parametrize("change", [zero_header, cut_in_half, leave_nothing])
async def test_f67_a_damaged_database_is_set_aside(
    tmp_path: Path,
    change: Callable[[bytes], bytes],
    raw_database: Callable[[], AbstractContextManager[None]],
) -> None:
    async with gateway(tmp_path, then=echo) as g:
        await g.telegram.say("before")
        await g.telegram.until_shown("re before")
        assert await g.stop() == 0
        database = g.home.path / "hermes.db"
        with raw_database():
            damaged = change(database.read_bytes())
            database.write_bytes(damaged)
        await g.telegram.say("after")
        await g.start()
        await g.telegram.until_shown("re after")
        await g.telegram.until(lambda: any("was damaged" in t for t in g.telegram.texts()))
        (aside,) = g.home.path.glob("hermes.db.damaged-*")
        told = [t for t in g.telegram.texts() if "was damaged" in t]
        assert len(told) == 1 and told[0].endswith(f"The damaged file is {aside.name}.")
        with raw_database():
            assert aside.read_bytes() == damaged
        assert await g.stop() == 0


async def test_a_database_of_another_program_is_left_alone(
    tmp_path: Path, raw_database: Callable[[], AbstractContextManager[None]]
) -> None:
    import apsw

    async with gateway(tmp_path, start=False) as g:
        database = g.home.path / "hermes.db"
        connection = apsw.Connection(os.fspath(database))
        connection.execute("CREATE TABLE customers (name)")
        connection.close()
        with raw_database():
            before = database.read_bytes()
        ended = await run_hermes(["gateway", "run"], g.home)
        assert ended.rc == 2 and "belongs to another program" in ended.stderr
        with raw_database():
            assert database.read_bytes() == before
        assert not any(texts.DATABASE_DAMAGED[:20] in t for t in g.telegram.texts())
