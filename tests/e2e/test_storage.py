"""The program on a database that is damaged, gone, not writable or from a wrong clock."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from hermes.core.errors import StoreError
from hermes.core.message import user_message
from hermes.store.sqlite import SqliteStore
from tests.kit import Gate, Home, Provider, Ran, call, run_hermes, say, start_hermes, status
from tests.kit.bodies import messages
from tests.kit.home import finish, program
from tests.kit.screen import ENTER, terminal
from tests.server.test_serve import serve
from tests.unit.store.stores import Raw

pytestmark = pytest.mark.e2e

ASK = {"model": "x", "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    async with Provider(then=say("Yes.")) as p:
        yield p


@pytest.fixture
def home(tmp_path: Path, provider: Provider) -> Home:
    return Home.of(tmp_path, provider, terminal={"cwd": str(tmp_path / "work")})


async def chat(home: Home, *args: str) -> Ran:
    return await run_hermes(["chat", *args], home)


async def test_after_a_crash_inside_a_tool_its_outcome_is_unknown(
    home: Home, provider: Provider
) -> None:
    provider.add(call(("c1", "terminal", {"command": "sleep 600"})))
    process = await start_hermes(["chat", "--yolo", "-q", "wait", "--output", "stream-json"], home)
    assert process.stdout is not None
    async with asyncio.timeout(90):
        while json.loads(await process.stdout.readline())["type"] != "tool.started":
            pass
    process.kill()
    await process.wait()
    assert (await chat(home, "--continue", "-q", "and?")).rc == 0
    ((id, result),) = [r for m in messages(provider.last) for r in m.results]
    assert id == "c1" and "outcome of this call is unknown" in result


async def test_a_complete_message_of_the_provider(home: Home, provider: Provider) -> None:
    words = "word " * 300 + "the end"
    provider.then = status(400, words)
    ran = await chat(home, "-q", "hi", "--output", "json")
    error = ran.json["error"]
    assert ran.rc == 1 and error["detail"] == words and len(error["message"]) <= 300
    logs = "".join(file.read_text() for file in (home.path / "logs").iterdir())
    assert words in logs


@pytest.fixture
async def damaged(home: Home, raw_database: Raw) -> Home:
    """One page of the sessions is destroyed; the file begins as it should."""
    assert (await chat(home, "-q", "swordfish")).rc == 0
    file = home.path / "hermes.db"
    with raw_database():
        data = bytearray(file.read_bytes())
        data[4096:8192] = b"\xff" * 4096
        file.write_bytes(data)
    return home


async def test_chat_salvages_a_damaged_database_and_continues(damaged: Home) -> None:
    ran = await chat(damaged, "-q", "again")
    assert ran.rc == 0 and ran.stdout.strip() == "Yes."
    assert "The session database was damaged; salvaged" in ran.stderr
    (kept,) = damaged.path.glob("hermes.db.damaged-*")
    assert str(kept) in ran.stderr
    ran = await chat(damaged, "-q", "once more")
    assert ran.rc == 0 and "damaged" not in ran.stderr, "it is told once"
    assert "swordfish" in (await run_hermes(["sessions", "search", "swordfish"], damaged)).stdout


async def test_the_terminal_salvages_a_damaged_database_and_starts(damaged: Home) -> None:
    async with terminal(damaged, size=(100, 30)) as t:
        await t.see("The session database was damaged; salvaged", "a backup may hold more")
        t.type("again" + ENTER)
        await t.see("Yes.")


async def test_a_server_salvages_a_damaged_database_and_starts(damaged: Home) -> None:
    async with serve(damaged) as s:
        assert "The session database was damaged; salvaged" in s.told
        assert (await s.call("POST", "/v1/chat/completions", ASK))[0] == 200
        assert await s.stop() == 0
    assert [*damaged.path.glob("hermes.db.damaged-*")]


async def test_a_database_removed_under_a_server(home: Home) -> None:
    """Nothing is acknowledged into nothing; with the file back, all is well."""
    file, aside = home.path / "hermes.db", home.path / "moved"
    aside.mkdir()
    async with serve(home) as s:
        assert (await s.call("POST", "/v1/chat/completions", ASK))[0] == 200
        assert (await s.call("GET", "/health/detailed"))[1]["status"] == "ok"
        for part in home.path.glob("hermes.db*"):
            part.rename(aside / part.name)
        code, told = await s.call("POST", "/v1/chat/completions", ASK)
        assert code >= 500 and "was removed or replaced" in json.dumps(told)
        health = (await s.call("GET", "/health/detailed"))[1]
        assert (health["status"], health["problem"]) == ("degraded", "gone")
        assert not file.exists(), "no second database was begun"
        for part in aside.iterdir():
            part.rename(home.path / part.name)
        assert (await s.call("POST", "/v1/chat/completions", ASK))[0] == 200
        assert (await s.call("GET", "/health/detailed"))[1]["status"] == "ok"
        assert await s.stop() == 0
    store = SqliteStore(file)
    stored = [meta.messages for meta in await store.sessions.list_recent()]
    assert stored == [2, 2], "each acknowledged turn and no other"
    await store.close()


async def test_a_database_damaged_under_a_server(home: Home, raw_database: Raw) -> None:
    """What it says to do about it works. The first server leaves nothing in the write-ahead log,
    from which the second one could still answer."""
    async with serve(home) as s:
        assert (await s.call("POST", "/v1/chat/completions", ASK))[0] == 200
        assert await s.stop() == 0
    async with serve(home) as s:
        assert (await s.call("GET", "/v1/models"))[0] == 200
        with raw_database():
            file = home.path / "hermes.db"
            file.write_bytes(bytes(len(file.read_bytes())))
        code, told = await s.call("POST", "/v1/chat/completions", ASK)
        assert code >= 500 and "`hermes doctor --fix`" in json.dumps(told)
        health = (await s.call("GET", "/health/detailed"))[1]
        assert (health["status"], health["problem"]) == ("degraded", "damaged")
        assert await s.stop() == 0
    assert (await run_hermes(["doctor", "--fix"], home)).stdout.count("salvaged")
    assert (await chat(home, "-q", "hi")).rc == 0


async def test_a_database_removed_under_the_terminal(home: Home, provider: Provider) -> None:
    aside = home.path / "moved"
    aside.mkdir()
    async with terminal(home, size=(100, 40)) as t:
        t.type("first" + ENTER)
        await t.see("Yes.", "Enter: send")
        for part in home.path.glob("hermes.db*"):
            part.rename(aside / part.name)
        t.type("second" + ENTER)
        await t.see("Type /retry to try again.", "Enter: send")
        assert "was removed or replaced" in " ".join(t.screen.split())
        for part in aside.iterdir():
            part.rename(home.path / part.name)
        provider.then = say("All is well.")
        t.type("third" + ENTER)
        await t.see("All is well.")
    assert len(provider.requests) == 2, "what could not be saved was not sent"


@pytest.mark.parametrize("files", [8, 10])
@pytest.mark.parametrize("command", ["chat -q hi", "sessions list"])
async def test_too_many_open_files_are_said(home: Home, command: str, files: int) -> None:
    assert (await chat(home, "-q", "hi")).rc == 0
    limited = ["sh", "-c", f'ulimit -n {files}; exec "$0" "$@"', *program()]
    ran = await finish(await start_hermes(command.split(), home, command=limited))
    assert ran.rc == 1 and ran.stderr.startswith("hermes: Too many files are open"), ran.stderr
    assert "ulimit" in ran.stderr and ran.stderr.count("\n") == 1


@pytest.mark.parametrize("args", ["null", "None", ""])
async def test_no_arguments_are_an_empty_object(home: Home, provider: Provider, args: str) -> None:
    provider.add(call(("c1", "read_file", args)))
    assert (await chat(home, "-q", "go")).rc == 0
    (sent,) = [m["tool_calls"] for m in provider.last.json["messages"] if "tool_calls" in m]
    assert sent[0]["function"]["arguments"] == "{}"


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Callable[..., None]]:
    mounted: dict[Path, None] = {}

    def run_mount(folder: Path, *options: str) -> None:
        done = subprocess.run(["mount", *options, folder], capture_output=True, check=False)
        if done.returncode:
            pytest.skip("needs root and mount")
        mounted[folder] = None

    yield run_mount
    for folder in reversed(mounted):
        subprocess.run(["umount", "-l", folder], check=False)


READING = (("sessions", "search", "swordfish"), ("sessions", "list"), ("status",))


async def check_reading(home: Home, *, is_indexed: bool = True) -> None:
    for command in READING if is_indexed else READING[1:]:
        ran = await run_hermes(list(command), home)
        assert ran.rc == 0, (command, ran.stderr)
        assert command == ("status",) or "swordfish" in ran.stdout, (command, ran)
    ran = await chat(home, "-q", "write")
    assert ran.rc != 0 and "Traceback" not in ran.stderr


async def kill_during_a_call(home: Home, provider: Provider) -> None:
    home.configure(budget={"daily_tokens": 10_000_000})  # the call is reserved on disk
    provider.then = say("Yes.").hold(gate := Gate())
    process = await start_hermes(["chat", "-q", "swordfish"], home)
    await gate.reached()
    process.kill()
    await process.wait()
    gate.open()


def mount_read_only(home: Home, mount: Callable[..., None]) -> None:
    mount(home.path, "--bind", str(home.path))
    mount(home.path, "-o", "remount,bind,ro")


async def test_a_read_only_mount_can_be_read(
    home: Home, provider: Provider, mount: Callable[..., None]
) -> None:
    assert (await chat(home, "-q", "swordfish")).rc == 0
    mount_read_only(home, mount)
    await check_reading(home)


@pytest.mark.parametrize("index", ["intact", "torn", "missing"])
async def test_a_read_only_mount_can_be_read_after_a_crash(
    home: Home, provider: Provider, mount: Callable[..., None], index: str
) -> None:
    """What is only in the log of a database that was not closed, whatever became of the log's
    index: a crash in the middle of a commit leaves it torn, a copy leaves it out."""
    await kill_during_a_call(home, provider)
    shared_memory = home.path / "hermes.db-shm"
    if index == "torn":
        torn = ["dd", "if=/dev/urandom", f"of={shared_memory}", "bs=48", "count=1", "conv=notrunc"]
        subprocess.run(torn, check=True, capture_output=True)
    elif index == "missing":
        shared_memory.unlink()
    mount_read_only(home, mount)
    await check_reading(home, is_indexed=False)


async def test_the_writer_refuses_a_read_only_mount_at_once(
    home: Home, provider: Provider, mount: Callable[..., None]
) -> None:
    """Not at the first write, which may be the upkeep beside somebody's reading."""
    await kill_during_a_call(home, provider)
    mount_read_only(home, mount)
    store = SqliteStore(home.path / "hermes.db")
    with pytest.raises(StoreError) as caught:
        await store.wait_until_open()
    assert caught.value.code == "readonly"
    await store.close()


