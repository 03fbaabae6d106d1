"""Manages commands that `terminal` left running in the background."""

from __future__ import annotations

import asyncio
import re
import time
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta, Struct, structs

from hermes.core.errors import ToolError
from hermes.core.taint import BOTH
from hermes.core.tool import Tool, ToolContext, ToolResult, tool
from hermes.tools._background import (
    MAX_SHOWN_BYTES,
    report_output,
    require_processes,
    wait_until_quiet,
)
from hermes.tools._remote import end_client

if TYPE_CHECKING:
    from hermes.exec.process.background_records import ProcessState

MAX_TIMEOUT = 3600.0
DEFAULT_LINES = 200
_SHELLS = "sh|bash|dash|zsh|ksh|mksh|ash|fish|rbash|csh|tcsh"
_REMOTE_PROGRAMS = "ssh|mosh|telnet|nc|ncat|netcat|socat|su|sudo|doas|tmux|screen|script|expect|adb"
_CONTAINERS = "docker|podman|kubectl|nerdctl|lxc|nsenter|chroot|unshare|busybox"
_RUNS_A_SHELL = rf"""(?mx) (?:^|[\s;|&(){{}}'"`/!])
    (?: (?:{_SHELLS}) (?:\s+[-+](?!c\b)[\w-]*)* \s* (?=$|[;|&()}}'"`\n<>])
      | (?:{_REMOTE_PROGRAMS}|{_CONTAINERS}) (?=$|[\s;|&()}}'"`<>]) )"""
"""A shell without a script, or a program that may lead to one: its input is commands."""
_CONTROL_KEYS = r"[\x03\x04\x1a\x1c]+"
"""Only Ctrl-C, Ctrl-D, Ctrl-Z and Ctrl-\\, which end programs and start nothing."""
_MAX_ENDED_LISTED = 20


class Params(Struct, frozen=True):
    action: Literal["list", "poll", "log", "wait", "kill", "write"]
    id: str | None = None
    data: Annotated[str | None, Meta(description="to write; \\u0003: Ctrl-C")] = None
    enter: bool = True
    close: Annotated[bool | None, Meta(description="stdin")] = None
    timeout: float | None = None
    offset: Annotated[int | None, Meta(description="line of log")] = None
    limit: int | None = None


class ProcessInput(Struct, frozen=True):
    """Input to be approved: everything typed so far, and the new text."""

    command: str
    workdir: str
    confined: bool
    """Whether the process is confined, whatever the session is now."""
    shell: bool
    """Whether the process reads commands."""


@tool(
    "Background processes: poll gives new output; log all, by lines, the last ones unless offset; "
    "write goes to stdin.",
    risk="exec",
    sends=False,
    asks_itself=True,  # input is approved once the process is known: see _require_approval
    key=lambda p, _: f"process {p.id}" if p.id else None,
    timeout=MAX_TIMEOUT + 10,
)
async def process(p: Params, ctx: ToolContext) -> ToolResult:
    processes, owner = require_processes(ctx)
    if p.action == "list":
        return ToolResult(_format_list(processes.list_all(owner)))
    state = processes.find_process((p.id or "").strip(), owner)
    match p.action:
        case "log":
            limit = DEFAULT_LINES if p.limit is None else p.limit
            return ToolResult(await asyncio.to_thread(_read_log_page, state, p.offset, limit))
        case "wait":
            state = await processes.wait(state, _choose_timeout(p, ctx))
        case "kill":
            if not state.alive:
                ended = f"{state.record.id} had already ended; nothing was killed."
                return _build_result(state, ended)
            await end_client(ctx, state.record.id)
            state = await processes.kill(state)
        case "write":
            return await _write_input(p, ctx, state)
    return _build_result(state)


def _build_result(state: ProcessState, placeholder: str = "(no new output)") -> ToolResult:
    data = {"running": state.running, "exit_status": state.end.status if state.end else None}
    return ToolResult(report_output(state, placeholder=placeholder), data=data)


def _choose_timeout(p: Params, ctx: ToolContext) -> float:
    seconds = ctx.workspace.terminal_timeout if p.timeout is None else p.timeout
    if seconds < 0:
        raise ToolError("timeout must not be negative.")
    return min(seconds, MAX_TIMEOUT)


