"""Looks after commands that `terminal` left running in the background."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta, Struct, structs

from hermes.core.errors import ToolError
from hermes.core.taint import BOTH
from hermes.core.tool import Tool, ToolContext, ToolResult, tool
from hermes.tools._background import SHOWN, opened, report, settled
from hermes.tools._remote import end_client

if TYPE_CHECKING:
    from hermes.exec.process.background_records import ProcessState

MAX_TIMEOUT = 3600.0
LINES = 200
_SHELLS = "sh|bash|dash|zsh|ksh|mksh|ash|fish|rbash|csh|tcsh"
_ELSEWHERE = "ssh|mosh|telnet|nc|ncat|netcat|socat|su|sudo|doas|tmux|screen|script|expect|adb"
_CONTAINERS = "docker|podman|kubectl|nerdctl|lxc|nsenter|chroot|unshare|busybox"
_RUNS_A_SHELL = rf"""(?mx) (?:^|[\s;|&(){{}}'"`/!])
    (?: (?:{_SHELLS}) (?:\s+[-+](?!c\b)[\w-]*)* \s* (?=$|[;|&()}}'"`\n<>])
      | (?:{_ELSEWHERE}|{_CONTAINERS}) (?=$|[\s;|&()}}'"`<>]) )"""
"""A shell without a script, or a program that may lead to one: what is typed is a command."""
_KEYS = r"[\x03\x04\x1a\x1c]+"
"""Nothing but Ctrl-C, Ctrl-D, Ctrl-Z and Ctrl-\\: they end, and start nothing."""
_ENDED_SHOWN = 20


class Params(Struct, frozen=True):
    action: Literal["list", "poll", "log", "wait", "kill", "write"]
    id: str | None = None
    data: Annotated[str | None, Meta(description="to write; \\u0003: Ctrl-C")] = None
    enter: bool = True
    close: Annotated[bool | None, Meta(description="stdin")] = None
    timeout: float | None = None
    offset: Annotated[int | None, Meta(description="line of log")] = None
    limit: int | None = None


class Typed(Struct, frozen=True):
    """What is judged before something is written: all that was typed so far, and this."""

    command: str
    workdir: str
    confined: bool
    """Whether the process is, whatever the session is now."""
    shell: bool
    """Whether what it reads are commands."""


def _key(p: Params, cwd: Path) -> str | None:
    return f"process {p.id}" if p.id else None


@tool(
    "Background processes: poll gives new output; log all, by lines, the last ones unless offset; "
    "write goes to stdin.",
    risk="exec",
    sends=False,
    asks_itself=True,  # what is written is judged once it is known into what: see _allowed
    key=_key,
    timeout=MAX_TIMEOUT + 10,
)
async def process(p: Params, ctx: ToolContext) -> ToolResult:
    processes, owner = opened(ctx)
    if p.action == "list":
        return ToolResult(_listed(processes.list_all(owner)))
    state = processes.find_process((p.id or "").strip(), owner)
    match p.action:
        case "log":
            return ToolResult(
                await asyncio.to_thread(
                    _page, state, p.offset, LINES if p.limit is None else p.limit
                )
            )
        case "wait":
            state = await processes.wait(state, _seconds(p, ctx))
        case "kill":
            if not state.alive:
                return _told(state, f"{state.record.id} had ended before; nothing was killed.")
            await end_client(ctx, state.record.id)
            state = await processes.kill(state)
        case "write":
            return await _write(p, ctx, state)
    return _told(state)


def _told(state: ProcessState, nothing: str = "(no new output)") -> ToolResult:
    end = state.end
    return ToolResult(
        report(state, nothing=nothing),
        data={"running": state.running, "exit_status": end.status if end else None},
    )


def _seconds(p: Params, ctx: ToolContext) -> float:
    seconds = ctx.workspace.terminal_timeout if p.timeout is None else p.timeout
    if seconds < 0:
        raise ToolError("timeout must not be negative.")
    return min(seconds, MAX_TIMEOUT)


def _listed(states: list[ProcessState]) -> str:
    from hermes.exec.process.background_records import count_output

    now = time.time()
    rows = []
    recent = {s.record.id for s in [s for s in states if not s.alive][-_ENDED_SHOWN:]}
    for state in [s for s in states if s.alive or s.record.id in recent]:
        command = " ".join(state.record.command.split())
        command = command if len(command) <= 120 else command[:119] + "…"
        size = count_output(state.folder)
        rows.append(f"{state.record.id}  {state.describe(now)}; {size} bytes of output: {command}")
    return "\n".join(rows) or "No background process was started."


def _page(state: ProcessState, offset: int | None, limit: int) -> str:
    """Whole lines, as many as there is room for."""
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
        raise ToolError(f"There is no line {first + 1}: the log has {len(lines)}.")
    shown, size = lines[first : first + limit], 0
    for count, line in enumerate(shown):
        size += len(line) + 1
        if size > SHOWN and count:
            shown = shown[:count]
            break
    last = first + len(shown)
    more = f"; go on with offset={last + 1}" if last < len(lines) else ""
    where = f"lines {first + 1}-{last} of {len(lines)}{more}"
    text = "\n".join(line[:SHOWN] for line in shown)
    return f"{text}\n[{state.record.id} {state.describe(time.time())}; {where}]"


async def _write(p: Params, ctx: ToolContext, state: ProcessState) -> ToolResult:
    from hermes.exec.process.background_records import count_output

    text = p.data or ""
    keys = bool(re.fullmatch(_KEYS, text))
    if text and p.enter and not keys and not text.endswith(("\n", "\r")):
        text += "\n"
    if not text and not p.close:
        text = "\n" if p.enter else ""
    if not text and not p.close:
        raise ToolError("There is nothing to write: give data, enter or close.")
    if state.running:
        if not keys:
            await _allowed(text, ctx, state)
        if state.record.pty:
            text = text.replace("\r\n", "\r").replace("\n", "\r")
    processes, _ = opened(ctx)
    before = count_output(state.folder)
    pending = await processes.write(state, text, close=bool(p.close))
    result = _told(await settled(processes, state, before))
    if not pending:
        return result
    note = f"\n[{pending} bytes of it have not been read yet]"
    return structs.replace(result, content=f"{result.content}{note}")


async def _allowed(text: str, ctx: ToolContext, state: ProcessState) -> None:
    """What is typed is as dangerous as a command: the same people and rules decide about it."""
    from hermes.exec.process.background_records import read_typed

    record = state.record
    shell = bool(re.search(_RUNS_A_SHELL, record.command))
    before = read_typed(state.folder) if shell else ""
    if before is None:  # too much to judge with it; what nothing confines is asked about then
        shell, before = record.confined, ""
    script = re.sub(_KEYS, "\n", before.replace("\r", "\n")) + text
    verdict = await ctx.user.approve(
        ctx.call, TYPING, Typed(script, record.cwd, record.confined, shell), ()
    )
    reason = verdict.reason
    if verdict.allowed and record.online and verdict.changes and not verdict.network:
        reason = f"{record.id} has the network, which nobody allowed for this"
    elif verdict.allowed:
        return
    raise ToolError(
        f"Not written: {reason or 'it was not approved'}. Do not try to get around that; say what "
        "you wanted to do and why."
    )


async def _nothing(p: Typed, ctx: ToolContext) -> ToolResult:
    raise ToolError("This is no tool of its own.")


TYPING: Tool[Typed] = Tool(
    "process", "Types into a process.", Typed, _nothing, risk="exec", brings=BOTH, sends=True
)
