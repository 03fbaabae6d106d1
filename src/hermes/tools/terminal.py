"""Runs one shell command, and waits for it or leaves it running in the background."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct, structs

from hermes.core.errors import ToolError
from hermes.core.escalation import Escalation
from hermes.core.tool import ToolContext, ToolResult, tool
from hermes.tools._background import (
    clean_up_outputs,
    report_output,
    require_processes,
    wait_until_quiet,
)
from hermes.tools._git_commit import run_with_git_overlay
from hermes.tools._remote import remember_client, require_confinement, resolve_folder
from hermes.tools._sandbox_policy import policy
from hermes.tools._services import BACKEND, REFUSED_HOSTS
from hermes.tools._walls import explain_walls

if TYPE_CHECKING:
    from hermes.exec.process.local import CommandSpec
    from hermes.exec.sandbox import SandboxPolicy, SandboxTier

LIMIT = 40_000
"""Bytes of output a model is shown."""
MAX_TIMEOUT = 3600.0
_PROGRESS_EVERY = 0.2
_LONGEST_LINE = 4000
_NO_EDITOR = (
    "echo 'No editor can be opened here, because nobody can type into this command. Give the text "
    "in the command (git commit -m), name a program in GIT_EDITOR or GIT_SEQUENCE_EDITOR, or use "
    "pty with background, and process to type.' >&2; false"
)
"""What programs run where they would wait for a person who edits a file."""
_EDITS = re.compile(
    r"\s*(?:vi|vim|nvim|nano|pico|emacs|micro|mcedit)(?:\s+[^\s|;&<>+-][^\s|;&<>]*)*\s*"
)
"""An editor with files and no options: it would wait for keys until the time is over."""


class Params(Struct, frozen=True):
    command: str
    timeout: Annotated[float | None, Meta(description="seconds")] = None
    workdir: str | None = None
    background: Annotated[bool | None, Meta(description="do not wait; see process")] = None
    pty: bool | None = None
    escalate: Escalation | None = None


@tool(
    "Run a bash command and wait for it. No stdin. Returns stdout and stderr together, and the "
    "exit status unless 0.",
    risk="exec",
    exclusive=True,
    timeout=MAX_TIMEOUT + 10,
)
async def terminal(p: Params, ctx: ToolContext) -> ToolResult:
    from hermes.config.paths import cache_folder
    from hermes.exec.process.local import CommandSpec
    from hermes.exec.sandbox.network import OFFLINE_ENVIRONMENT
    from hermes.exec.sandbox_probe import probe_tier

    timeout = min(ctx.workspace.terminal_timeout if p.timeout is None else p.timeout, MAX_TIMEOUT)
    if timeout <= 0:
        raise ToolError("timeout must be more than 0 seconds.")
    if not (p.pty or p.background) and _EDITS.fullmatch(p.command):
        raise ToolError(
            "An editor needs a terminal, and nobody can type into this command; nothing was run. "
            "Change files with write_file or patch, or use pty with background and process."
        )
    if backend := ctx.services.get(BACKEND):
        await require_confinement(ctx, backend)
        folder, walls, tier = resolve_folder(p.workdir, backend), None, None
    else:
        walls = await policy(ctx)
        tier = await probe_tier(cache_folder(ctx.workspace.home)) if walls else None
        folder = _choose_folder(p.workdir, ctx.workspace.cwd, walls, tier)
    env = ctx.workspace.child_env
    if walls is not None and not walls.network:
        env = OFFLINE_ENVIRONMENT | env
    if not p.pty and backend is None:
        env = env | _forbid_editors(p.command)
    session = ctx.session_id if walls else ""
    command = CommandSpec(
        p.command, folder, env, timeout, walls, tier, pty=bool(p.pty), session=session
    )
    await clean_up_outputs(ctx)
    if p.background:
        return await _leave_running(command, p, ctx)
    if ctx.verdict.commits and walls is not None and walls.mode == "workspace-write":
        return await run_with_git_overlay(command, ctx, _see_through)
    return await _see_through(command, ctx)


async def _leave_running(command: CommandSpec, p: Params, ctx: ToolContext) -> ToolResult:
    processes, owner = require_processes(ctx)
    if backend := ctx.services.get(BACKEND):
        confined = await backend.is_confined()
        client = await backend.build_client(command)
        state = await processes.start(client, owner, confined=confined, stands_for=command)
        remember_client(ctx, state.record.id, client)
    else:
        confined = command.tier is not None and command.tier.level < 3
        state = await processes.start(command, owner, confined=confined)
    state = await wait_until_quiet(processes, state, 0)
    if state.end and state.end.why == "sandbox":
        raise ToolError(f"The sandbox cannot be used. Nothing was run. {report_output(state)}")
    name = state.record.id
    notes = []
    if state.running:
        notes.append(f"[in the background as {name}: process (poll, log, wait, write, kill)]")
    if p.timeout is not None:
        notes.append("[timeout does not count in the background]")
    return ToolResult(
        "\n".join([report_output(state, placeholder=""), *notes]),
        data={"process": name, "exit_status": state.end.status if state.end else None},
    )


async def _see_through(command: CommandSpec, ctx: ToolContext) -> ToolResult:
    from hermes.exec.process.local import run_command
    from hermes.exec.process.output_capture import OutputCapture

    if command.pty:  # a pager would wait for keys that nobody presses
        quiet = {"PAGER": "cat", "GIT_PAGER": "cat", **command.env}
        command = structs.replace(command, env=quiet)
    output = OutputCapture(
        LIMIT, ctx.workspace.outputs, name=ctx.output_prefix, watch=_watcher(ctx.progress)
    )
    start = time.monotonic()
    try:
        backend = ctx.services.get(BACKEND)
        outcome = await (backend.run if backend else run_command)(command, output)
    finally:
        output.close()
    text = output.text().rstrip("\n")
    notes = []
    if outcome.status is None:
        notes.append(f"[timed out after {command.timeout:g} s (killed)]")
    elif outcome.status:
        notes.append(_ending(outcome.status))
    if any(outcome.limit_hits):
        from hermes.exec.sandbox.limits import describe_hits

        notes += describe_hits(outcome.limit_hits)
    if command.tier is not None and command.tier.level < 3:
        refused = [r for r in ctx.services.get(REFUSED_HOSTS) or () if r.at >= start]
        notes += explain_walls(
            text, command, ctx.workspace.home, refused, outcome.refused, failed=outcome.status != 0
        )
    if outcome.stopped:
        notes.append(
            f"[{outcome.stopped} process(es) that it had started were ended with it; to keep a "
            "server running: background: true]"
        )
    if outcome.left:
        notes.append(f"[{outcome.left} background process(es) still running until this agent ends]")
    return ToolResult(
        "\n".join([text, *notes] if text else notes) or "(no output)",
        data={"exit_status": outcome.status, "bytes": output.size, "notes": len(notes)},
        error=outcome.status is None,
    )


def _forbid_editors(command: str) -> dict[str, str]:
    """Those that win over an editor which the command itself names are left alone."""
    named = any(word in command for word in ("core.editor", "EDITOR=", "VISUAL="))
    names = ("EDITOR",) if named else ("EDITOR", "VISUAL", "GIT_EDITOR")
    return dict.fromkeys(names, _NO_EDITOR)


def _choose_folder(
    workdir: str | None, cwd: Path, walls: SandboxPolicy | None, tier: SandboxTier | None
) -> Path:
    """Where to run; raises ToolError if that is not possible."""
    if walls and tier and tier.level == 1:
        inside = Path(os.path.normpath(cwd / (workdir or "")))
        if inside.is_relative_to("/tmp") and not walls.allows_reading(inside):
            return inside  # in the session's own /tmp, which we cannot see
    folder = _folder(workdir, cwd)
    if walls is not None:
        _require_visible(folder, walls)
    return folder


def _folder(workdir: str | None, cwd: Path) -> Path:
    if not workdir:
        return cwd
    try:
        folder = cwd / Path(workdir).expanduser()
        if folder.is_dir():
            return folder
        problem = "is not a directory" if folder.exists() else "does not exist"
    except (ValueError, RuntimeError, OSError) as error:
        raise ToolError(f"workdir is not usable: {error}.") from None
    raise ToolError(f"workdir {folder} {problem}; nothing was run.")


def _require_visible(folder: Path, walls: SandboxPolicy) -> None:
    real = Path(os.path.realpath(folder))
    if not walls.allows_reading(real) and not real.is_relative_to("/tmp"):
        raise ToolError(
            f"The sandbox hides {folder}; nothing was run. To ask the user: escalate "
            f"{{read: [{folder}], why}}."
        )


def _ending(status: int) -> str:
    if status > 0:
        return f"[exit status {status}]"
    from hermes.exec.process.signals import signal_name

    return f"[killed by {signal_name(-status)}]"


def _watcher(progress: Callable[[str], None]) -> Callable[[bytes], None]:
    """Shows the latest output now and then, whatever its rate: whole lines, because a secret is
    not recognised by its first half."""
    from hermes.core.untrusted_text import reveal_hidden
    from hermes.exec.process.ansi import to_plain_text

    shown = 0.0
    begun: bytes | None = b""
    """The line that has no end yet; None: it is too long to be shown."""

    def watch(data: bytes) -> None:
        nonlocal shown, begun
        start, end = 0, max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if end and begun is None:
            start, begun = len(data.splitlines(keepends=True)[0]), b""
        now, head = time.monotonic(), begun or b""
        if start < end and now - shown >= _PROGRESS_EVERY:
            shown = now
            lines = (head + data[start:end]).decode("utf-8", "replace")
            progress(reveal_hidden(to_plain_text(lines)))
        if end:
            begun = data[end:]
        elif begun is not None:
            begun += data
        if begun is not None and len(begun) > _LONGEST_LINE:
            begun = None

    return watch
