"""Several nodes on one PostgreSQL, in short: all know what one does, and another goes on with what
one was doing when it died, was stopped or ended."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.kit import Gate, Home, call, run_hermes, say
from tests.kit.postgres import create_database
from tests.kit.server import Provider, Received
from tests.server.serve_process import ServeProcess, serve

pytestmark = pytest.mark.e2e
LEASE = 6
"""Longer than a busy machine lets a process wait."""


@pytest.fixture
def url(postgres_server: str) -> Any:
    with create_database(postgres_server, tables=False) as made:
        yield made


def make_home(root: Path, provider: Provider, url: str, **cluster: Any) -> Home:
    """All nodes work in one folder, as on a shared disk."""
    root.mkdir()
    work = root.parent / "work"
    work.mkdir(exist_ok=True)
    home = Home.of(root, provider)
    home.env["HERMES_DATABASE_URL"] = url
    home.configure(terminal={"cwd": str(work)}, cluster={"node": root.name, **cluster})
    return home


@asynccontextmanager
async def run_nodes(
    root: Path, provider: Provider, url: str, *names: str, **cluster: Any
) -> AsyncIterator[list[ServeProcess]]:
    homes = [make_home(root / name, provider, url, **cluster) for name in names]
    made = await run_hermes(["cluster", "init"], homes[0])
    assert made.rc == 0 and "The database is ready (schema " in made.stdout, made.stderr
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(serve(home)) for home in homes]


async def find_runner(url: str, nodes: list[ServeProcess], names: str) -> list[ServeProcess]:
    """The nodes, the one that runs the only running session first."""
    sql = "SELECT split_part(owner, '#', 1) FROM sessions WHERE state = 'running'"
    async with asyncio.timeout(90):
        while True:
            with psycopg.connect(url) as db:
                row = db.execute(sql).fetchone()
            if row is not None:
                found = names.index(row[0])
                return [nodes[found], *nodes[:found], *nodes[found + 1 :]]
            await asyncio.sleep(0.05)


async def ask(node: ServeProcess, text: str, **body: Any) -> str:
    said = [{"role": "user", "content": text}]
    status, answer = await node.call("POST", "/v1/chat/completions", {"messages": said, **body})
    assert status == 200, answer
    return str(answer["choices"][0]["message"]["content"])


def read_frames(stream: bytes) -> list[tuple[str, Any]]:
    """The name and the data of every event."""
    found = []
    for frame in stream.decode().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in frame.splitlines() if ": " in line)
        if "data" in lines:
            found.append((lines.get("event", ""), json.loads(lines["data"])))
    return found


async def start_run(node: ServeProcess, text: str, session: str = "") -> str:
    body = {"input": text, **({"session_id": session} if session else {})}
    status, started = await node.call("POST", "/v1/runs", body)
    assert status == 202, started
    return str(started["run_id"])


async def read_run(node: ServeProcess, run: str) -> list[tuple[str, Any]]:
    async with asyncio.timeout(90):
        return read_frames(await node.read(f"/v1/runs/{run}/events"))


async def test_nodes_share_what_they_store(tmp_path: Path, url: str) -> None:
    async with (
        Provider(then=lambda request: say("Hello.")) as provider,
        run_nodes(tmp_path, provider, url, "a", "b") as (a, b),
    ):
        assert await ask(a, "Hi") == "Hello."
        _, seen = await b.call("GET", "/api/sessions")
        assert len(seen["data"]) == 1, seen
        assert await a.call("GET", "/health/ready") == (200, {"status": "ready"})
        status, started = await a.call("POST", "/v1/runs", {"input": "Do it."})
        assert status == 202
        path = f"/v1/runs/{started['run_id']}"
        followed = await asyncio.gather(*(node.read(f"{path}/events") for node in (a, b)))
        assert followed[0] == followed[1]
        assert read_frames(followed[0])[-1][0] == "run.completed"
        assert (await b.call("GET", path))[1]["output"] == "Hello."
        home = Home(tmp_path / "a")
        home.env["HERMES_DATABASE_URL"] = url
        listed = await run_hermes(["cluster", "nodes", "--json"], home)
        nodes = json.loads(listed.stdout)["nodes"]
        assert [(n["name"], n["alive"], n["turns"]) for n in nodes] == [
            ("a", True, 0),
            ("b", True, 0),
        ]
        drained = await run_hermes(["cluster", "drain", "b"], home)
        assert drained.rc == 0, drained.stderr
        assert await b.wait() == 0
        shown = await run_hermes(["cluster", "status"], home)
        assert "a  alive" in shown.stdout and "b  " not in shown.stdout
        assert "0 running, 0 stalled" in shown.stdout
        assert "queue: 0 waiting" in shown.stdout


async def test_nodes_that_are_configured_differently_are_told(tmp_path: Path, url: str) -> None:
    async with Provider(then=lambda request: say("Hello.")) as provider:
        homes = [
            make_home(tmp_path / name, provider, url, address=f"http://{name}:1", roles=[role])
            for name, role in (("a", "api"), ("b", "worker"), ("c", "worker"))
        ]
        assert (await run_hermes(["cluster", "init"], homes[0])).rc == 0
        async with serve(homes[0]), serve(homes[1]):
            shown = await run_hermes(["cluster", "status"], homes[0])
            assert "http://b:1" in shown.stdout and shown.stderr == ""
            homes[2].configure(agent={"max_turns": 7})
            async with serve(homes[2]):
                shown = await run_hermes(["cluster", "status"], homes[0])
                assert "The nodes have different configurations." in shown.stderr


async def test_a_node_that_does_not_fit_says_why(tmp_path: Path, url: str) -> None:
    async with Provider(then=lambda request: say("Hello.")) as provider:
        home = make_home(tmp_path / "a", provider, url)
        refused = await run_hermes(["serve", "--port", "0"], home)
        assert refused.rc != 0 and "hermes cluster init" in refused.stderr
        nobody = await run_hermes(["cluster", "drain", "x"], home)
        assert nobody.rc != 0
        del home.env["HERMES_DATABASE_URL"]
        alone = await run_hermes(["cluster", "status"], home)
        assert alone.rc == 2 and "Set HERMES_DATABASE_URL" in alone.stderr


async def wait_for_lines(file: Path, count: int) -> None:
    async with asyncio.timeout(90):
        while not file.exists() or len(file.read_text().split()) < count:
            await asyncio.sleep(0.02)


async def test_the_run_of_a_killed_node_goes_on_elsewhere(tmp_path: Path, url: str) -> None:
    effects, go = tmp_path / "work" / "effects.log", tmp_path / "work" / "go"
    command = "echo done >> effects.log; while [ ! -e go ]; do sleep 0.1; done"

    def answer(request: Received) -> Any:
        if request.json["messages"][-1]["role"] == "tool":
            return say("Carried on.")
        return call(("c1", "terminal", {"command": command}))

    async with (
        Provider(then=answer) as provider,
        run_nodes(tmp_path, provider, url, "a", "b", lease_seconds=LEASE) as (a, b),
    ):
        _, started = await a.call("POST", "/v1/runs", {"input": "Do it once."})
        path = f"/v1/runs/{started['run_id']}"
        await wait_for_lines(effects, 1)
        runner, other = await find_runner(url, [a, b], "ab")
        runner.process.kill()
        await runner.wait()
        async with asyncio.timeout(90):
            frames = await other.read(f"{path}/events")
        go.touch()
        events = read_frames(frames)
        (resumed,) = [data for name, data in events if name == "run.resumed"]
        assert (resumed["attempt"], len(resumed["unknown"])) == (1, 1)
        name, end = events[-1]
        assert name == "run.completed" and end["output"] == "Carried on."
        numbers = [line for line in frames.decode().splitlines() if line.startswith("id: ")]
        assert numbers == [f"id: {n}" for n in range(1, len(numbers) + 1)]
        assert effects.read_text().split() == ["done"]
        told = json.dumps(provider.requests[-1].json["messages"])
        assert "The node that ran this died while it ran" in told
        assert "goes on at another node" in told
        _, state = await other.call("GET", path)
        assert state["status"] == "completed"
        async with asyncio.timeout(90):
            while True:
                with psycopg.connect(url) as db:
                    marks = db.execute("SELECT call, state FROM calls").fetchall()
                if marks == [(resumed["unknown"][0], "unknown")]:
                    break
                await asyncio.sleep(0.05)


async def test_a_node_that_was_stopped_for_too_long_writes_nothing(
    tmp_path: Path, url: str
) -> None:
    gate = Gate()
    asked = asyncio.Event()

    def answer(request: Received) -> Any:
        if not asked.is_set():
            asked.set()
            return say("Too", " late.").hold(gate, n=1)
        return say("In time.")

    async with (
        Provider(then=answer) as provider,
        run_nodes(tmp_path, provider, url, "a", "b", lease_seconds=LEASE) as (a, b),
    ):
        _, started = await a.call("POST", "/v1/runs", {"input": "Say it."})
        path = f"/v1/runs/{started['run_id']}"
        await gate.reached()
        runner, other = await find_runner(url, [a, b], "ab")
        runner.process.send_signal(signal.SIGSTOP)
        async with asyncio.timeout(90):
            frames = await other.read(f"{path}/events")
        gate.open()
        runner.process.send_signal(signal.SIGCONT)
        assert await runner.wait() == 75
        assert read_frames(frames)[-1][1]["output"] == "In time."
        assert await other.read(f"{path}/events") == frames
        _, state = await other.call("GET", path)
        assert state["output"] == "In time."


async def test_any_node_steers_approves_and_stops(tmp_path: Path, url: str) -> None:
    gate = Gate()

    def answer(request: Received) -> Any:
        text = json.dumps(request.json["messages"])
        if "write it" in text and request.json["messages"][-1]["role"] == "user":
            return call(("c1", "write_file", {"path": "../out.txt", "content": "x"}))
        if "write it" in text:
            return say("Written.")
        return say("One", " two.").hold(gate, n=1)

    async with (
        Provider(then=answer) as provider,
        run_nodes(tmp_path, provider, url, "a", "b") as (a, b),
    ):
        _, started = await a.call("POST", "/v1/runs", {"input": "write it"})
        path = f"/v1/runs/{started['run_id']}"
        async with asyncio.timeout(90):
            while (await b.call("GET", path))[1]["status"] != "waiting_for_approval":
                await asyncio.sleep(0.05)
        status, approved = await b.call("POST", f"{path}/approval", {"choice": "once"})
        assert (status, approved["choice"]) == (200, "once"), approved
        assert read_frames(await b.read(f"{path}/events"))[-1][0] == "run.completed"
        status, refused = await b.call("POST", f"{path}/steer", {"text": "Hurry."})
        assert status == 409, refused

        _, started = await a.call("POST", "/v1/runs", {"input": "count"})
        path = f"/v1/runs/{started['run_id']}"
        await gate.reached()
        status, steered = await b.call("POST", f"{path}/steer", {"text": "Faster."})
        assert (status, steered["status"]) == (200, "running"), steered
        status, refused = await b.call("POST", f"{path}/approval", {"choice": "once"})
        assert (status, refused["error"]["code"]) == (409, "nothing_to_approve"), refused
        status, stopped = await b.call("POST", f"{path}/stop")
        assert status == 200 and stopped["status"] in ("stopping", "cancelled"), stopped
        assert read_frames(await b.read(f"{path}/events"))[-1][0] == "run.cancelled"
        gate.open()


async def test_a_node_that_ends_hands_its_runs_over(tmp_path: Path, url: str) -> None:
    go = tmp_path / "work" / "go"

    def answer(request: Received) -> Any:
        step = sum(m["role"] == "tool" for m in request.json["messages"])
        if step == 2:
            return say("Done.")
        command = f"echo step{step} >> effects.log; while [ ! -e go ]; do sleep 0.05; done"
        return call((f"c{step}", "terminal", {"command": command}))

    async with (
        Provider(then=answer) as provider,
        run_nodes(tmp_path, provider, url, "a", "b") as nodes,
    ):
        run = await start_run(nodes[0], "Do it.")
        effects = tmp_path / "work" / "effects.log"
        async with asyncio.timeout(90):
            while not effects.exists():
                await asyncio.sleep(0.02)
        with psycopg.connect(url) as db:
            sql = "SELECT split_part(owner, '#', 1) FROM sessions WHERE state = 'running'"
            (name,) = db.execute(sql).fetchone() or ("",)
        runner, other = nodes if name == "a" else nodes[::-1]
        runner.process.send_signal(signal.SIGTERM)
        await runner.wait_until_closed()
        go.touch()
        assert await runner.wait() == 0
        events = await read_run(other, run)
        assert events[-1][0] == "run.completed" and events[-1][1]["output"] == "Done."
        assert [name for name, _ in events if name == "run.resumed"] == []
        assert effects.read_text().split() == ["step0", "step1"]
        told = json.dumps(provider.last.json["messages"])
        assert "died while it ran" not in told
        with psycopg.connect(url) as db:
            homes = db.execute("SELECT node FROM session_homes").fetchall()
        assert homes == [("b" if name == "a" else "a",)]
