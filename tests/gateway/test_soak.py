"""Many conversations with many turns: memory stays, nothing is left open, and nothing hangs.

The long form: HERMES_GATEWAY_SOAK_PEOPLE=200 HERMES_GATEWAY_SOAK_TURNS=20. It also judges how long
the event loop was held up.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.gateway import stall_meter
from tests.gateway.gateways import GatewayProcess, gateway
from tests.kit import say

PEOPLE = int(os.environ.get("HERMES_GATEWAY_SOAK_PEOPLE", "20"))
TURNS = int(os.environ.get("HERMES_GATEWAY_SOAK_TURNS", "8"))
AT_ONCE = 8
GROWTH_MB = 10
LONGEST_STALL_MS = 100
FULL_PEOPLE = 200

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300 + PEOPLE * TURNS)]


class Use:
    """What a process holds."""

    def __init__(self, pid: int) -> None:
        folder = Path(f"/proc/{pid}")
        status = (folder / "status").read_text()
        self.memory = int(status.partition("VmRSS:")[2].split()[0]) / 1024
        self.threads = int(status.partition("Threads:")[2].split()[0])
        self.files = len(list((folder / "fd").iterdir()))
        tasks = (folder / "task").iterdir()
        self.children = [pid for t in tasks for pid in (t / "children").read_text().split()]


def has_answers(g: GatewayProcess, user: int, answers: int) -> bool:
    return len(g.telegram.texts(user)) >= answers


async def take_turns(g: GatewayProcess, people: list[int], turns: int) -> None:
    """Each person writes so often, every time when the answer before has come."""

    async def converse(user: int) -> None:
        for _ in range(turns):
            answers = len(g.telegram.texts(user)) + 1
            await g.telegram.say("hi", user=user)
            await g.telegram.until(partial(has_answers, g, user, answers))

    for first in range(0, len(people), AT_ONCE):
        await asyncio.gather(*map(converse, people[first : first + AT_ONCE]))


async def until_at_rest(file: Path, tasks: int) -> dict[str, Any]:
    """The last report, once the process has no more tasks than that."""
    async with asyncio.timeout(90):
        while True:
            report: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
            if report and report["tasks"] <= tasks:
                return report
            await asyncio.sleep(0.1)


async def test_memory_files_threads_tasks_and_children_stay(tmp_path: Path) -> None:
    people = list(range(2000, 2000 + PEOPLE))
    platform = {"allow_all_users": True}
    report = tmp_path / "report.json"
    async with gateway(tmp_path, then=say("hello"), platform=platform, start=False) as g:
        g.command = (sys.executable, stall_meter.__file__, str(report))
        await g.start()
        report.unlink(missing_ok=True)  # what it says is of the start
        idle = (await until_at_rest(report, 1000))["tasks"]
        await take_turns(g, people, 2)
        before = Use(g.process.pid)
        await take_turns(g, people, TURNS)
        after = Use(g.process.pid)
        found = await until_at_rest(report, idle + AT_ONCE)
        print(
            f"{before.memory:.1f} -> {after.memory:.1f} MB, {before.files} -> {after.files} files, "
            f"{before.threads} -> {after.threads} threads, {idle} -> {found['tasks']} tasks; "
            f"p99.9 of stalls: {found['late']:.1f} ms, {found['own']:.1f} ms of them its own work"
        )
        assert after.memory - before.memory < GROWTH_MB
        assert after.files <= before.files + AT_ONCE, "connections are reused"
        assert after.threads <= before.threads + 1
        assert after.children == before.children
        if PEOPLE >= FULL_PEOPLE:
            assert found["own"] < LONGEST_STALL_MS
        assert await g.stop() == 0
