"""What nodes do together within limits of time: rates, pauses, caps, and stops.

The rows `stop`, `rate`, `pause` and `cap` of bench.cluster.
"""

import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import psycopg

from bench.cluster import Figures, Node, open_client, start_run
from bench.measure import call, median

NODES = 3
SECONDS = 10
SESSIONS = 150
STOPS = 10
PER_MINUTE = 1200
COST = 0.0101
"""Dollars of a call: 105 tokens."""
PRICE = COST / 105 * 1e6


@asynccontextmanager
async def open_nodes(database: str, url: str, sections: Any = None) -> AsyncIterator[list[Node]]:
    nodes = [Node(database, url, sections) for _ in range(NODES)]
    try:
        yield nodes
    finally:
        for node in nodes:
            node.close()


async def ask(http: aiohttp.ClientSession, node: Node, text: str) -> str:
    """The code of the failure, if any."""
    body = {"messages": [{"role": "user", "content": text}]}
    async with http.post(f"{node.url}/v1/chat/completions", json=body) as answer:
        told = await answer.json()
        return str(told["error"]["code"]) if "error" in told else ""


async def keep_asking(http: aiohttp.ClientSession, node: Node, until: float) -> None:
    number = 0
    while time.monotonic() < until:
        await ask(http, node, f"text {id(node)} {number} {until}")
        number += 1


async def measure_rate(database: str, url: str) -> Figures:
    """Nodes that ask as fast as they can with one key, which the provider may count."""
    sections = {"providers": {"custom": {"requests_per_minute": PER_MINUTE}}}
    async with open_nodes(database, url, sections) as nodes, open_client() as http:
        for node in nodes:
            await ask(http, node, "warm up")
        await asyncio.to_thread(call, url, "/reset", "POST")
        until = time.monotonic() + SECONDS
        await asyncio.gather(*(keep_asking(http, n, until) for n in nodes for _ in range(12)))
    stats = await asyncio.to_thread(call, url, "/stats")
    return {
        "key of 20 requests/s, most in a second": stats["busiest"],
    }


async def measure_pause(database: str, url: str) -> Figures:
    """All nodes ask all the time; one of them is told to wait."""
    found = []
    async with open_nodes(database, url) as nodes, open_client() as http:
        for _ in range(5):
            await asyncio.to_thread(call, url, "/reset", "POST")
            until = time.monotonic() + 3
            asking = [
                asyncio.create_task(keep_asking(http, node, until))
                for node in nodes
                for _ in range(4)
            ]
            await asyncio.sleep(1)
            await ask(http, nodes[0], "refuse-2")
            await asyncio.gather(*asking)
            stats = await asyncio.to_thread(call, url, "/stats")
            found.append(stats["silent_after_ms"])
    return {
        "429 at one node until the others are silent, ms": max(found),
        "  median": median(found),
    }


async def measure_cap(database: str, url: str) -> Figures:
    price = {"price": {"input": PRICE, "output": PRICE}}
    sections = {
        "providers": {"custom": {"models": {"asked": price}}},
        "budget": {"daily_usd": 1.0},
    }
    served: dict[int, list[float]] = {n: [time.monotonic()] for n in range(NODES)}
    codes: Counter[str] = Counter()
    async with open_nodes(database, url, sections) as nodes, open_client() as http:

        async def ask_until_refused(session: int) -> None:
            place = session % NODES
            code = ""
            while code != "insufficient_quota":
                code = await ask(http, nodes[place], f"text {session}")
                codes[code] += 1
                if not code:
                    served[place].append(time.monotonic())

        begun = time.monotonic()
        for times in served.values():
            times[0] = begun
        await asyncio.gather(*(ask_until_refused(n) for n in range(SESSIONS)))
    end = max(times[-1] for times in served.values())
    gaps = [
        late - early
        for times in served.values()
        for early, late in zip(times, [*times[1:], end], strict=True)
    ]
    with psycopg.connect(database) as db:
        row = db.execute("SELECT sum(cost) FROM public.ledger").fetchone() or (0,)
    return {
        "cap of $1, 150 sessions on 3 nodes: spent, $": float(row[0] or 0),
        "  longest wait of a node for a call, s": max(gaps),
        **{f"  {code or 'calls'}": count for code, count in codes.items()},
    }


async def measure_stop(database: str, url: str) -> Figures:
    """The provider has one node run a command; another one stops it."""
    found = []
    async with open_nodes(database, url) as nodes, open_client() as http:
        for number in range(STOPS):
            node = nodes[number % NODES]
            run = await start_run(http, node.url, "command-sleep")
            async with asyncio.timeout(60):
                while not (pids := find_sleepers(nodes)):
                    await asyncio.sleep(0.02)
            began = time.monotonic()
            path = f"/v1/runs/{run}/stop"
            async with http.post(nodes[(number + 1) % NODES].url + path) as answer:
                await answer.read()
            async with asyncio.timeout(60):
                while any(Path(f"/proc/{pid}").exists() for pid in pids):
                    await asyncio.sleep(0.005)
            found.append((time.monotonic() - began) * 1e3)
    return {
        "stop at another node until the tool has ended, ms": max(found),
        "  median": median(found),
    }


def find_sleepers(nodes: list[Node]) -> list[int]:
    """The commands of these nodes, by the ids that the system knows them by."""
    folders = {os.path.realpath(node.home.cwd) for node in nodes}
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if words[:2] == [b"sleep", b"600"] and str((entry / "cwd").readlink()) in folders:
                found.append(int(entry.name))
    return found
