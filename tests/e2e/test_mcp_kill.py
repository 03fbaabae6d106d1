"""Nothing of a server outlives Hermes: not after kill -9, not after many restarts."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from hermes.mcp.server_config import parse_server
from hermes.mcp.server_link import LinkSeams, ServerLink
from tests.flow.test_mcp import script
from tests.kit import Home, Provider, call, stall, start_hermes
from tests.kit.processes import living, naming, until

KILLS = int(os.environ.get("HERMES_MCP_KILLS", "2"))
RESTARTS = int(os.environ.get("HERMES_MCP_RESTARTS", "10"))
STUBBORN = """
import signal, subprocess
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
subprocess.Popen(["sleep", {mark!r}], start_new_session=True, stdin=subprocess.DEVNULL,
                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
def call(m):
    time.sleep(3600)
serve(call)
while True:
    time.sleep(3600)
"""


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc")
async def test_kill_9_leaves_no_process(tmp_path: Path, mark: str) -> None:
    entry = script(tmp_path, STUBBORN.format(mark=mark), f"mcp-{mark}")
    for _ in range(KILLS):
        steps = [
            call(("c1", "tool_search", {"query": "work"})),
            call(("c2", "tool_search", {"name": "mcp__s__work", "arguments": {}})),
            stall(),
        ]
        async with Provider(steps) as p:
            home = Home.of(tmp_path, p, mcp_servers={"s": entry})
            process = await start_hermes(["chat", "-q", "go"], home)
            await until(lambda: len(p.requests) >= 2 and living(mark))
            process.send_signal(signal.SIGKILL)
            await process.communicate()
            await until(lambda: not living(mark) and not naming(f"mcp-{mark}"))


async def test_restarts_leave_nothing_open(tmp_path: Path, mark: str) -> None:
    body = """
import subprocess
subprocess.Popen(["sleep", {mark!r}], start_new_session=True, stdin=subprocess.DEVNULL,
                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
serve(lambda m: os._exit(1))
"""
    entry = script(tmp_path, body.replace("{mark!r}", repr(mark)), f"mcp-{mark}")
    tasks: set[asyncio.Task[None]] = set()

    def spawn(work: object, name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)  # type: ignore[arg-type]
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return task

    async def skip(seconds: float) -> None:
        await asyncio.sleep(0)

    link = ServerLink(parse_server("s", entry), LinkSeams(tmp_path, lambda name: None, spawn, skip))
    open_files = 0
    for number in range(RESTARTS):
        await link.connect()
        assert len(naming(f"mcp-{mark}")) == 1  # the old one ended before this one began
        await link.close()
        assert not living(mark) and not naming(f"mcp-{mark}")
        if number == 2:
            open_files = len(os.listdir("/proc/self/fd"))
    assert len(os.listdir("/proc/self/fd")) <= open_files
    assert not tasks
