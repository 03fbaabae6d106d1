"""Access of a session's tools to its background commands."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from hermes.core.errors import ToolError
from hermes.core.tool import ToolContext
from hermes.tools._services import PROCESSES

if TYPE_CHECKING:
    from hermes.exec.process.background import BackgroundProcesses, ProcessOwner
    from hermes.exec.process.background_records import ProcessState

MAX_SHOWN_BYTES = 40_000
"""Bytes of new output that a model is shown."""
_SETTLE_SECONDS = 0.8
_QUIET_SECONDS = 0.15
_POLL_SECONDS = 0.03


def require_processes(ctx: ToolContext) -> tuple[BackgroundProcesses, ProcessOwner]:
    share = ctx.services.get(PROCESSES)
    if share is None:
        raise ToolError("This session cannot run background commands; nothing was done.")
    return share(ctx.session_id)


async def wait_until_quiet(
    processes: BackgroundProcesses, state: ProcessState, known_bytes: int
) -> ProcessState:
    """Wait briefly: until the command has ended, or has printed more than `known_bytes` and then
    nothing for a while."""
    from hermes.exec.process.background_records import count_output

    started = last_output = time.monotonic()
    size = count_output(state.folder)
    while state.running and time.monotonic() - started < _SETTLE_SECONDS:
        state = await processes.wait(state, _POLL_SECONDS)
        now = count_output(state.folder)
        if now != size:
            size, last_output = now, time.monotonic()
        elif size != known_bytes and time.monotonic() - last_output > _QUIET_SECONDS:
            break
    return state


def report_output(state: ProcessState, *, placeholder: str = "(no new output)") -> str:
    """The output since the last report, and the state of the command."""
    from hermes.exec.process.background_records import take_new_output

    text = take_new_output(state, MAX_SHOWN_BYTES).rstrip("\n") or placeholder
    return f"{text}\n[{state.record.id} {state.describe(time.time())}]".lstrip("\n")


async def clean_up_outputs(ctx: ToolContext) -> None:
    """Remove the files of old outputs, when that is due."""
    from hermes.exec.process.output_files import is_cleanup_due, remove_old_outputs

    if is_cleanup_due(ctx.workspace.outputs):
        await asyncio.to_thread(remove_old_outputs, ctx.workspace.outputs)
