"""An editing task through `acpx`, a client of the Agent Client Protocol in Node."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.clients.client_run import Ran, install_node
from tests.kit import Gate, Home, Provider, call, say
from tests.kit.bodies import messages
from tests.kit.home import program
from tests.kit.processes import command_lines, until

pytestmark = pytest.mark.e2e
PACKAGES = ("acpx@0.19", "node@22")


async def run_acpx(home: Home, *words: str, idle: str = "60") -> Ran:
    """`idle`: the seconds for which it keeps the agent running without a prompt."""
    folder = install_node(PACKAGES) / "node_modules" / ".bin"
    command = [str(folder / "node"), str(folder / "acpx"), "--agent", " ".join([*program(), "acp"])]
    process = await asyncio.create_subprocess_exec(
        *command,
        *("--cwd", str(home.work), "--ttl", idle, "--timeout", "80"),
        *words,
        env=home.env,
        cwd=home.work,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, error = await asyncio.wait_for(process.communicate(), 90)
    return Ran(process.returncode or 0, out.decode(), error.decode())


def edit_outside(root: Path) -> list[Any]:
    return [
        call(("c1", "read_file", {"path": "a.txt"})),
        call(("c2", "write_file", {"path": "b.txt", "content": "inside\n"})),
        call(("c3", "write_file", {"path": str(root / "out.txt"), "content": "outside\n"})),
        say("The task is done."),
    ]


@pytest.mark.parametrize(("policy", "written"), [("--approve-all", True), ("--deny-all", False)])
async def test_a_task_with_a_permission(tmp_path: Path, policy: str, written: bool) -> None:
    async with Provider(edit_outside(tmp_path)) as provider:
        home = Home.of(tmp_path, provider)
        (home.work / "a.txt").write_text("text\n")
        ran = await run_acpx(home, policy, "exec", "do the task")
        assert "The task is done." in ran.out, ran.told
        assert (home.work / "b.txt").read_text() == "inside\n"
        assert (tmp_path / "out.txt").exists() == written


async def test_a_session_goes_on_in_another_mode(tmp_path: Path) -> None:
    write = call(("c1", "write_file", {"path": "b.txt", "content": "x\n"}))
    async with Provider([say("first"), write, say("second")]) as provider:
        home = Home.of(tmp_path, provider)
        made = await run_acpx(home, "sessions", "new")
        assert made.status == 0, made.told
        try:
            assert "first" in (await run_acpx(home, "prompt", "one")).out
            changed = await run_acpx(home, "set-mode", "read_only")
            assert changed.status == 0, changed.told
            ran = await run_acpx(home, "--approve-all", "prompt", "two")
            assert "second" in ran.out, ran.told
        finally:
            await run_acpx(home, "sessions", "close")
        said = [m.text for m in messages(provider.requests[-1]) if m.role == "user"]
        assert said == ["one", "two"]
        assert not (home.work / "b.txt").exists()


def list_agents(home: Home) -> list[int]:
    """The processes of this home."""
    found = []
    for pid, _ in command_lines():
        with suppress(OSError):
            if f"HERMES_HOME={home.path}\0".encode() in Path(f"/proc/{pid}/environ").read_bytes():
                found.append(pid)
    return found


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc")
async def test_an_old_session_goes_on_in_a_new_process_and_is_cancelled(tmp_path: Path) -> None:
    gate = Gate()
    steps = [say("first"), say("second"), say("begin ").hold(gate, after="text"), say("last")]
    async with Provider(steps) as provider:
        home = Home.of(tmp_path, provider)
        await run_acpx(home, "sessions", "new", idle="1")
        assert "first" in (await run_acpx(home, "prompt", "one", idle="1")).out
        await until(lambda: not list_agents(home))
        try:
            ran = await run_acpx(home, "prompt", "two")
            assert "second" in ran.out, ran.told
            said = [m.text for m in messages(provider.requests[-1]) if m.role == "user"]
            assert said == ["one", "two"]
            prompt = asyncio.create_task(run_acpx(home, "prompt", "three"))
            await gate.reached()
            assert "cancel requested" in (await run_acpx(home, "cancel")).out
            assert "[done] cancelled" in (await prompt).out
            gate.open()
            assert "last" in (await run_acpx(home, "prompt", "four")).out
        finally:
            await run_acpx(home, "sessions", "close")
