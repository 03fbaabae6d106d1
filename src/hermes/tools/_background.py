"""The commands in the background that a session may see."""

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

SHOWN = 40_000
"""Bytes of new output a model is shown."""
_MOMENT = 0.8
_QUIET = 0.15
_BREATH = 0.03


def opened(ctx: ToolContext) -> tuple[BackgroundProcesses, ProcessOwner]:
    share = ctx.services.get(PROCESSES)
    if share is None:
        raise ToolError("Nothing can be left running here; nothing was done.")
    return share(ctx.session_id)


async def settled(processes: BackgroundProcesses, state: ProcessState, before: int) -> ProcessState:
    """What follows within a moment: until it has ended, or has said something (beyond these bytes)
    and is quiet."""
    from hermes.exec.process.background_records import count_output

    began = heard = time.monotonic()
    size = count_output(state.folder)
    while state.running and time.monotonic() - began < _MOMENT:
        state = await processes.wait(state, _BREATH)
        now = count_output(state.folder)
        if now != size:
            size, heard = now, time.monotonic()
        elif size != before and time.monotonic() - heard > _QUIET:
            break
    return state


def report(state: ProcessState, *, nothing: str = "(no new output)") -> str:
    """What it has written since it was last shown, and how it is."""
    from hermes.exec.process.background_records import take_new_output

    text = take_new_output(state, SHOWN).rstrip("\n") or nothing
    return f"{text}\n[{state.record.id} {state.describe(time.time())}]".lstrip("\n")


async def tidied(ctx: ToolContext) -> None:
    """Beside a command, now and then: files of old outputs are removed."""
    from hermes.exec.process.output_files import is_cleanup_due, remove_old_outputs

    if is_cleanup_due(ctx.workspace.outputs):
        await asyncio.to_thread(remove_old_outputs, ctx.workspace.outputs)