async def test_a_full_disk_can_be_read(
    tmp_path: Path, provider: Provider, mount: Callable[..., None]
) -> None:
    root = tmp_path / "small"
    root.mkdir()
    mount(root, "-t", "tmpfs", "-o", "size=2m,mode=700", "tmpfs")
    home = Home.of(root, provider)
    assert (await chat(home, "-q", "swordfish")).rc == 0
    with (root / "ballast").open("wb", buffering=0) as file, pytest.raises(OSError, match="space"):
        while True:
            file.write(b"x" * 4096)
    await check_reading(home)


async def test_continue_goes_by_the_order_of_turns_not_by_the_clock(
    home: Home, provider: Provider
) -> None:
    """A session was used while the clock was decades ahead."""
    first = (await chat(home, "-q", "first", "--output", "json")).json["session_id"]
    store = SqliteStore(home.path / "hermes.db", clock=lambda: 4e9)
    await store.sessions.append(first, [user_message("in the year 2096")])
    await store.close()
    second = (await chat(home, "-q", "second", "--output", "json")).json["session_id"]
    ran = await chat(home, "--continue", "-q", "and?", "--output", "json")
    assert ran.json["session_id"] == second != first
    listed = (await run_hermes(["sessions", "list", "--json"], home)).json
    assert [row["id"] for row in listed] == [second, first]


