"""Our store beside a bare table with an FTS5 index, in turn: python -m bench.storage URL GROUP...

The store is measured alone, with no runtime around it; the floor's results are `floor:metric`.
"""

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from bench.awaited import cpu_ms, in_turn
from bench.floor import Table
from bench.measure import emit, median, text
from hermes.core.message import Message, Text
from hermes.core.store import SessionMeta
from hermes.store.sqlite import SqliteStore

PARTS = ("m500", "eploy", "ocke", "ebra", "部署服务", "m50000", "kernel memory", "windowless")
"""Beginnings and parts of words, and words inside a sentence without spaces."""
QUERIES = ("m50000", "zebra", "docker deploying", '"kernel memory"')


def message(number: int) -> Message:
    role = "assistant" if number % 2 else "user"
    return Message(role, (Text(text(number)),))  # type: ignore[arg-type]


async def store_group() -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteStore(Path(folder) / "ours.db")
        table = Table(Path(folder) / "floor.db")
        await store.sessions.create(SessionMeta("big"))
        # In blocks, each ended by a pause: what the writer's thread does after an append returned
        # (indexing) is a cost of appending too.
        block, done = 1000, []
        for first in range(0, 10_000, block):
            messages = [message(first + i) for i in range(block)]

            async def ours(new: list[Message] = messages) -> None:
                for m in new:
                    await store.sessions.append("big", (m,))
                done.append(time.perf_counter())
                await asyncio.sleep(0.1)

            async def plain(new: list[Message] = messages) -> None:
                for m in new:
                    table.append("big", [(m.role, m.text)])
                done.append(time.perf_counter())

            for prefix, run in (("", ours), ("floor:", plain)):
                clock = time.perf_counter()
                emit(prefix + "append_cpu", await cpu_ms(run) / block)
                emit(prefix + "append_wall", (done.pop() - clock) * 1e3 / block)

        async def resume() -> None:
            assert len(await store.sessions.load_messages("big")) == 10_000

        async def load() -> None:
            table.load("big")

        found = await in_turn({"": resume, "floor:": load}, 9)
        for prefix, values in found.items():
            emit(prefix + "resume_cpu", *values)
        await store.close()


async def search_group() -> None:
    total, per = 100_000, 10
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteStore(Path(folder) / "ours.db")
        table = Table(Path(folder) / "floor.db")
        for first in range(0, total, per):
            session = f"s{first}"
            messages = [message(first + i) for i in range(per)]
            await store.sessions.append(session, messages, create=SessionMeta(session))
            table.append(session, ((m.role, m.text) for m in messages))
        sums: dict[str, list[float]] = {"": [], "floor:": []}
        for place, query in enumerate(QUERIES):

            async def ours(q: str = query) -> None:
                assert await store.search.find_messages(q, limit=20)

            async def plain(q: str = query) -> None:
                assert table.search(q)

            found = await in_turn({"": ours, "floor:": plain}, 15)
            for prefix, values in found.items():
                sums[prefix].append(median(values))
                emit(f"{prefix}search_{place}", *values)
        for prefix, values in sums.items():
            emit(prefix + "search", sum(values))
        spoken = Message("user", (Text("我们今天部署服务器"),))
        await store.sessions.append("s0", (spoken,))
        took = []
        for query in PARTS * 20:
            begun = time.perf_counter()
            assert await store.search.find_messages(query, limit=20), query
            took.append((time.perf_counter() - begun) * 1e3)
        emit("search_p95", sorted(took)[int(0.95 * len(took))])
        await store.close()


async def main() -> None:
    for group in sys.argv[2:]:
        await {"store": store_group, "search": search_group}[group]()


if __name__ == "__main__":
    asyncio.run(main())
