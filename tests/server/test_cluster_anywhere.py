"""Every node can show, stop and steer what another one runs, and no notice holds up what is
written."""

from __future__ import annotations

import asyncio
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import psycopg
import pytest

from hermes.app.cluster import owner_streams
from tests.kit import Gate, Home, call, run_hermes, say
from tests.kit.api import Api, api
from tests.kit.postgres import create_database, run_postgres
from tests.kit.server import Provider, Received
from tests.server.serve_process import SECRET, ServeProcess
from tests.server.test_cluster import ask, find_runner, read_frames, read_run, run_nodes, start_run

pytestmark = pytest.mark.e2e
WORDS = 300
_NOTIFIES = re.compile(r"\b(pg_notify|NOTIFY)\b", re.IGNORECASE)
_WRITES = re.compile(
    r"\b(INSERT|UPDATE|DELETE|MERGE|COPY|TRUNCATE|write_session|take_tokens|procrastinate_\w+)\b"
)


@pytest.fixture
def url(postgres_server: str) -> Iterator[str]:
    with create_database(postgres_server, tables=False) as made:
        yield made


async def read_part(
    node: ServeProcess, path: str, after: int, most: int, mark: bytes = b"run.completed"
) -> list[bytes]:
    """So many frames at most, none after the one with the mark; then the connection is cut."""
    sent = {"Authorization": f"Bearer {SECRET}", "Last-Event-ID": str(after)}
    found: list[bytes] = []
    async with aiohttp.ClientSession() as http, http.get(node.url + path, headers=sent) as answer:
        assert answer.status == 200
        while len(found) < most and (frame := await answer.content.readuntil(b"\n\n")):
            if frame.startswith(b"id: "):
                found.append(frame)
                if mark in frame:
                    break
    return found


async def test_a_stream_that_is_cut_goes_on_at_any_node_byte_for_byte(
    tmp_path: Path, url: str
) -> None:
    gates = [Gate() for _ in range(3)]

    def answer(request: Received) -> Any:
        if request.json["messages"][-1]["role"] != "tool":
            return call(("c1", "terminal", {"command": "echo one"}))
        reply = say(*[f"word {n} \N{SNOWMAN} " for n in range(WORDS)])
        for number, gate in enumerate(gates, 1):
            reply = reply.hold(gate, "text", 50 * number)
        return reply

    async with (
        Provider(then=answer) as provider,
        run_nodes(tmp_path, provider, url, "a", "b", "c") as nodes,
    ):
        path = f"/v1/runs/{await start_run(nodes[0], 'Count.')}/events"
        whole = [asyncio.create_task(node.read(path)) for node in nodes]
        frames: list[bytes] = []
        turn = 0
        async with asyncio.timeout(90):
            for gate, mark in zip(gates, (b"word 49 ", b"word 99 ", b"word 149 "), strict=True):
                await gate.reached()
                while mark not in b"".join(frames[-1:]):
                    turn += 1
                    frames += await read_part(nodes[turn % 3], path, len(frames), turn, mark)
                gate.open()
            while b"run.completed" not in frames[-1]:
                turn += 1
                frames += await read_part(nodes[turn % 3], path, len(frames), turn)
            streams = await asyncio.gather(*whole)
        events = [b"".join(f + b"\n\n" for f in s.split(b"\n\n") if b"id: " in f) for s in streams]
        assert events[0] == events[1] == events[2] == b"".join(frames)
        numbers = [frame.partition(b"\n")[0] for frame in frames]
        assert numbers == [b"id: %d" % n for n in range(1, len(frames) + 1)]
        told = "".join(d["delta"] for name, d in read_frames(events[0]) if name == "message.delta")
        assert told == "".join(f"word {n} \N{SNOWMAN} " for n in range(WORDS))
        # After the end any node has the tail, and nothing after it.
        assert await read_part(nodes[2], path, len(frames) - 2, 10) == frames[-2:]
        assert await read_part(nodes[1], path, len(frames) + 5, 10) == []