@pytest.mark.parametrize("header", ["", "Connection: close\r\n"])
async def test_a_server_with_few_files_answers_health_checks(
    home: Home, provider: Provider, header: str
) -> None:
    """While every connection it may have is busy with a stream, and more come."""
    provider.then = say("slow", "ly").hold(gate := Gate(), after="text", n=1)
    limited = ["sh", "-c", 'ulimit -n 96; exec "$0" "$@"', *program()]
    body = json.dumps({**ASK, "stream": True}).encode()
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json"
    request = f"{head}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    check = f"GET /health HTTP/1.1\r\nHost: localhost\r\nUser-Agent: kube-probe/1\r\n{header}\r\n"
    async with serve(home, key="", command=limited) as s:
        port = int(s.url.rpartition(":")[2])
        streams = []
        for _ in range(60):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request)
            streams.append((reader, writer))
        heads = [await read_head(reader) for reader, _ in streams]
        assert b"" in heads and any(b" 200 " in head for head in heads)
        for _ in range(20):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(check.encode())
            assert b" 200 " in await read_head(reader)
            writer.close()
        gate.open()
        for _, writer in streams:
            writer.close()
        assert await s.stop() == 0


async def read_head(reader: asyncio.StreamReader) -> bytes:
    """The first bytes of an answer; none from a connection that was closed without one."""
    try:
        return await reader.read(20)
    except ConnectionError:
        return b""
