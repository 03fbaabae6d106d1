"""Nothing of a subagent outlives a killed program, and what it did is told afterwards."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.kit import Home, Provider, Received, Reply, call, run_hermes, say, start_hermes
from tests.kit.bodies import messages
from tests.kit.processes import living

pytestmark = pytest.mark.e2e


async def test_a_kill_leaves_no_process_and_says_interrupted(tmp_path: Path) -> None:
    def step(request: Received) -> Reply:
        if messages(request)[0].text.startswith("goal"):
            return call(("t1", "terminal", {"command": "sleep 987651"}))
        tasks = [{"goal": "goal A"}, {"goal": "goal B"}]
        return call(("c1", "delegate_task", {"tasks": tasks}))

    async with Provider([], then=step) as provider:
        home = Home.of(tmp_path, provider)
        process = await start_hermes(["chat", "-q", "go", "--yolo"], home)
        async with asyncio.timeout(90):
            while len(living("987651")) < 2:
                await asyncio.sleep(0.05)
        process.kill()
        await process.wait()
        async with asyncio.timeout(90):
            while living("987651"):
                await asyncio.sleep(0.05)
        listed = (await run_hermes(["sessions", "list", "--json"], home)).json
        states = {row["source"]: row["state"] for row in listed}
        assert states.get("cli") == "interrupted"
        found = [row for row in listed if row["source"] == "subagent"]
        assert [row["state"] for row in found] == ["interrupted", "interrupted"], listed


async def test_a_single_prompt_gets_the_result_at_once(tmp_path: Path) -> None:
    steps = [
        call(("c1", "delegate_task", {"goal": "goal A", "background": True})),
        say("A is done"),
        say("all done"),
    ]
    async with Provider(steps) as provider:
        home = Home.of(tmp_path, provider)
        ran = await run_hermes(["chat", "-q", "go"], home)
        assert ran.stdout.strip() == "all done", ran.stderr
        assert "A is done" in provider.requests[-1].body.decode()
