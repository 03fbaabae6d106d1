"""The store of a cluster in one of our processes, in turn with SQLite and with a pool.

python -m bench.cluster_store DATABASE URL      prints a line of JSON per metric
"""

import asyncio
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg

from bench.floor import Client
from bench.measure import emit, median
from bench.ours import Ours
from hermes.app.runtime import Runtime
from hermes.config.load import load_setup
from hermes.core.message import Message, Text
from hermes.core.store import SessionMeta
from hermes.store.postgres.store import PostgresStore, open_postgres

TICK = 100.0
SESSIONS, POOL = 16, 8
APPENDS = 300
"""By each session."""
TURNS, STEPS = 64, 10
ROUNDS = 3


class ServerCpu:
    """What the processes of the database have used."""

    def __init__(self, url: str) -> None:
        with psycopg.connect(url) as db:
            row = db.execute("SHOW data_directory").fetchone()
        assert row is not None
        self.pid = int((Path(row[0]) / "postmaster.pid").read_text().split()[0])

    def milliseconds(self) -> float:
        total = 0
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(stat.parent.name) == self.pid:
                total += sum(map(int, fields[11:15]))
            elif int(fields[1]) == self.pid:
                total += sum(map(int, fields[11:13]))
        return total * 1e3 / TICK


def make_message(number: int) -> Message:
    return Message("assistant", (Text(f"message {number} " + "x" * 700),))


async def append_grouped(store: PostgresStore, label: str) -> None:
    """Sessions of one node, which share its writer."""

    async def fill(name: str) -> None:
        first, *rest = [make_message(n) for n in range(APPENDS)]
        await store.sessions.append(name, [first], state="running", create=SessionMeta(name))
        for message in rest:
            await store.sessions.append(name, [message])
        await store.sessions.set_state(name, "idle")

    await asyncio.gather(*(fill(f"{label}-{n}") for n in range(SESSIONS)))


def append_pooled(url: str, label: str) -> None:
    """The same with a pool: each append is a transaction on one of its connections."""
    from hermes.store import codec
    from hermes.store.postgres.connection import open_connection

    def fill(names: list[str]) -> None:
        sql = "SELECT * FROM hermes.write_session(0, %s, %s, %s, %s, %s, %s, %s, %s, 0, false)"
        with open_connection(url, autocommit=True) as db:
            db.execute("SELECT set_config('hermes.tenant', '0', false)")
            held: dict[str, int | None] = dict.fromkeys(names)
            for name in names:
                db.execute(
                    "INSERT INTO public.sessions (tenant, id, source, key, cwd, title, model,"
                    " parent, created, updated, taint)"
                    " VALUES (0, %s, '', '', '', '', '', '', 0, 0, 0)",
                    (name,),
                )
            for number in range(APPENDS):
                for name in names:
                    body = codec.encode_message(make_message(number))
                    state = None if number else "running"
                    with db.transaction():
                        row = db.execute(
                            sql,
                            (
                                *(name, "pool", held[name]),
                                *(["assistant"], [""], time.time(), [body], state),
                            ),
                        ).fetchone()
                    assert row is not None and not row[0], row
                    held[name] = row[2]
            for name in names:
                values = (name, "pool", held[name], [], [], 0.0, [], "idle")
                db.execute(sql, values)

    threads = [
        threading.Thread(target=fill, args=([f"{label}-{n}" for n in range(i, SESSIONS, POOL)],))
        for i in range(POOL)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


async def compare_appends(url: str) -> None:
    server = ServerCpu(url)
    rates: dict[str, list[float]] = {"group": [], "pool": []}
    costs: dict[str, list[float]] = {"group": [], "pool": []}
    store = open_postgres(url, node="appends", lease_seconds=30, patience=30)
    try:
        for number in range(-1, ROUNDS):
            for kind in rates:
                label = f"{kind}{number}"
                before, wall = server.milliseconds() + time.process_time() * 1e3, time.monotonic()
                if kind == "group":
                    await append_grouped(store, label)
                else:
                    await asyncio.to_thread(append_pooled, url, label)
                took = time.monotonic() - wall
                spent = server.milliseconds() + time.process_time() * 1e3 - before
                if number >= 0:
                    rates[kind].append(SESSIONS * APPENDS / took)
                    costs[kind].append(spent * 1e3 / (SESSIONS * APPENDS))
    finally:
        await store.close()
    for kind in rates:
        emit(f"append_rate_{kind}", *rates[kind])
        emit(f"append_cpu_{kind}", *costs[kind])
    emit("append_rate", median(rates["group"]) / median(rates["pool"]))
    emit("append_cpu", median(costs["group"]) / median(costs["pool"]))


@asynccontextmanager
async def open_ours(url: str, store: PostgresStore | None) -> AsyncIterator[Ours]:
    import aiohttp

    async with (
        aiohttp.ClientSession() as http,
        Runtime.open(load_setup(), store=store) as runtime,
    ):
        yield Ours(runtime, Client(url, http))


async def compare_turns(database: str, url: str) -> None:
    """A step alone by the clock, and many turns at once by their CPU."""
    server = ServerCpu(database)
    store = open_postgres(database, node="turns", lease_seconds=30, patience=30)
    async with open_ours(url, None) as plain, open_ours(url, store) as shared:
        both = {"sqlite": plain, "postgres": shared}
        steps: dict[str, list[float]] = {name: [] for name in both}
        costs: dict[str, list[float]] = {name: [] for name in both}
        served: list[float] = []
        for number in range(-1, 3 * ROUNDS):
            for name, ours in both.items():
                wall = time.monotonic()
                await ours.turn("tools-40")
                if number >= 0:
                    steps[name].append((time.monotonic() - wall) * 1e3 / 40)
        for number in range(-1, ROUNDS):
            for name, ours in both.items():
                before, behind = time.process_time(), server.milliseconds()
                await asyncio.gather(*(ours.turn(f"tools-{STEPS}") for _ in range(TURNS)))
                if number >= 0:
                    costs[name].append((time.process_time() - before) * 1e3 / TURNS)
                    if name == "postgres":
                        served.append((server.milliseconds() - behind) / TURNS)
        await store.close()
    for name in both:
        emit(f"step_{name}", *steps[name])
        emit(f"turn_cpu_{name}", *costs[name])
    emit("step_added", median(steps["postgres"]) - median(steps["sqlite"]))
    emit("turn_cpu_server", *served)
    emit("turn_cpu", median(costs["postgres"]) / median(costs["sqlite"]))


async def main() -> None:
    database, url, *only = sys.argv[1:]
    rows: dict[str, Callable[[], object]] = {
        "appends": lambda: compare_appends(database),
        "turns": lambda: compare_turns(database, url),
    }
    for name, measure in rows.items():
        if not only or name in only:
            await measure()  # type: ignore[misc]


if __name__ == "__main__":
    asyncio.run(main())
