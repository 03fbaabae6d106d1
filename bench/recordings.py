"""What recording, replaying and tracing cost, in one of our own processes: python -m
bench.recordings URL replay. The SDK of OpenTelemetry is measured beside it, in an environment of
its own."""

import asyncio
import sys
import time

from msgspec import structs

from bench import peers
from bench.awaited import cpu_ms, in_turn
from bench.measure import emit, median
from bench.ours import noop
from hermes.app.agents import Options
from hermes.app.live.session_tape import load_agents, load_tape
from hermes.app.live.spans import Span, describe_call, describe_request, describe_usage, open_span
from hermes.app.live.trace_export import TraceExporter
from hermes.app.runtime import Runtime
from hermes.batch.replay.player import load_conversation, play_session
from hermes.config.load import load_setup
from hermes.config.schema import TraceSection
from hermes.core.message import Target, ToolCall, Usage, user_message
from hermes.llm.endpoints.endpoint import ModelChoice

STEPS = 20
TURNS = 300
"""Turns whose spans are sent."""


async def answer(runtime: Runtime, *, record: bool) -> str:
    """A turn of tool steps in a session of its own; its id."""
    choice = ModelChoice(model=f"tools-{STEPS}")
    options = Options(choice=choice, max_turns=10_000, record=record)
    session = await runtime.open_session(options=options)
    agent = session.agent
    session.host.agent = structs.replace(
        agent, tools={**agent.tools, noop.name: noop}, specs=(*agent.specs, noop.spec)
    )
    result = await session.submit(user_message("hi"))
    if result.status != "completed":
        raise RuntimeError(f"the turn failed: {result.error}")
    await session.close()
    return session.id


async def measure_replay(runtime: Runtime) -> None:
    session_id = await answer(runtime, record=True)
    store = runtime.store
    meta = await store.sessions.get_meta(session_id)
    assert meta is not None

    async def play() -> None:
        found = await load_conversation(store, meta)
        turns = [turn for part in found.metas for turn in await load_tape(store, part)]
        agents = await load_agents(store, {turn.agent for turn in turns})
        played = await play_session(found, turns, agents)
        if not played.report.identical:
            raise RuntimeError(f"the replay differs: {played.report.difference}")

    await play()
    steps = STEPS + 1
    emit("replay_step", *[await cpu_ms(play) / steps for _ in range(15)])


async def measure_recording(runtime: Runtime) -> None:
    found = await in_turn(
        {
            "plain": lambda: answer(runtime, record=False),
            "recorded": lambda: answer(runtime, record=True),
        },
        40,
    )
    emit("record_cost", 100 * (median(found["recorded"]) / median(found["plain"]) - 1))


def make_turn(number: int) -> list[Span]:
    """The ten spans of a turn."""
    target = Target("bench", "model", "chat")
    now = time.time_ns()
    turn = open_span("invoke_agent", "hermes", now, None, f"s{number}")
    describe_request(turn, target)
    spans = [turn]
    for step in range(5):
        span = open_span("chat", target.model, now, turn.link, f"s{number}")
        describe_request(span, target)
        describe_usage(span, Usage(100, 5))
        spans.append(span)
        if step < 4:
            span = open_span("execute_tool", "read_file", now, turn.link, f"s{number}")
            describe_call(span, ToolCall(f"c{step}", "read_file"))
            spans.append(span)
    for span in spans:
        span.end = time.time_ns()
    return spans


async def measure_traces() -> None:
    async with await asyncio.start_server(take_spans, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.recordings", f"http://127.0.0.1:{port}", "spans"),
            stdout=asyncio.subprocess.PIPE,
        )
        emit("trace_turn", float((await process.communicate())[0]))
        script = peers.ROOT / "bench" / "sdk_spans.py"
        process = await asyncio.create_subprocess_exec(
            *(
                str(peers.SDK / "bin" / "python"),
                str(script),
                f"http://127.0.0.1:{port}",
                str(TURNS),
            ),
            stdout=asyncio.subprocess.PIPE,
        )
        emit("floor:trace_turn", float((await process.communicate())[0]))


async def take_spans(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A collector that reads requests and says yes."""
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            size = int(head.partition(b"content-length:")[2].split()[0])
            await reader.readexactly(size)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
    except asyncio.IncompleteReadError:
        writer.close()


async def send_spans(url: str) -> None:
    """The CPU of a turn's spans, from their making to their delivery."""
    exporter = TraceExporter(TraceSection(otlp=url))
    exporter.add_spans(make_turn(0))
    await asyncio.sleep(0.2)
    start = time.process_time()
    for number in range(TURNS):
        exporter.add_spans(make_turn(number))
        if number % 50 == 49:
            await asyncio.sleep(0.05)
    await exporter.close()
    print((time.process_time() - start) * 1e3 / TURNS)


async def main() -> None:
    url, group = sys.argv[1:]
    if group == "spans":
        await send_spans(url)
        return
    async with Runtime.open(load_setup()) as runtime:
        await answer(runtime, record=False)
        await measure_replay(runtime)
        await measure_recording(runtime)
    await measure_traces()


if __name__ == "__main__":
    asyncio.run(main())
