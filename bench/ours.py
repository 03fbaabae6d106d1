"""Ours, measured inside one of its own processes: python -m bench.ours URL GROUP...

The floor runs in the same process, in turn with ours, so that noise hits both alike; its results
are emitted as `floor:metric`.
"""

import asyncio
import contextlib
import gc
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from msgspec import Struct, structs

from bench.awaited import cpu_ms, in_turn
from bench.floor import Client
from bench.measure import emit, median, rss_kb
from hermes.app.agents import Options
from hermes.app.runtime import Runtime
from hermes.app.session import Session
from hermes.config.load import load_setup
from hermes.core.events import TextDelta
from hermes.core.message import user_message
from hermes.core.tool import ToolContext, tool
from hermes.llm.endpoints.endpoint import ModelChoice


class Nothing(Struct, frozen=True):
    i: str


MARKS: list[float] = []


@tool("Does nothing.", name="bench_noop")
async def noop(p: Nothing, ctx: ToolContext) -> str:
    MARKS.append(time.process_time())
    return f"done {p.i}"


class Ours:
    """A warm runtime; every session has a consumer that reads its events as they come."""

    def __init__(self, runtime: Runtime, floor: Client) -> None:
        self.runtime = runtime
        self.floor = floor
        self.seen = 0

    async def session(self, model: str) -> Session:
        options = Options(choice=ModelChoice(model=model), max_turns=10_000)
        session = await self.runtime.open_session(options=options)
        agent = session.agent
        session.host.agent = structs.replace(
            agent, tools={**agent.tools, noop.name: noop}, specs=(*agent.specs, noop.spec)
        )
        return session

    @asynccontextmanager
    async def watched(self, model: str) -> AsyncIterator[Session]:
        session = await self.session(model)
        reader = asyncio.ensure_future(self.read(session))
        await asyncio.sleep(0)
        yield session
        await session.close()
        with contextlib.suppress(asyncio.CancelledError):
            await reader

    async def read(self, session: Session) -> None:
        async for event in session.subscribe_events():
            if isinstance(event, TextDelta):
                self.seen += len(event.text)

    async def answer(self, session: Session) -> None:
        result = await session.submit(user_message("hi"))
        if result.status != "completed" or not result.text:
            raise RuntimeError(f"the turn failed: {result.error}")

    async def turn(self, model: str) -> None:
        """A turn of a new session."""
        async with self.watched(model) as session:
            await self.answer(session)

    # groups

    async def sessions(self) -> None:
        count = 2000
        keep = [await self.runtime.open_session() for _ in range(50)]
        gc.collect()
        before, start = rss_kb(), time.process_time()
        keep += [await self.runtime.open_session() for _ in range(count)]
        spent = (time.process_time() - start) * 1e3
        gc.collect()
        emit("session_cpu", spent / count)
        emit("session_kb", (rss_kb() - before) / count)
        parent, start = keep[0], time.process_time()
        for _ in range(300):
            keep.append(
                await self.runtime.open_child_session(parent, parent.options, frozenset({"memory"}))
            )
        child = (time.process_time() - start) * 1e3 / 300
        emit("session_child", child / (spent / count))
        keep.clear()
        used = [await self.runtime.open_session() for _ in range(350)]
        for session in used[:50]:
            await self.answer(session)
        gc.collect()
        before = rss_kb()
        for session in used[50:]:
            await self.answer(session)
        gc.collect()
        emit("session_used_kb", (rss_kb() - before) / 300)

    async def turns(self) -> None:
        async with self.watched("text") as session:
            for _ in range(20):
                await self.answer(session)
            values = [await cpu_ms(lambda: self.answer(session)) for _ in range(200)]
            emit("turn_cpu", *values)
        for _ in range(20):
            await self.floor.turn("text")
        emit("floor:turn_cpu", *[await cpu_ms(lambda: self.floor.turn("text")) for _ in range(200)])

    async def streams(self) -> None:
        for metric, model in (("stream", "stream-2000"), ("stream_each", "stream-2000-each")):
            found = await in_turn(
                {
                    "ours_base": lambda: self.turn("text"),
                    "floor_base": lambda: self.floor.turn("text"),
                    "ours": lambda m=model: self.turn(m),
                    "floor": lambda m=model: self.floor.turn(m),
                },
                15,
            )
            for name, prefix in (("ours", ""), ("floor", "floor:")):
                base = median(found[name + "_base"])
                emit(prefix + metric, *((ms - base) / 2 for ms in found[name]))

    async def tools(self) -> None:
        growth = []
        for count, rounds in ((20, 15), (400, 5)):
            found = await in_turn(
                {
                    "": lambda c=count: self.turn(f"tools-{c}"),
                    "floor:": lambda c=count: self.floor.turn(f"tools-{c}"),
                },
                rounds,
            )
            for prefix, values in found.items():
                emit(f"{prefix}tools_{count}", *(ms / count for ms in values))
        # Means, not medians of single steps: collections and indexing in batches count as well.
        for _ in range(5):
            MARKS.clear()
            await self.turn("tools-450")
            growth.append((MARKS[449] - MARKS[349]) / (MARKS[109] - MARKS[9]))
        emit("tools_growth", *growth)


async def main() -> None:
    url, *groups = sys.argv[1:]
    for group in groups:
        async with aiohttp.ClientSession() as http, Runtime.open(load_setup()) as runtime:
            ours = Ours(runtime, Client(url, http))
            await ours.turn("text")
            await {
                "session": ours.sessions,
                "turn": ours.turns,
                "stream": ours.streams,
                "tools": ours.tools,
            }[group]()


if __name__ == "__main__":
    asyncio.run(main())
