"""Compression through the program: resumed by any id, killed around it, refused when it cannot."""

from __future__ import annotations

import asyncio
import os
import random
import re
from pathlib import Path
from typing import Any

import pytest

from hermes.core.message import Message, ToolCall, ToolReturn
from hermes.store.sqlite import SqliteStore
from tests.kit import Gate, Home, Provider, Received, Reply, Tokens, call, run_hermes, say
from tests.kit.bodies import check_legal, max_tokens, messages, system, tools
from tests.kit.home import start_hermes

SIZE = 12_000
TASK = "Read the logbook day by day and say on which day the lighthouse keeper was mentioned."
KILLS = int(os.environ.get("HERMES_KILLS", "60")) // 20


class Reader:
    """Reads a file `steps` times, then answers; refuses what does not fit."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.read = 0
        self.summary: Gate | None = None
        """Where a handoff is held before it is written."""
        self.after: Gate | None = None
        """Where the first answer after a handoff is held."""
        self.prompts: list[list[str]] = []
        self.handed = False

    def __call__(self, request: Received) -> Reply:
        tokens = len(request.body) * 10 // 36
        if "You write handoffs" in system(request):
            assert tokens + (max_tokens(request) or 0) < SIZE
            self.handed = True
            reply = handoff(request)
            return reply.hold(self.summary) if self.summary else reply
        assert tokens < SIZE, "it does not fit"
        seen = check_legal(request)
        self.prompts.append([m.text for m in seen if m.role == "user"])
        self.read += 1
        reply = say("on day 4")
        if self.read <= self.steps:
            args = {"path": "log.txt", "offset": self.read}
            reply = call((f"c{self.read}_{len(self.prompts)}", "read_file", args))
        if self.handed and self.after:
            reply = reply.hold(self.after)
        return reply.usage(Tokens(tokens, 9))


def handoff(request: Received) -> Reply:
    text = messages(request)[-1].text
    said = re.findall(r"to be named(?: under Goal)?:\n<data-\w+>\n(.*?)\n</data", text, re.S)
    return say(
        f"## Goal\n{' '.join(said)}\n## Decisions\nnone\n## Files touched\nnone\n"
        "## Open work\nthe rest\n## Next step\nthe next day"
    )


def make_home(root: Path, provider: Provider, size: int = SIZE, **config: Any) -> Home:
    home = Home.of(root, provider, **config)
    home.configure(model={"context_length": size})
    home.file(
        "log.txt", "".join(f"day {n}: wind from the west, nothing to report\n" for n in range(60))
    )
    return home  # fmt: skip


async def stored(home: Home) -> tuple[list[tuple[str, list[Message]]], str]:
    """All sessions of the one conversation, the first one first, and its state."""
    store = SqliteStore(next(home.path.glob("*.db")))
    try:
        assert not await store.maintenance.check_integrity()
        (head,) = await store.sessions.list_recent()
        out: list[tuple[str, list[Message]]] = []
        id = head.id
        while id:
            out.append((id, await store.sessions.load_messages(id)))
            meta = await store.sessions.get_meta(id)
            assert meta is not None
            id = meta.parent
        return out[::-1], head.state
    finally:
        await store.close()


async def test_any_id_of_the_conversation_goes_on_with_it(tmp_path: Path) -> None:
    reader = Reader(21)
    async with Provider(then=reader) as p:
        home = make_home(tmp_path, p)
        ran = await run_hermes(["chat", "-q", TASK, "--output", "json"], home)
        assert ran.rc == 0 and ran.json["text"] == "on day 4", ran
        parts, state = await stored(home)
        assert len(parts) > 2 and state == "idle" and ran.json["session_id"] == parts[-1][0]
        for more in (["--resume", parts[0][0]], ["--continue"], ["--resume", parts[1][0]]):
            count = len(parts[-1][1])
            said = f"Anything else in there, {more[-1]}?"
            ran = await run_hermes(["chat", "-q", said, "--output", "json", *more], home)
            assert ran.rc == 0 and ran.json["session_id"] == parts[-1][0], ran
            again, _ = await stored(home)
            assert [i for i, _ in again] == [i for i, _ in parts]
            assert [m.text for m in again[-1][1][count:]] == [said, "on day 4"]
            parts = again
        log = (home.path / "logs" / "hermes.log").read_text()
        assert log.count("goes on as") == len(parts) - 1 and "lighthouse" not in log
        listed = await run_hermes(["sessions", "list"], home)
        assert len(listed.stdout.splitlines()) == 2
        old = await run_hermes(["sessions", "show", parts[0][0]], home)
        assert old.rc == 0 and "day 30: wind" in old.stdout
        gone = await run_hermes(["sessions", "delete", "--yes", parts[-1][0]], home)
        assert gone.rc == 0
        found = await run_hermes(["sessions", "search", "logbook"], home)
        assert parts[0][0] not in found.stdout


async def killed(home: Home, gate: Gate, delay: float = 0.0) -> None:
    """Kill -9 at the gate, or a moment after it was opened."""
    process = await start_hermes(["chat", "-q", TASK, "--yolo", "--continue"], home)
    await gate.reached()
    if delay:
        gate.open()
        await asyncio.sleep(delay)
    process.kill()
    await process.communicate()
    gate.open()


async def begin(home: Home, reader: Reader) -> None:
    """A first exchange, so that there is something to continue."""
    reader.read = reader.steps
    ran = await run_hermes(["chat", "-q", "Hello there."], home)
    assert ran.rc == 0, ran
    reader.read = 0


async def go_on(home: Home, reader: Reader) -> list[tuple[str, list[Message]]]:
    """The next turn after a kill: everything is there and legal (Reader checks), nothing twice."""
    reader.summary = reader.after = None
    reader.read = reader.steps - 1
    ran = await run_hermes(["chat", "-q", "Go on.", "--continue", "--yolo"], home)
    assert ran.rc == 0 and ran.stdout.strip() == "on day 4", ran
    parts, state = await stored(home)
    assert state == "idle"
    assert any(TASK in text for text in reader.prompts[-1]), "the task is still there"
    for _, part in parts:
        calls = [p.id for m in part for p in m.parts if isinstance(p, ToolCall)]
        results = [p.call_id for m in part for p in m.parts if isinstance(p, ToolReturn)]
        assert len(calls) == len(set(calls)) and len(results) == len(set(results))
        assert set(results) <= set(calls)
    return parts


async def test_F60_killed_while_it_is_summarised(tmp_path: Path) -> None:
    reader = Reader(40)
    async with Provider(then=reader) as p:
        home = make_home(tmp_path, p)
        await begin(home, reader)
        reader.summary = Gate()
        await killed(home, reader.summary)
        parts, state = await stored(home)
        assert state == "interrupted" and parts[-1][1][-1].role == "tool"
        await go_on(home, reader)


async def test_F60_killed_just_after_it_was_compressed(tmp_path: Path) -> None:
    reader = Reader(40)
    async with Provider(then=reader) as p:
        home = make_home(tmp_path, p)
        await begin(home, reader)
        reader.after = Gate()
        await killed(home, reader.after)
        parts, state = await stored(home)
        assert state == "interrupted" and any(m.kind == "summary" for m in parts[-1][1])
        assert len(await go_on(home, reader)) >= len(parts)


async def test_F60_killed_around_it(tmp_path: Path) -> None:
    """Either the old session is the one to go on with, or the new one is, whole."""
    rng = random.Random(7)
    ends = set()
    for n in range(KILLS):
        reader = Reader(40)
        async with Provider(then=reader) as p:
            (root := tmp_path / str(n)).mkdir()
            home = make_home(root, p)
            await begin(home, reader)
            reader.summary = Gate()
            await killed(home, reader.summary, rng.uniform(0.001, 0.06))
            parts, _ = await stored(home)
            ends.add(any(m.kind == "summary" for m in parts[-1][1]))
            await go_on(home, reader)
    print(f"old or new: {ends}")


# -- 29, and small windows ---------------------------------------------------------------------


async def test_too_small_a_window_is_refused(tmp_path: Path) -> None:
    async with Provider([say("no")]) as p:
        ran = await run_hermes(["chat", "-q", "hi"], make_home(tmp_path, p, 2048))
        assert ran.rc == 2 and "2048" in ran.stderr and "4096" in ran.stderr, ran
        assert not p.requests


@pytest.mark.parametrize("size", [8192, 32_768])
async def test_a_small_window_gets_a_tiny_prompt_and_few_tools(tmp_path: Path, size: int) -> None:
    async with Provider([call(("c1", "read_file", {"path": "big.txt"})), say("read")]) as p:
        home = make_home(tmp_path, p, size)
        home.file("big.txt", "".join(f"{n} {'x' * 60}\n" for n in range(4000)))
        ran = await run_hermes(["chat", "-q", "hi"], home)
        assert ran.rc == 0, ran
        first, last = p.requests
    assert set(tools(first)) == {"terminal", "read_file", "write_file", "patch", "search_files"}
    assert len(first.body) < 3500 and "User guidance" in system(first)
    result = next(m.results[0][1] for m in messages(last) if m.results)
    assert len(result) < size // 2 + 300


async def test_a_large_window_and_asked_for_tools_are_left_alone(tmp_path: Path) -> None:
    async with Provider([say("a"), say("b")]) as p:
        assert (await run_hermes(["chat", "-q", "hi"], make_home(tmp_path, p, 64_000))).rc == 0
        home = make_home(tmp_path, p, 8192)
        assert (await run_hermes(["chat", "-q", "hi", "--toolsets", "core"], home)).rc == 0
        assert "tool_search" in tools(p.requests[0]) and "todo" in tools(p.requests[1])


def job(context: int, provider: Provider) -> dict[str, Any]:
    own = {"provider": "custom", "model": "shorthand", "base_url": provider.base_url}
    return {"compression": {**own, "api_key_env": "KIT_KEY", "context_length": context}}


@pytest.mark.parametrize(("main", "reads"), [(128_000, 32_000), (64_000, 63_999), (32_000, 16_000)])
async def test_29_a_summariser_that_holds_too_little_is_refused(
    tmp_path: Path, main: int, reads: int
) -> None:
    async with Provider([say("no")]) as p:
        home = make_home(tmp_path, p, main, auxiliary=job(reads, p))
        ran = await run_hermes(["chat", "-q", "hi"], home)
        assert ran.rc == 2 and "auxiliary.compression" in ran.stderr and str(reads) in ran.stderr
        assert not p.requests
        home.configure(compression={"enabled": False})
        assert (await run_hermes(["chat", "-q", "hi"], home)).rc == 0, "it is not needed then"


async def test_29_a_lower_threshold_is_said_once_with_how_to_keep_it(tmp_path: Path) -> None:
    async with Provider([], then=say("yes")) as p:
        home = make_home(tmp_path, p, 200_000, auxiliary=job(70_000, p))
        ran = await run_hermes(["chat", "-q", "hi"], home)
        assert ran.rc == 0 and ran.stderr.count("hermes config set compression.threshold") == 1
        found = re.search(r"hermes config set (compression.threshold) ([\d.]+)", ran.stderr)
        assert found and 0.2 < float(found[2]) < 0.35
        assert (await run_hermes(["config", "set", found[1], found[2]], home)).rc == 0
        ran = await run_hermes(["chat", "-q", "hi"], home)
        assert ran.rc == 0 and "threshold" not in ran.stderr
        checked = await run_hermes(["config", "check"], home)
        assert checked.rc == 0 and "no effect" not in checked.stdout


# -- titles ------------------------------------------------------------------------------------


async def test_a_title_only_where_a_model_is_set_for_it(tmp_path: Path) -> None:
    async with Provider([], then=say("hello")) as p, Provider([], then=say('"A greeting."')) as t:
        home = make_home(tmp_path, p, 64_000)
        assert (await run_hermes(["chat", "-q", "hi there"], home)).rc == 0
        assert len(p.requests) == 1
        name = {"provider": "custom", "model": "namer", "base_url": t.base_url}
        home.configure(auxiliary={"title": {**name, "api_key_env": "KIT_KEY"}})
        assert (await run_hermes(["chat", "-q", "hi there"], home)).rc == 0
        assert (await run_hermes(["chat", "-q", "again", "--continue"], home)).rc == 0
        assert len(t.requests) == 1, "after the first exchange"
        listed = await run_hermes(["sessions", "list"], home)
    titles = [line.split("  ")[-1].strip() for line in listed.stdout.splitlines()[1:]]
    assert titles == ["A greeting", "hi there"]
