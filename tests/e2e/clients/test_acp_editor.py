"""An editing task through `acpx`, a client of the Agent Client Protocol in Node."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.clients.client_run import Ran, install_node
from tests.kit import Home, Provider, call, say
from tests.kit.bodies import messages
from tests.kit.home import program

pytestmark = pytest.mark.e2e
PACKAGES = ("acpx@0.19", "node@22")


async def run_acpx(home: Home, *words: str) -> Ran:
    folder = install_node(PACKAGES) / "node_modules" / ".bin"
    command = [str(folder / "node"), str(folder / "acpx"), "--agent", " ".join([*program(), "acp"])]
    process = await asyncio.create_subprocess_exec(
        *command,
        *("--cwd", str(home.work), "--ttl", "60", "--timeout", "80"),
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
