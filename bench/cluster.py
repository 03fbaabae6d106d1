"""make cluster-test: the speed of nodes on PostgreSQL, measured in one run. See docs/benchmarks.md.

    python -m tests.kit.postgres python -m bench.cluster [ROW...]

The server of the database is the one in HERMES_TEST_DATABASE.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from statistics import quantiles
from typing import Any

import aiohttp
import psycopg
from psycopg import conninfo

from bench import peers
from bench.__main__ import provider
from bench.measure import call, median
from bench.serving import KEY, Running, free_port
from hermes.store.postgres.connection import open_connection
from hermes.store.postgres.schema import migrate_database

Figures = dict[str, float]
RUNS = 60
QUEUED_TURNS = 300
LIMITS = {
    "enqueue to first step, p50, ms": 25,
    "another tenant with 10,000 queued, added, ms": 20,
    "100,000 sessions queued, times the rate with 1,000": -0.5,
    "idle node, statements/s": 2,
    "idle node, connections": 6,
    "stop at another node until the tool has ended, ms": 1500,
    "key of 20 requests/s, most in a second": 22,
    "429 at one node until the others are silent, ms": 200,
    "cap of $1, 150 sessions on 3 nodes: spent, $": 1.0101,
    "  longest wait of a node for a call, s": 5,
    "1,000 events/s to other nodes, p50, ms": 5,
    "1,000 events/s to other nodes, p99, ms": 60,
    "tool step, added to SQLite, ms": 2,
    "CPU of a turn of 10 steps, 64 at once, times SQLite": 1.35,
    "appends of 16 sessions, times a pool of 8": -1.4,
    "  CPU with the server's, times the pool": 0.5,
}
"""At most; negative: at least."""


@contextmanager
def make_database() -> Iterator[str]:
    server, name = os.environ["HERMES_TEST_DATABASE"], f"hermes_bench_{os.getpid()}"
    with psycopg.connect(server, autocommit=True) as db:
        db.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())
        db.execute(f"CREATE DATABASE {name}".encode())
    parts = conninfo.conninfo_to_dict(server)
    url = conninfo.make_conninfo(**{**parts, "dbname": name})
    try:
        with open_connection(url) as db:
            migrate_database(db)
        yield url
    finally:
        with psycopg.connect(server, autocommit=True) as db:
            db.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


class Node:
    """`hermes serve` on the database, and a client with its key."""

    def __init__(
        self, database: str, provider_url: str, sections: Any = None, **settings: Any
    ) -> None:
        """`sections`: of the configuration; `settings`: of its section `cluster`."""
        self.home = peers.our_home(provider_url)
        path = self.home.path / ".hermes" / "config.yaml"
        text = path.read_text().replace("default: text", "default: asked")
        more = {**(sections or {}), "cluster": settings}
        lines = (f"{name}: {json.dumps(section)}\n" for name, section in more.items())
        path.write_text(text + "".join(lines))
        self.env = self.home.env | {"API_SERVER_KEY": KEY, "HERMES_DATABASE_URL": database}
        port = free_port()
        command = [str(self.home.bin / "hermes"), "serve", "--port", str(port)]
        self.running = Running(command, port, self.home, self.env)
        self.url = self.running.url
        self.provider_url = provider_url

    def run(self, *words: str) -> str:
        command = [str(self.home.bin / "hermes"), *words]
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def close(self) -> None:
        self.running.stop()
        self.home.remove()


@asynccontextmanager
async def open_client(key: str = KEY) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {key}"}) as http:
        yield http


async def start_run(http: aiohttp.ClientSession, url: str, text: str) -> str:
    async with http.post(f"{url}/v1/runs", json={"input": text}) as answer:
        told = await answer.json()
        assert answer.status == 202, told
        return str(told["run_id"])


async def time_wakes(node: Node, key: str = KEY, count: int = RUNS) -> list[float]:
    """Milliseconds from the request to the first request of the run at the provider."""
    found = []
    async with open_client(key) as http:
        for number in range(-5, count):
            await asyncio.to_thread(call, node.provider_url, "/reset", "POST")
            began = time.monotonic_ns()
            run = await start_run(http, node.url, f"text {number}")
            async with http.get(f"{node.url}/v1/runs/{run}/events") as answer:
                await answer.read()
            stats = await asyncio.to_thread(call, node.provider_url, "/stats")
            if number >= 0:
                found.append((stats["first_ns"] - began) / 1e6)
    return found


async def measure_wake(database: str, url: str) -> Figures:
    node = Node(database, url)
    try:
        return {"enqueue to first step, p50, ms": median(await time_wakes(node))}
    finally:
        node.close()


async def measure_tenants(database: str, url: str) -> Figures:
    """One tenant waits with 10,000 turns, of which two at a time take their time."""
    node = Node(database, url)
    try:
        keys = []
        for name in ("many", "few"):
            node.run("tenants", "add", name, "concurrent_turns=2")
            keys.append(node.run("keys", "add", name))
        before = median(await time_wakes(node, keys[1]))
        async with open_client(keys[0]) as http:
            run = await start_run(http, node.url, "paced-600-1000")
            other = await start_run(http, node.url, "paced-600-1000")
            copy_queued(database, run, 10_000, wakes=False)
            after = median(await time_wakes(node, keys[1]))
            for started in (run, other):
                await http.post(f"{node.url}/v1/runs/{started}/stop")
        return {
            "another tenant with 10,000 queued, added, ms": after - before,
            "  without, p50, ms": before,
        }
    finally:
        node.close()


def copy_queued(database: str, run: str, count: int, *, wakes: bool) -> None:
    """Sessions that wait with a copy of this run each; the run itself is named in its body."""
    with psycopg.connect(database) as db:
        rows = db.execute(
            "SELECT o.tenant, o.owner, o.body, i.session FROM public.objects o"
            " JOIN public.session_inbox i ON i.kind = o.kind AND i.ref = o.id"
            " WHERE o.kind = 'run' AND o.id = %s",
            (run,),
        ).fetchall()
        ((tenant, owner, body, session),) = rows
        assert session.encode() in bytes(body)
        ids = [f"run_{number:032x}" for number in range(count)]
        names = [f"{number:0{len(session)}d}" for number in range(count)]
        with db.cursor() as cursor:
            with cursor.copy(
                "COPY public.objects (tenant, kind, id, owner, created, used, body) FROM STDIN"
            ) as copy:
                for number, id in enumerate(ids):
                    made = bytes(body).replace(run.encode(), id.encode())
                    made = made.replace(session.encode(), names[number].encode())
                    copy.write_row((tenant, "run", id, owner, 0.0, 0.0, made))
            with cursor.copy(
                "COPY public.session_inbox (tenant, session, kind, ref, owner, woken) FROM STDIN"
            ) as copy:
                for name, id in zip(names, ids, strict=True):
                    copy.write_row((tenant, name, "run", id, owner, wakes))
            if wakes:
                cursor.execute(
                    "INSERT INTO public.procrastinate_jobs (queue_name, task_name, lock,"
                    " queueing_lock, args) SELECT 'turns', 'wake', k, k, jsonb_build_object("
                    "'tenant', tenant, 'session', session) FROM (SELECT tenant, session,"
                    " tenant || '/' || session AS k FROM public.session_inbox) AS i"
                    " WHERE k NOT IN (SELECT lock FROM public.procrastinate_jobs)"
                )
    with psycopg.connect(database, autocommit=True) as db:
        db.execute("VACUUM ANALYZE")


async def measure_queue(database: str, url: str) -> Figures:
    rates = {}
    for count in (1_000, 100_000):
        with psycopg.connect(database, autocommit=True) as db:
            db.execute("TRUNCATE public.session_inbox, public.objects")
            db.execute("DELETE FROM public.procrastinate_jobs")
        asker = Node(database, url, roles=["api"])
        try:
            async with open_client() as http:
                run = await start_run(http, asker.url, "text")
            copy_queued(database, run, count, wakes=True)
        finally:
            asker.close()
        worker = Node(database, url)
        try:
            rates[count] = await count_rate(url)
        finally:
            worker.close()
    return {
        "100,000 sessions queued, times the rate with 1,000": rates[100_000] / rates[1_000],
        "  turns/s with 1,000": rates[1_000],
        "  turns/s with 100,000": rates[100_000],
    }


async def count_rate(url: str) -> float:
    """Turns a second, as the provider sees them, without the first hundred."""
    await asyncio.to_thread(call, url, "/reset", "POST")
    first = 0.0
    while True:
        chats = (await asyncio.to_thread(call, url, "/stats"))["chats"]
        if not first and chats >= 100:
            first, begun = time.monotonic(), chats
        elif first and chats >= begun + QUEUED_TURNS:
            return float((chats - begun) / (time.monotonic() - first))
        await asyncio.sleep(0.02)


async def measure_idle(database: str, url: str) -> Figures:
    settling, seconds = 30, 30
    with psycopg.connect(database, autocommit=True) as db:  # its transactions would count
        db.execute("ALTER SYSTEM SET autovacuum = off")
        db.execute("SELECT pg_reload_conf()")
    node = Node(database, url)
    sql = (
        "SELECT (SELECT xact_commit + xact_rollback FROM pg_stat_database"
        " WHERE datname = current_database()), (SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid())"
    )
    try:
        await time_wakes(node, count=3)
        await asyncio.sleep(settling)
        with psycopg.connect(database, autocommit=True) as db:
            before = db.execute(sql).fetchone() or (0, 0)
            await asyncio.sleep(seconds)
            after = db.execute(sql).fetchone() or (0, 0)
        return {
            "idle node, statements/s": (after[0] - before[0] - 1) / seconds,
            "idle node, connections": after[1],
        }
    finally:
        node.close()
        with psycopg.connect(database, autocommit=True) as db:
            db.execute("ALTER SYSTEM RESET autovacuum")
            db.execute("SELECT pg_reload_conf()")


async def follow(url: str, run: str, seen: dict[int, float]) -> None:
    async with open_client() as http, http.get(f"{url}/v1/runs/{run}/events") as answer:
        async for line in answer.content:
            if line.startswith(b"id: "):
                seen[int(line[4:])] = time.monotonic()


async def measure_events(database: str, url: str) -> Figures:
    """Ten runs of 100 events a second, followed on three nodes; how much later than at the node
    that runs it an event is seen at the others."""
    nodes = [Node(database, url) for _ in range(3)]
    delays: list[float] = []
    try:
        async with open_client() as http:
            for node in nodes:
                await time_wakes(node, count=1)
            runs = [await start_run(http, nodes[n % 3].url, "paced-600-10") for n in range(10)]
            seen: list[list[dict[int, float]]] = [[{} for _ in nodes] for _ in runs]
            await asyncio.gather(
                *(
                    follow(node.url, run, seen[n][place])
                    for n, run in enumerate(runs)
                    for place, node in enumerate(nodes)
                )
            )
    finally:
        for node in nodes:
            node.close()
    for streams in seen:
        for number in streams[0]:
            times = [stream[number] for stream in streams]
            delays += sorted(time - min(times) for time in times)[1:]
    cuts = quantiles(delays, n=100)
    return {
        "1,000 events/s to other nodes, p50, ms": cuts[49] * 1e3,
        "1,000 events/s to other nodes, p99, ms": cuts[98] * 1e3,
        "  events": len(delays) / 2,
    }


async def measure_store(database: str, url: str) -> Figures:
    home = peers.our_home(url)
    command = [sys.executable, "-m", "bench.cluster_store", database, url]
    env = home.env | {"PYTHONPATH": str(peers.ROOT)}
    done = await asyncio.to_thread(
        subprocess.run, command, env=env, cwd=home.cwd, capture_output=True, text=True
    )
    home.remove()
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    records = [json.loads(line) for line in done.stdout.splitlines()]
    found = {record["metric"]: median(record["values"]) for record in records}
    return {
        "tool step, added to SQLite, ms": found["step_added"],
        "  a step on SQLite, ms": found["step_sqlite"],
        "CPU of a turn of 10 steps, 64 at once, times SQLite": found["turn_cpu"],
        "  a turn on SQLite, ms": found["turn_cpu_sqlite"],
        "  in the server, ms": found["turn_cpu_server"],
        "appends of 16 sessions, times a pool of 8": found["append_rate"],
        "  of a node, /s": found["append_rate_group"],
        "  CPU with the server's, times the pool": found["append_cpu"],
    }


ROWS = (
    *("wake", "idle", "store", "tenants", "events", "queue"),
    *("stop", "rate", "pause", "cap"),
)


def find_row(name: str) -> Callable[[str, str], Awaitable[Figures]]:
    """What measures a row."""
    from bench import cluster_limits

    own = globals()
    found: Callable[[str, str], Awaitable[Figures]] = (
        own.get(f"measure_{name}") or vars(cluster_limits)[f"measure_{name}"]
    )
    return found


def judge(name: str, value: float) -> str:
    limit = LIMITS.get(name)
    if limit is None:
        return ""
    met = value <= limit if limit > 0 else value >= -limit
    return f"{'<=' if limit > 0 else '>='} {abs(limit):g}  {'ok' if met else 'MISS'}"


async def main() -> int:
    missed = False
    with provider() as url:
        for row in sys.argv[1:] or ROWS:
            with make_database() as database:
                figures = await find_row(row)(database, url)
            for name, value in figures.items():
                verdict = judge(name, value)
                missed |= "MISS" in verdict
                print(f"{name:54} {value:10.3g}  {verdict}".rstrip(), flush=True)
    return int(missed)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