def is_running(pid: int) -> bool:
    with suppress(ProcessLookupError, FileNotFoundError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


async def test_stopping_at_another_node_ends_all_processes_of_a_tool(
    tmp_path: Path, url: str
) -> None:
    command = (
        "sh -c 'echo $$ >> pids; sleep 600' & (setsid sh -c 'echo $$ >> pids; sleep 600' &) ; "
        "echo $$ >> pids; sleep 600"
    )
    async with (
        Provider(then=lambda request: call(("c1", "terminal", {"command": command}))) as provider,
        run_nodes(tmp_path, provider, url, "a", "b", "c") as nodes,
    ):
        run = await start_run(nodes[0], "Sleep.")
        pids = tmp_path / "work" / "pids"
        async with asyncio.timeout(90):
            while not pids.exists() or len(pids.read_text().split()) < 3:
                await asyncio.sleep(0.02)
        _, *others = await find_runner(url, nodes, "abc")
        marks = find_processes(tmp_path / "work")
        assert marks
        status, stopped = await others[1].call("POST", f"/v1/runs/{run}/stop")
        assert status == 200 and stopped["status"] in ("stopping", "cancelled"), stopped
        events = await read_run(others[0], run)
        assert events[-1][0] == "run.cancelled"
        async with asyncio.timeout(90):
            while any(is_running(pid) for pid in marks):
                await asyncio.sleep(0.02)


def find_processes(folder: Path) -> list[int]:
    """Those that sleep in this folder, by the ids that the system knows them by."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if words[:2] == [b"sleep", b"600"] and (entry / "cwd").readlink() == folder:
                found.append(int(entry.name))
    return found


async def test_nothing_that_is_written_waits_for_a_notice(tmp_path: Path) -> None:
    """In the log of the server each notice is a transaction of its own; what the engine's insert
    does stands in its function."""
    gate = Gate()

    def answer(request: Received) -> Any:
        text = json.dumps(request.json["messages"])
        if "hold it" in text:
            return say("One", " two.").hold(gate, n=1)
        return say("Fine.")

    with run_postgres() as server:
        async with (
            Provider(then=answer) as provider,
            run_nodes(tmp_path, provider, server.url(), "a", "b", lease_seconds=3) as (a, b),
        ):
            log_statements(server.url())
            assert await ask(a, "Hi") == "Fine."
            for number in range(5):
                await read_run(b, await start_run(a, f"n{number}"))
            run = await start_run(a, "hold it")
            await gate.reached()
            path = f"/v1/runs/{run}"
            following = [asyncio.create_task(n.read(f"{path}/events")) for n in (a, b)]
            for node in (a, b):
                await node.call("POST", f"{path}/steer", {"text": "Faster."})
            for node in (a, b):
                await node.call("POST", f"{path}/stop")
            gate.open()
            await asyncio.gather(*following)
            home = Home(tmp_path / "a")
            home.env["HERMES_DATABASE_URL"] = server.url()
            for words in (
                ["tenants", "add", "acme"],
                ["keys", "add", "acme"],
                ["cluster", "check", "--fix"],
                ["cluster", "drain", "b"],
            ):
                assert (await run_hermes(words, home)).rc == 0
            assert await b.wait() == 0
        found = read_transactions((server.folder / "log").read_text(errors="replace"))
    notified = [texts for texts in found if any(_NOTIFIES.search(text) for text in texts)]
    assert notified and any(_WRITES.search(text) for texts in found for text in texts)
    assert [texts for texts in notified if any(_WRITES.search(text) for text in texts)] == []


def log_statements(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("ALTER SYSTEM SET log_statement = 'all'")
        db.execute("ALTER SYSTEM SET log_line_prefix = '<%p %v> '")
        db.execute("SELECT pg_reload_conf()")


def read_transactions(log: str) -> list[list[str]]:
    """The statements of each transaction."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    mark = ""
    for line in log.splitlines():
        if begins := re.match(r"<(\d+ \d+/\d+)> LOG:  (?:statement|execute [^:]*): (.*)", line):
            mark = begins[1]
            found[mark].append(begins[2])
        elif line.startswith("\t") and mark:
            found[mark][-1] += "\n" + line
        else:
            mark = ""
    return list(found.values())


@pytest.mark.parametrize("serves", [True, False], ids=["owner", "table"])
async def test_with_too_many_events_a_node_follows_the_owner(
    tmp_path: Path, postgres_server: str, monkeypatch: pytest.MonkeyPatch, serves: bool
) -> None:
    """Past so many blocks a second; an owner that cannot be reached is done without."""
    monkeypatch.setattr(owner_streams, "MAX_BLOCKS", 0)
    gate = Gate()
    reply = say("One", " two", " three.").hold(gate, "text", 2)
    with create_database(postgres_server) as url:
        env = {"HERMES_DATABASE_URL": url}
        async with (
            Provider(then=reply) as provider,
            api(tmp_path / "a", provider, env=env) as a,
            api(tmp_path / "b", provider, env=env, config={"cluster": {"roles": ["api"]}}) as b,
        ):
            run = (await b.post("/v1/runs", {"input": "Count."})).json["run_id"]
            await gate.reached()
            address = a.url if serves else "http://127.0.0.1:9"
            with psycopg.connect(url) as db:
                db.execute(
                    "UPDATE nodes SET address = %s WHERE roles LIKE '%%worker%%'", (address,)
                )
            reads = count_reads(b, monkeypatch)
            path = f"/v1/runs/{run}/events"
            following = asyncio.create_task(b.get(path))
            async with b.open_stream("GET", path) as reading:
                first = await reading.until(b" two")
                async with asyncio.timeout(90):
                    while serves and a.server.connection_count < 2:
                        await asyncio.sleep(0.02)
                before = len(reads)
                gate.open()
                streamed = first + await reading.rest()
            followed = (await following).body
            assert followed == (await a.get(path)).body == streamed
            assert read_frames(followed)[-1][0] == "run.completed"
            # What came after the gate came from the owner: the table was asked for the end alone.
            found = [page for page in reads[before:] if page]
            assert (found == []) == serves, found


def count_reads(a: Api, monkeypatch: pytest.MonkeyPatch) -> list[list[bytes]]:
    """What the node reads of events in the database from now on."""
    objects = a.server.runtime.store.objects
    read, found = objects.read_events, list[list[bytes]]()

    async def note_read(stream: str, **options: Any) -> list[bytes]:
        page = await read(stream, **options)
        found.append(page)
        return page

    monkeypatch.setattr(objects, "read_events", note_read)
    return found
