"""Runs commands in a sandbox."""

import sys
from pathlib import Path

import pytest

from hermes.exec.process.local import CommandSpec, run_command
from hermes.exec.process.output_capture import OutputCapture
from hermes.exec.process.supervisor_client import CommandResult
from hermes.exec.sandbox import (
    SandboxPolicy,
    SandboxTier,
)

linux = pytest.mark.skipif(sys.platform != "linux", reason="sandboxes need Linux")
ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin"}


async def sh(
    text: str,
    policy: SandboxPolicy,
    tier: SandboxTier,
    *,
    timeout: float = 60,
    session: str = "",
    **env: str,
) -> tuple[CommandResult, str]:
    out = OutputCapture(20_000, policy.workspace.parent / "spill")
    command = CommandSpec(text, policy.workspace, ENV | env, timeout, policy, tier, session=session)
    try:
        return await run_command(command, out), out.text()
    finally:
        out.close()


def command_lines() -> str:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                found.append((folder / "cmdline").read_text(errors="replace"))
            except OSError:
                continue
    return "\n".join(found)
