"""Nodes that are paused, cut off or replaced under load, and a database that refuses."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any

import aiohttp
import psycopg
import pytest

from tests.kit import Gate, Home, call, run_hermes, say
from tests.kit.postgres import create_database, run_postgres
from tests.kit.server import Provider, Received
from tests.server.serve_process import SECRET, ServeProcess, serve
from tests.server.test_cluster import ask, make_home, read_frames, run_nodes
from tests.server.test_cluster_load import (
    BUDGET,
    KilledNodes,
    Load,
    answer,
    check_effects,
    check_tables,
    last_prompt,
    list_running,
    wait_for_step,
    wait_until_idle,
)

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(7200)]
PAUSES = int(os.environ.get("HERMES_TEST_PAUSES", "2"))
PAUSE_SECONDS = float(os.environ.get("HERMES_TEST_PAUSE_SECONDS", "0"))
"""At the least; a node is stopped until others have gone on with its work."""
SESSIONS = int(os.environ.get("HERMES_TEST_TURNS", "6"))


@pytest.fixture
def url(postgres_server: str) -> Iterator[str]:
    with create_database(postgres_server, tables=False) as made:
        yield made


@asynccontextmanager
async def run_load(
    root: Path, provider: Provider, url: str, lease: int = 3
) -> AsyncIterator[tuple[KilledNodes, Load]]:
    """Three nodes that share a folder, and work for them until the block ends."""
    options = {"lease_seconds": lease, "workspaces": f"shared:{root / 'work'}"}
    homes = [make_home(root / name, provider, url, **options) for name in "abc"]
    for home in homes:
        home.configure(**BUDGET)
    assert (await run_hermes(["cluster", "init"], homes[0])).rc == 0
    nodes = KilledNodes(homes)
    load = Load(nodes)
    try:
        await nodes.start_all()
        async with asyncio.TaskGroup() as group:
            for _ in range(SESSIONS):
                group.create_task(load.keep_busy())
            try:
                yield nodes, load
            finally:
                load.stopping = True
        await wait_until_idle(url)
    finally:
        await nodes.close()


def find_owner(url: str, node: str) -> str:
    with psycopg.connect(url) as db:
        row = db.execute("SELECT owner FROM public.nodes WHERE name = %s", (node,)).fetchone()
    assert row is not None
    return str(row[0])


def is_heard(url: str, owner: str) -> bool:
    """Whether others do not hold the owner for dead."""
    sql = "SELECT 1 FROM public.nodes WHERE owner = %s AND NOT condemned"
    with psycopg.connect(url) as db:
        return db.execute(sql, (owner,)).fetchone() is not None


def count_writes(url: str, node: str) -> dict[str, int]:
    """By writer of the node: the number of its last transaction, which is part of it."""
    sql = "SELECT writer, number FROM public.write_groups WHERE starts_with(writer, %s)"
    with psycopg.connect(url) as db:
        return dict(db.execute(sql, (f"{node}#",)).fetchall())


def read_epochs(url: str, sessions: set[str]) -> dict[str, int]:
    sql = "SELECT id, epoch FROM public.sessions WHERE id = ANY(%s)"
    with psycopg.connect(url) as db:
        return dict(db.execute(sql, (list(sessions),)).fetchall())


def list_owned(url: str, owner: str) -> list[str]:
    with psycopg.connect(url) as db:
        rows = db.execute("SELECT id FROM public.sessions WHERE owner = %s", (owner,)).fetchall()
    return [session for (session,) in rows]


async def pause_one(
    nodes: KilledNodes, load: Load, provider: Provider, url: str, choose: random.Random
) -> float:
    """Stop a node until others have gone on with what it ran; the seconds in which it ended when it
    went on."""
    async with asyncio.timeout(90):
        while not (running := list_running(url)):
            await asyncio.sleep(0.05)
    name, _ = choose.choice(running)
    index, owner = "abc".index(name), find_owner(url, name)
    process = nodes.processes[index].process
    process.send_signal(signal.SIGSTOP)
    paused = time.monotonic()
    sessions = {session for node, session in running if node == name}
    await asyncio.sleep(PAUSE_SECONDS)
    async with asyncio.timeout(200):
        while is_heard(url, owner):
            await asyncio.sleep(0.02)
    before = count_writes(url, name)
    await wait_for_step(load, provider, url, sessions, paused)
    epochs = read_epochs(url, sessions)
    process.send_signal(signal.SIGCONT)
    woken = time.monotonic()
    assert await nodes.processes[index].wait() == 75
    took = time.monotonic() - woken
    assert before and count_writes(url, name) == before
    assert all(epoch >= epochs[session] for session, epoch in read_epochs(url, sessions).items())
    # One of its sessions has gone on; the others may do so a moment later.
    async with asyncio.timeout(90):
        while list_owned(url, owner):
            await asyncio.sleep(0.05)
    await nodes.kill(index)
    await nodes.restart(index)
    return took


async def test_a_paused_node_writes_nothing_and_ends(tmp_path: Path, url: str) -> None:
    choose = random.Random(11)
    async with Provider(then=answer) as provider:
        async with run_load(tmp_path, provider, url) as (nodes, load):
            times = [await pause_one(nodes, load, provider, url, choose) for _ in range(PAUSES)]
        check_effects(tmp_path / "work" / "effects.log")
        check_tables(url, load, len(provider.requests))
    print(f"{PAUSES} pauses; a node that went on ended in {max(times):.2f} s at the latest")


NEW_VERSION = """\
import hermes.store.postgres.schema as schema
from hermes import version

