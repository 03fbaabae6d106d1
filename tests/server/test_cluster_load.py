"""kill -9 of nodes under load: every message is answered once and in order, and every run ends."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from statistics import median
from typing import Any

import aiohttp
import psycopg
import pytest

from tests.kit import Home, Tokens, call, run_hermes, say
from tests.kit.postgres import create_database
from tests.kit.server import Provider, Received
from tests.server.serve_process import ServeProcess, serve
from tests.server.test_cluster import make_home, read_frames

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(7200)]
KILLS = int(os.environ.get("HERMES_KILLS", "15"))
SESSIONS = int(os.environ.get("HERMES_TEST_TURNS", "6"))
"""With a turn in flight each."""
LEASE = int(os.environ.get("HERMES_TEST_LEASE", "3"))
STEPS = 2
BUDGET = {
    "providers": {"custom": {"models": {"kit-model": {"price": {"input": 1, "output": 1}}}}},
    "budget": {"daily_usd": 1e6},
}
"""Under a cap a call is in the ledger before it is made."""
SUSPENDED = "taken over 3 times"


def find_prompt(messages: list[Any]) -> int:
    """Where the last prompt is; what Hermes itself says in the role of the user is none."""
    places = range(len(messages) - 1, -1, -1)
    return next(
        n
        for n in places
        if messages[n]["role"] == "user" and not str(messages[n]["content"]).startswith("[")
    )


def last_prompt(messages: list[Any]) -> str:
    return str(messages[find_prompt(messages)]["content"])


def answer(request: Received) -> Any:
    """Two steps with an effect each, then the end."""
    messages = request.json["messages"]
    prompt = last_prompt(messages)
    step = sum(m["role"] == "tool" for m in messages[find_prompt(messages) :])
    if step == STEPS:
        return say(f"{prompt} ended.").usage(Tokens(100, 10))
    command = f"echo {prompt}-{step} >> effects.log; sleep 1"
    return call((f"{prompt}-{step}", "terminal", {"command": command})).usage(Tokens(100, 10))


class KilledNodes:
    """Nodes that are killed and started again."""

    def __init__(self, homes: list[Home]) -> None:
        self.homes = homes
        self.processes: list[ServeProcess] = []
        self._stacks = [AsyncExitStack() for _ in homes]

    async def start_all(self) -> None:
        for stack, home in zip(self._stacks, self.homes, strict=True):
            self.processes.append(await stack.enter_async_context(serve(home)))

    async def kill(self, index: int) -> None:
        with suppress(ProcessLookupError):
            self.processes[index].process.kill()
        await self._stacks[index].aclose()

    async def restart(self, index: int) -> None:
        self.processes[index] = await self._stacks[index].enter_async_context(
            serve(self.homes[index])
        )

    async def replace(self, index: int) -> int:
        """Start a program instead of this one, which gets no more requests; its exit status."""
        old, stack = self.processes[index], self._stacks[index]
        del self.processes[index]
        old.process.send_signal(signal.SIGTERM)
        status = await old.wait()
        await stack.aclose()
        new = await stack.enter_async_context(serve(self.homes[index]))
        self.processes.insert(index, new)
        return status

    async def close(self) -> None:
        for stack in self._stacks:
            await stack.aclose()


async def check_run(node: ServeProcess, run: str) -> None:
    async with asyncio.timeout(200):
        frames = await node.read(f"/v1/runs/{run}/events")
    check_frames(frames)


def check_frames(frames: bytes) -> tuple[list[str], bool]:
    """The calls whose end is not known, and whether the run has come to its end."""
    events = read_frames(frames)
    name, end = events[-1]
    assert name == "run.completed" or SUSPENDED in str(end), events[-1]
    numbers = [line for line in frames.decode().splitlines() if line.startswith("id: ")]
    assert numbers == [f"id: {n}" for n in range(1, len(numbers) + 1)]
    unknown = [id for n, data in events if n == "run.resumed" for id in data["unknown"]]
    return unknown, name == "run.completed"


class Load:
    """Sessions that get two messages each, close together, one session after the other."""

    def __init__(self, nodes: KilledNodes) -> None:
        self.nodes = nodes
        self.prompts: dict[str, tuple[str, str]] = {}
        """By session."""
        self.runs: list[str] = []
        self.unknown: list[str] = []
        self.told: set[str] = set()
        """Of the unknown calls those that the model was told of: not in a run that was suspended
        before."""
        self.failures = 0
        """Requests that were not accepted."""
        self.stopping = False
        self._numbers = itertools.count()
        self._turn = itertools.count()

    async def keep_busy(self) -> None:
        while not self.stopping:
            number = next(self._numbers)
            session, prompts = f"s{number}", (f"p{number}a", f"p{number}b")
            self.prompts[session] = prompts
            runs = [await self._post(session, prompt) for prompt in prompts]
            for run in runs:
                unknown, is_complete = check_frames(await self._follow(run))
                self.unknown += unknown
                if is_complete:
                    self.told.update(unknown)
            self.runs += runs

    async def _post(self, session: str, prompt: str) -> str:
        body = {"input": prompt, "session_id": session}
        key = {"Idempotency-Key": prompt}
        return str((await self._try(lambda node: self._start(node, body, key)))["run_id"])

    async def _start(self, node: ServeProcess, body: Any, key: dict[str, str]) -> Any:
        status, told = await node.call("POST", "/v1/runs", body, **key)
        if status in (500, 503):
            self.failures += 1
            return None
        assert status == 202, told
        return told

    async def _follow(self, run: str) -> bytes:
        async def read(node: ServeProcess) -> bytes | None:
            frames = await node.read(f"/v1/runs/{run}/events")
            ended = any(f"event: run.{end}\n".encode() in frames for end in ("completed", "failed"))
            return frames if ended else None

        return bytes(await self._try(read))

    async def _try(self, ask: Callable[[ServeProcess], Any]) -> Any:
        """Ask one node after the other until one that lives has answered."""
        async with asyncio.timeout(400):
            while True:
                nodes = self.nodes.processes
                try:
                    found = await ask(nodes[next(self._turn) % len(nodes)])
                except (aiohttp.ClientError, ConnectionError):
                    found = None
                if found is not None:
                    return found
                await asyncio.sleep(0.05)


def list_running(url: str) -> list[tuple[str, str]]:
    """The nodes and the sessions that they run."""
    sql = "SELECT split_part(owner, '#', 1), id FROM public.sessions WHERE state = 'running'"
    with psycopg.connect(url) as db:
        return [(node, session) for node, session in db.execute(sql).fetchall()]


async def wait_until_idle(url: str) -> None:
    """A run has ended a moment before nothing of it waits any more."""
    sql = "SELECT count(*) FROM public.session_inbox"
    async with asyncio.timeout(90):
        while True:
            with psycopg.connect(url) as db:
                waiting = db.execute(sql).fetchone()
            if waiting == (0,) and not list_running(url):
                return
            await asyncio.sleep(0.05)


async def kill_one(
    nodes: KilledNodes, load: Load, provider: Provider, url: str, choose: random.Random
) -> float | None:
    """Kill a node that runs something, wait for its next step elsewhere, and start it again; the
    seconds that it took. None: all that it ran has just ended."""
    async with asyncio.timeout(90):
        while not (running := list_running(url)):
            await asyncio.sleep(0.05)
    name, _ = choose.choice(running)
    index = "abc".index(name)
    await nodes.kill(index)
    killed = time.monotonic()
    sessions = {session for node, session in running if node == name}
    restarting = asyncio.create_task(nodes.restart(index))
    try:
        took = await wait_for_step(load, provider, url, sessions, killed)
    finally:
        await restarting
    return took


async def wait_for_step(
    load: Load, provider: Provider, url: str, sessions: set[str], since: float
) -> float | None:
    """How long after that one of these sessions went on; None: nothing of them is left to do."""
    prompts = {prompt for session in sessions for prompt in load.prompts[session]}
    async with asyncio.timeout(200):
        while (took := find_step(provider, prompts, since)) is None:
            if not has_work(url, sessions):
                return find_step(provider, prompts, since)
            await asyncio.sleep(0.02)
    return took


def has_work(url: str, sessions: set[str]) -> bool:
    sql = "SELECT 1 FROM public.session_inbox WHERE session = ANY(%s)"
    with psycopg.connect(url) as db:
        return db.execute(sql, (list(sessions),)).fetchone() is not None


def find_step(provider: Provider, prompts: set[str], since: float) -> float | None:
    """How long after that the first request of one of these turns came. What the dead node had sent
    may arrive a moment later; others begin after its lease."""
    for request in provider.requests[::-1]:
        if request.at < since + 0.5:
            return None
        if last_prompt(request.json["messages"]) in prompts:
            return request.at - since
    return None


async def test_messages_survive_the_nodes_under_load(tmp_path: Path, postgres_server: str) -> None:
    choose = random.Random(7)
    shared = f"shared:{tmp_path / 'work'}"
    with create_database(postgres_server, tables=False) as url:
        async with Provider(then=answer) as provider:
            homes = [
                make_home(tmp_path / name, provider, url, lease_seconds=LEASE, workspaces=shared)
                for name in ("a", "b", "c")
            ]
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
                        found = [
                            await kill_one(nodes, load, provider, url, choose) for _ in range(KILLS)
                        ]
                    finally:
                        load.stopping = True
                await wait_until_idle(url)
                path = f"/v1/runs/{load.runs[-1]}/events"
                streams = {await node.read(path) for node in nodes.processes}
                assert len(streams) == 1
            finally:
                await nodes.close()
        times = sorted(took for took in found if took is not None)
        worst = times[-1 - len(times) // 100]
        print(
            f"{KILLS} kills, {len(load.runs)} runs, {len(load.unknown)} calls unknown;"
            f" to the next step p50 {median(times):.1f} s, p99 {worst:.1f} s"
        )
        check_effects(tmp_path / "work" / "effects.log")
        check_tables(url, load, len(provider.requests))


def check_effects(file: Path) -> None:
    effects = Counter(file.read_text().split())
    assert effects and max(effects.values()) == 1, effects.most_common(3)


def check_tables(url: str, load: Load, seen: int) -> None:
    """Every message is there once and in order, nothing runs or waits, and the ledger has every
    call that the provider saw."""
    from hermes.core.message import ToolReturn
    from hermes.store import codec

    with psycopg.connect(url) as db:
        counts = [
            db.execute("SELECT count(*) FROM public.sessions WHERE state = 'running'").fetchone(),
            db.execute("SELECT count(*) FROM public.session_inbox").fetchone(),
            db.execute("SELECT count(*) FROM public.reservations").fetchone(),
        ]
        assert counts == [(0,), (0,), (0,)]
        rows = db.execute(
            "SELECT s.id, m.role, m.body FROM public.sessions s JOIN public.messages m"
            " ON m.tenant = s.tenant AND m.session = s.n ORDER BY s.n, m.seq"
        ).fetchall()
        lines = dict(
            db.execute(
                "SELECT outcome = 'killed', count(*) FROM public.ledger GROUP BY 1"
            ).fetchall()
        )
    told: dict[str, list[str]] = {}
    lost = set()
    for session, role, body in rows:
        message = codec.decode_message(bytes(body), 0)
        if role == "user" and not message.text.startswith("["):
            told.setdefault(session, []).append(message.text)
        returned = (part for part in message.parts if isinstance(part, ToolReturn))
        lost |= {part.call_id for part in returned if "died while it ran" in str(part)}
    assert {session: tuple(texts) for session, texts in told.items()} == load.prompts
    assert load.told <= lost <= {*load.unknown}, (lost ^ load.told, lost - {*load.unknown})
    assert lines.get(False, 0) <= seen <= sum(lines.values()), (lines, seen)