def _format_list(states: list[ProcessState]) -> str:
    from hermes.exec.process.background_records import count_output

    now = time.time()
    rows = []
    recent = {s.record.id for s in [s for s in states if not s.alive][-_MAX_ENDED_LISTED:]}
    for state in [s for s in states if s.alive or s.record.id in recent]:
        command = " ".join(state.record.command.split())
        command = command if len(command) <= 120 else command[:119] + "…"
        size = count_output(state.folder)
        rows.append(f"{state.record.id}  {state.describe(now)}; {size} bytes of output: {command}")
    return "\n".join(rows) or "No background process was started."


def _read_log_page(state: ProcessState, offset: int | None, limit: int) -> str:
    """Whole lines of the log, as many as fit."""
    from hermes.exec.process.background_records import read_log

    if limit < 1:
        raise ToolError("limit must be at least 1.")
    lines = read_log(state.folder).splitlines()
    if not lines:
        return f"(no output)\n[{state.record.id} {state.describe(time.time())}]"
    if offset is None:
        first = max(len(lines) - limit, 0)
    else:
        first = max(len(lines) + offset, 0) if offset < 0 else max(offset - 1, 0)
    if first >= len(lines):
        raise ToolError(f"There is no line {first + 1}: the log has {len(lines)} lines.")
    shown, size = lines[first : first + limit], 0
    for count, line in enumerate(shown):
        size += len(line) + 1
        if size > MAX_SHOWN_BYTES and count:
            shown = shown[:count]
            break
    last = first + len(shown)
    more = f"; continue with offset={last + 1}" if last < len(lines) else ""
    where = f"lines {first + 1}-{last} of {len(lines)}{more}"
    text = "\n".join(line[:MAX_SHOWN_BYTES] for line in shown)
    return f"{text}\n[{state.record.id} {state.describe(time.time())}; {where}]"


async def _write_input(p: Params, ctx: ToolContext, state: ProcessState) -> ToolResult:
    from hermes.exec.process.background_records import count_output

    text = p.data or ""
    keys = bool(re.fullmatch(_CONTROL_KEYS, text))
    if p.enter and (text or not p.close) and not keys and not text.endswith(("\n", "\r")):
        text += "\n"
    if not text and not p.close:
        raise ToolError("There is nothing to write; give data, enter or close.")
    if state.running:
        if not keys:
            await _require_approval(text, ctx, state)
        if state.record.pty:
            text = text.replace("\r\n", "\r").replace("\n", "\r")
    processes, _ = require_processes(ctx)
    before = count_output(state.folder)
    pending = await processes.write(state, text, close=bool(p.close))
    result = _build_result(await wait_until_quiet(processes, state, before))
    if not pending:
        return result
    note = f"\n[{pending} bytes of the input have not been read yet]"
    return structs.replace(result, content=f"{result.content}{note}")


async def _require_approval(text: str, ctx: ToolContext, state: ProcessState) -> None:
    """Raise ToolError unless the input is approved: it is as dangerous as a command."""
    from hermes.exec.process.background_records import read_typed

    record = state.record
    shell = bool(re.search(_RUNS_A_SHELL, record.command))
    before = read_typed(state.folder) if shell else ""
    if before is None:  # too long to analyse: unconfined processes then need approval
        shell, before = record.confined, ""
    script = re.sub(_CONTROL_KEYS, "\n", before.replace("\r", "\n")) + text
    verdict = await ctx.user.approve(
        ctx.call, PROCESS_INPUT, ProcessInput(script, record.cwd, record.confined, shell), ()
    )
    reason = verdict.reason
    if verdict.allowed and record.online and verdict.changes and not verdict.network:
        reason = f"{record.id} has network access, which was not approved for this input"
    elif verdict.allowed:
        return
    raise ToolError(
        f"Not written: {reason or 'it was not approved'}. Do not try another way; tell the "
        "user what you wanted to do and why."
    )


async def _refuse_call(p: ProcessInput, ctx: ToolContext) -> ToolResult:
    raise ToolError("This tool cannot be called; use process with action write.")


PROCESS_INPUT: Tool[ProcessInput] = Tool(
    "process",
    "Types into a process.",
    ProcessInput,
    _refuse_call,
    risk="exec",
    brings=BOTH,
    sends=True,
)