def add_column(db):
    db.execute("ALTER TABLE public.sessions ADD COLUMN later text")

schema.MIGRATIONS += (add_column,)
schema.SCHEMA_VERSION += 1
version.VERSION += "-next"
"""
"""The next version of the program: it has one more column."""


def upgrade(home: Home, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(NEW_VERSION)
    home.env["PYTHONPATH"] = str(folder)


async def test_nodes_are_replaced_one_by_one_by_those_of_the_next_version(
    tmp_path: Path, url: str
) -> None:
    async with Provider(then=answer) as provider:
        async with run_load(tmp_path, provider, url, lease=10) as (nodes, load):
            retired = []
            for index, home in enumerate(nodes.homes):
                async with asyncio.timeout(90):
                    while not any(node == "abc"[index] for node, _ in list_running(url)):
                        await asyncio.sleep(0.02)
                if not index:
                    upgrade(nodes.homes[2], tmp_path / "next")
                    made = await run_hermes(["cluster", "init"], nodes.homes[2])
                    assert made.rc == 0, made.stderr
                upgrade(home, tmp_path / "next")
                retired.append(await nodes.replace(index))
            assert retired == [0, 0, 0]
            shown = await run_hermes(["cluster", "nodes"], nodes.homes[0])
            assert shown.stdout.count("-next") == 3, shown.stdout
        assert (load.failures, load.unknown) == (0, [])
        check_effects(tmp_path / "work" / "effects.log")
        check_tables(url, load, len(provider.requests))
        gaps = list_gaps(provider)
        print(f"{len(load.runs)} runs; gaps: p50 {median(gaps):.2f} s, longest {gaps[-1]:.2f} s")


def list_gaps(provider: Provider) -> list[float]:
    """The times between two requests of a turn, less the second that its command takes."""
    last: dict[str, float] = {}
    gaps = []
    for request in provider.requests:
        prompt = last_prompt(request.json["messages"])
        if prompt in last:
            gaps.append(request.at - last[prompt] - 1.0)
        last[prompt] = request.at
    return sorted(gaps)


async def test_a_database_that_refuses_is_told_before_anything_is_accepted(tmp_path: Path) -> None:
    full = (
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION"
        " 'No space left on device' USING ERRCODE = '53100'; END $$;"
        "CREATE TRIGGER refuse BEFORE INSERT ON public.messages FOR EACH ROW"
        " EXECUTE FUNCTION refuse();"
        "CREATE TRIGGER refuse BEFORE INSERT ON public.session_inbox FOR EACH ROW"
        " EXECUTE FUNCTION refuse()"
    )
    with run_postgres() as server:
        async with (
            Provider(then=say("Fine.")) as provider,
            run_nodes(tmp_path, provider, server.url(), "a") as (a,),
        ):
            for refuse, allow in (
                (
                    "ALTER SYSTEM SET default_transaction_read_only = on",
                    "SET default_transaction_read_only = off;"
                    "ALTER SYSTEM RESET default_transaction_read_only",
                ),
                (
                    full,
                    "DROP TRIGGER refuse ON public.messages;"
                    "DROP TRIGGER refuse ON public.session_inbox",
                ),
            ):
                change_server(server.url(), refuse)
                made = len(provider.requests)
                status, told = await a.call("POST", "/v1/runs", {"input": "x"})
                assert status >= 500 and "not saved" in told["error"]["message"], told
                said = [{"role": "user", "content": "x"}]
                status, told = await a.call("POST", "/v1/chat/completions", {"messages": said})
                assert status >= 500, told
                assert len(provider.requests) == made
                change_server(server.url(), allow)
                assert await ask(a, "Hi") == "Fine."
            with psycopg.connect(server.url()) as db:
                assert db.execute("SELECT count(*) FROM public.session_inbox").fetchone() == (0,)


async def test_a_database_that_is_away_is_a_reason_to_ask_again(tmp_path: Path) -> None:
    said = {"messages": [{"role": "user", "content": "x"}]}
    requests = (
        ("POST", "/v1/runs", {"input": "x"}),
        ("POST", "/v1/chat/completions", said),
        ("POST", "/v1/chat/completions", {**said, "stream": True}),
        ("POST", "/v1/responses", {"input": "x"}),
        ("GET", "/api/sessions", None),
    )
    gate = Gate()
    replies = [say("Fine."), say("It ", "waited.").hold(gate, n=1), say("Fine.")]
    with run_postgres() as server:
        async with (
            Provider(replies) as provider,
            run_nodes(tmp_path, provider, server.url(), "a", patience_seconds=600) as (a,),
            aiohttp.ClientSession(a.url, headers={"Authorization": f"Bearer {SECRET}"}) as http,
        ):
            assert await ask(a, "Hello") == "Fine."
            waiting = asyncio.create_task(ask(a, "Wait for it"))
            await gate.reached()
            await asyncio.to_thread(server.stop)
            gate.open()
            await wait_for_readiness(a, 503)
            assert (await a.call("GET", "/health/detailed"))[1]["problem"] == "away"
            for method, path, body in requests:
                async with http.request(method, path, json=body) as answer:
                    assert (answer.status, answer.headers["Retry-After"]) == (503, "5"), path
                    error = (await answer.json())["error"]
                assert error["code"] == "unavailable" and "not saved" in error["message"]
                assert str(server.folder) not in error["message"]
            async with http.get("/metrics") as answer:
                assert answer.status == 200
            assert len(provider.requests) == 2
            await asyncio.to_thread(server.start)
            assert await waiting == "It waited."
            await wait_for_readiness(a, 200)
            assert await ask(a, "Hi") == "Fine."


async def wait_for_readiness(node: ServeProcess, status: int) -> None:
    async with asyncio.timeout(90):
        while (await node.call("GET", "/health/ready"))[0] != status:
            await asyncio.sleep(0.05)


def change_server(url: str, sql: str) -> None:
    with psycopg.connect(url, autocommit=True) as db:
        for statement in sql.split(";") if "$$" not in sql else [sql]:
            db.execute(statement.encode())
        db.execute("SELECT pg_reload_conf()")


class CutLine:
    """The way of one node to the database, which can be cut."""

    def __init__(self, folder: Path, url: str) -> None:
        self._target = f"{url.rpartition('host=')[2]}/.s.PGSQL.5432"
        folder.mkdir()
        self._path = folder / ".s.PGSQL.5432"
        self.url = url.rpartition("host=")[0] + f"host={folder}"
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        self._server = await asyncio.start_unix_server(self._carry, self._path)

    async def cut(self) -> None:
        self._server.close()
        self._path.unlink(missing_ok=True)
        for task in list(self._tasks):
            task.cancel()

    async def _carry(self, here: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        there, forth = await asyncio.open_unix_connection(self._target)
        try:
            with suppress(ConnectionError):
                await asyncio.gather(copy(here, forth), copy(there, back))
        except asyncio.CancelledError:
            pass
        finally:
            self._tasks.discard(task)
            forth.close()
            back.close()


async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(65536):
        target.write(data)
        await target.drain()
    target.close()


async def test_a_node_that_is_cut_off_is_not_ready_and_its_run_goes_on_elsewhere(
    tmp_path: Path, url: str
) -> None:
    gate = Gate()
    held = iter([True])

    def reply(request: Any) -> Any:
        return say("Too", " late.").hold(gate, n=1) if next(held, False) else say("In time.")

    line = CutLine(tmp_path / "line", url)
    await line.open()
    async with Provider(then=reply) as provider:
        home = make_home(tmp_path / "a", provider, line.url, lease_seconds=3)
        assert (await run_hermes(["cluster", "init"], home)).rc == 0
        async with serve(home) as a:
            _, started = await a.call("POST", "/v1/runs", {"input": "Say it."})
            await gate.reached()
            await line.cut()
            async with asyncio.timeout(90):
                while await a.call("GET", "/health/ready") != (503, {"status": "cut_off"}):
                    await asyncio.sleep(0.05)
            assert (await a.call("GET", "/health"))[0] == 200
            async with serve(make_home(tmp_path / "b", provider, url, lease_seconds=3)) as b:
                async with asyncio.timeout(90):
                    frames = await b.read(f"/v1/runs/{started['run_id']}/events")
                gate.open()
                assert read_frames(frames)[-1][1]["output"] == "In time."
                await line.open()
                assert await a.wait() == 75
                await line.cut()


@pytest.mark.heavy
async def test_a_node_that_is_cut_off_stops_what_it_runs(tmp_path: Path, url: str) -> None:
    """The commands hold the pipes open as long as they live."""
    pipes = [tmp_path / "work" / name for name in ("run", "chat")]

    def reply(request: Received) -> Any:
        messages = request.json["messages"]
        if messages[-1]["role"] == "tool":
            return say("It has ended.")
        command = f"exec 3> {messages[-1]['content']}; sleep 900"
        return call(("c1", "terminal", {"command": command}))

    line = CutLine(tmp_path / "line", url)
    await line.open()
    async with Provider(then=reply) as provider:
        options = {"lease_seconds": 3, "patience_seconds": 4}
        home = make_home(tmp_path / "a", provider, line.url, **options)
        for pipe in pipes:
            os.mkfifo(pipe)
        assert (await run_hermes(["cluster", "init"], home)).rc == 0
        async with serve(home) as a:
            status, started = await a.call("POST", "/v1/runs", {"input": "run"})
            assert status == 202
            said = {"messages": [{"role": "user", "content": "chat"}]}
            chat = asyncio.create_task(a.call("POST", "/v1/chat/completions", said))
            with ExitStack() as files:
                opened = [
                    files.enter_context(await asyncio.to_thread(pipe.open, "rb")) for pipe in pipes
                ]
                await line.cut()
                async with asyncio.timeout(90):
                    for pipe in opened:
                        assert await asyncio.to_thread(pipe.read) == b""
            assert (await chat)[0] >= 400
            await line.open()  # nobody has taken the run over: it goes on here
            await wait_for_readiness(a, 200)
            async with asyncio.timeout(90):
                frames = await a.read(f"/v1/runs/{started['run_id']}/events")
            assert read_frames(frames)[-1][1]["output"] == "It has ended."
            await line.cut()


async def wait_for_writer(url: str, waits: str, other_than: int = 0) -> int:
    """The process of the server that works for the writer of a node and waits for something."""
    sql = (
        "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'hermes-writer%%'"
        " AND wait_event_type || wait_event ~ %s AND pid <> %s"
    )
    async with asyncio.timeout(90):
        while True:
            with psycopg.connect(url) as db:
                row = db.execute(sql, (waits, other_than)).fetchone()
            if row is not None:
                return int(row[0])
            await asyncio.sleep(0.05)


@pytest.mark.heavy
async def test_what_the_server_still_commits_for_a_lost_connection_is_there_once(
    tmp_path: Path,
) -> None:
    """It waits for a replica that does not answer, as at a failover."""
    with run_postgres() as server:
        url = server.url()
        line = CutLine(tmp_path / "line", url)
        await line.open()
        gate = Gate()
        replies = [say("First."), say("Sec", "ond.").hold(gate, n=1)]
        async with Provider(replies) as provider:
            home = make_home(tmp_path / "a", provider, line.url, lease_seconds=60)
            assert (await run_hermes(["cluster", "init"], home)).rc == 0
            async with serve(home) as a:
                in_session = {"X-Hermes-Session-Id": "talk"}

                async def tell(text: str) -> Any:
                    said = {"messages": [{"role": "user", "content": text}]}
                    return await a.call("POST", "/v1/chat/completions", said, **in_session)

                assert (await tell("one"))[0] == 200
                telling = asyncio.create_task(tell("two"))
                await gate.reached()
                change_server(url, "ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
                gate.open()
                first = await wait_for_writer(url, "SyncRep")
                await line.cut()
                await line.open()
                await wait_for_writer(url, "SyncRep|^Lock", first)
                change_server(url, "ALTER SYSTEM RESET synchronous_standby_names")
                assert (await telling)[0] == 200
                _, stored = await a.call("GET", "/api/sessions/talk/messages")
                said = [message["content"][0]["text"] for message in stored["data"]]
                assert said == ["one", "First.", "two", "Second."]
            await line.cut()
