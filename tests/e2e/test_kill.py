"""kill -9 at random moments of whole turns: nothing acknowledged is lost, nothing done twice."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from hermes.core.message import Message, ToolCall, ToolReturn
from hermes.store.sqlite import SqliteStore
from tests.kit import Home, Provider, Received, Reply, call, run_hermes, say, start_hermes
from tests.kit.bodies import check_legal, messages

KILLS = int(os.environ.get("HERMES_KILLS", "150"))
SEED = int(os.environ.get("HERMES_KILL_SEED", str(random.randrange(10**6))))
LANES = 3
"""Homes that are killed side by side."""


@dataclass
class Lane:
    """One home with one long session, killed again and again. What the process said on stdout
    is what it acknowledged."""

    home: Home
    provider: Provider
    rng: random.Random
    number: int = 0
    prompts: list[str] = field(default_factory=list)
    """Prompts whose turn provably began: an event of theirs was shown."""
    finished: list[tuple[str, str]] = field(default_factory=list)
    """(prompt, answer) of turns whose result was shown."""
    tools: list[tuple[str, str]] = field(default_factory=list)
    """(call id, result) of calls shown as completed."""
    span: float = 0.6
    """About how long a turn takes, learned from whole ones."""

    def answer(self, request: Received) -> Reply:
        """A tool call for a new prompt, text once its result is there; all in small pieces."""
        seen = check_legal(request)
        last = seen[-1]
        prompt = _last_prompt(request)
        if last.results and not last.text:
            reply = say(f"answer to {prompt} ", "is: it was ", "appended, ", "all done.")
        else:
            command = f"echo {prompt} >> effects.log; echo ran {prompt}"
            reply = say("Now. ") + call((f"call_{prompt}", "terminal", {"command": command}))
        return reply.bytes_each(200).slow(0.002)

    async def turn(self, kill: bool) -> None:
        self.number += 1
        prompt = f"p{self.number}x"
        more = ["--continue"] if self.number > 1 else []
        args = ["chat", "--yolo", "-q", prompt, "--output", "stream-json", *more]
        begin = time.monotonic()
        process = await start_hermes(args, self.home)
        moment = self.rng.random() * self.span if kill else 60.0
        line = self.rng.randint(1, 9) if kill and self.rng.random() < 0.5 else 0
        if line:
            moment = 60.0
        timer = asyncio.get_running_loop().call_later(moment, _kill, process)
        out = await self.read(process, line)
        await process.wait()
        timer.cancel()
        if not kill:
            assert process.returncode == 0, out
            self.span = time.monotonic() - begin
        self.acknowledge(prompt, out)

    async def read(self, process: asyncio.subprocess.Process, last: int) -> str:
        """All output. With `last`, the process is killed the moment that line is read: whatever
        it says must be true already."""
        assert process.stdout is not None
        lines: list[bytes] = []
        while line := await process.stdout.readline():
            lines.append(line)
            if len(lines) == last:
                _kill(process)
        return b"".join(lines).decode()

    def acknowledge(self, prompt: str, out: str) -> None:
        lines = out.split("\n")
        events = [json.loads(line) for line in lines[:-1]]
        if events:
            self.prompts.append(prompt)
        for event in events:
            if event["type"] == "tool.completed":
                self.tools.append((event["id"], event["result"]))
            if event["type"] == "result" and event["completed"]:
                self.finished.append((prompt, event["text"]))

    async def check(self) -> None:
        store = SqliteStore(next(self.home.path.glob("*.db")))
        try:
            assert not await store.maintenance.check_integrity(), "the database is damaged"
            (session,) = await store.sessions.list_recent()
            stored = await store.sessions.load_messages(session.id)
        finally:
            await store.close()
        self.compare(stored)

    def compare(self, stored: list[Message]) -> None:
        users = [m.text for m in stored if m.role == "user"]
        assert len(users) == len(set(users)), "a prompt is stored twice"
        lost = [p for p in self.prompts if p not in users]
        assert not lost, f"acknowledged prompts are lost: {lost}"
        texts = [m.text for m in stored if m.role == "assistant"]
        for prompt, answer in self.finished:
            assert texts.count(answer) == 1, f"the answer to {prompt}: {texts.count(answer)} times"
        calls = [p.id for m in stored for p in m.parts if isinstance(p, ToolCall)]
        assert len(calls) == len(set(calls)), "a call is stored twice"
        results = {p.call_id: p.text for m in stored for p in m.parts if isinstance(p, ToolReturn)}
        for id, result in self.tools:
            assert results.get(id) == result, f"an acknowledged result is lost: {id}"
        log = self.home.work / "effects.log"
        effects = log.read_text().split() if log.exists() else []
        assert len(effects) == len(set(effects)), "a command ran twice"
        for effect in effects:
            assert f"call_{effect}" in calls, f"{effect} ran before its call was stored"


def _kill(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()


def _last_prompt(request: Received) -> str:
    words = [w for m in messages(request) if m.role == "user" for w in m.text.split()]
    return [w for w in words if w.startswith("p") and w.endswith("x")][-1]


async def run_lane(root: Path, seed: int, kills: int) -> dict[str, Any]:
    root.mkdir()
    rng = random.Random(seed)
    async with Provider() as provider:
        lane = Lane(Home.of(root, provider), provider, rng)
        provider.then = lane.answer
        await lane.turn(kill=False)
        for n in range(kills):
            await lane.turn(kill=True)
            if n % 10 == 9:
                await lane.check()
        await lane.turn(kill=False)
        await lane.check()
        listed = await run_hermes(["sessions", "list"], lane.home)
        assert listed.rc == 0 and "interrupted" not in listed.stdout
        return {
            "turns": lane.number,
            "begun": len(lane.prompts),
            "finished": len(lane.finished),
            "tools": len(lane.tools),
        }


@pytest.mark.timeout(120 + KILLS)
async def test_R1_kill_9_at_random_moments_loses_nothing(tmp_path: Path) -> None:
    """Replay with HERMES_KILL_SEED=... ; HERMES_KILLS=10000 for the long run."""
    print(f"seed {SEED}: HERMES_KILL_SEED={SEED} pytest {Path(__file__).name}")
    done = await asyncio.gather(
        *(run_lane(tmp_path / f"lane{i}", SEED + i, KILLS // LANES) for i in range(LANES))
    )
    print(done)
    killed = sum(d["turns"] - d["finished"] for d in done)
    assert killed > KILLS // 4, f"most turns finished before they were killed: {done}"
    assert sum(d["begun"] for d in done) > killed // 8, f"killed too early: {done}"
