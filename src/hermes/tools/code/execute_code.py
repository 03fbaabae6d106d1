"""Runs a Python script that can call the other tools."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct, structs

from hermes.core.errors import ToolError
from hermes.core.message import Text
from hermes.core.tool import Tool, ToolContext, ToolResult, tool
from hermes.tools._sandbox_policy import policy
from hermes.tools.code._boot import MAX_CALL_BYTES

if TYPE_CHECKING:
    from hermes.exec.process.supervisor_client import CommandResult
    from hermes.exec.sandbox import SandboxPolicy

LIMIT = 48_000
"""Bytes of output a model is shown."""
CALLS = 50
SECONDS = 300.0
"""Of the script's own; while a tool works for it the clock stands still."""
MAX_SECONDS = 3600.0
_NOT_FOR_SCRIPTS = frozenset({"execute_code", "clarify", "delegate_task"})
"""What asks a person or starts another level of work is the model's to call."""
_FENCE = re.compile(r"```[\w+-]*\s*\n(.*?)\n?```", re.S)


class Params(Struct, frozen=True):
    code: str
    timeout: Annotated[float | None, Meta(description="seconds, 300 by default")] = None

    def __post_init__(self) -> None:
        structs.force_setattr(self, "code", _bare(self.code))


@tool(
    "Run a Python script in the workspace: for many or dependent tool calls, loops, filtering, "
    "computing. `from hermes_tools import read_file, terminal, …`: every tool is a function with "
    "the same arguments that returns its text or raises ToolError. Standard library only; files of "
    "the workspace can be opened directly. Print what you need to see. At most 50 tool calls.",
    toolset="code",
    risk="exec",
    exclusive=True,
    timeout=2 * MAX_SECONDS,
    words="calculate compute math interpreter execution program batch",
)
async def execute_code(p: Params, ctx: ToolContext) -> ToolResult:
    from hermes.exec.process.output_capture import OutputCapture

    seconds = min(SECONDS if p.timeout is None else p.timeout, MAX_SECONDS)
    if seconds <= 0:
        raise ToolError("timeout must be more than 0 seconds.")
    if not p.code.strip():
        raise ToolError("There is no code; nothing was run.")
    desk = _Desk(ctx)
    output = OutputCapture(LIMIT, ctx.workspace.outputs, name=ctx.output_prefix)
    try:
        outcome = await _run(p.code, ctx, desk, output, seconds)
    finally:
        output.close()
    text = output.text().rstrip("\n")
    notes = list(_notes(outcome, seconds, desk))
    return ToolResult(
        "\n".join([text, *notes] if text else notes) or "(the script printed nothing)",
        data={
            "exit_status": outcome.status,
            "bytes": output.size,
            "calls": dict(desk.counts),
            "notes": len(notes),
        },
        error=outcome.status != 0,
    )


def _bare(code: str) -> str:
    """Without the fence or the indentation a model may put it in."""
    from textwrap import dedent

    fenced = _FENCE.fullmatch(code.strip())
    code = fenced[1] if fenced else code
    return dedent(code) if code.lstrip("\r\n")[:1] in (" ", "\t") else code


async def _run(
    code: str, ctx: ToolContext, desk: _Desk, output: Any, seconds: float
) -> CommandResult:
    from hermes.exec.process.local import CommandSpec, run_command
    from hermes.exec.process.supervisor_client import CommandResult
    from hermes.exec.sandbox_probe import probe_tier

    python = os.path.realpath(sys.executable)  # noqa: ASYNC240 - beneath a virtual environment
    argv = (python, "-I", "-S", "-u", "-X", "utf8", "-c", _boot())
    confined = await _policy(ctx)
    tier = await probe_tier() if confined else None
    walls = tier is not None and tier.level < 3
    with _private_folder(made=not walls) as extra:
        ours, theirs = socket.socketpair()
        with theirs:
            command = CommandSpec(
                argv,
                ctx.workspace.cwd,
                {**ctx.workspace.child_env, **extra},
                2 * MAX_SECONDS,
                confined,
                tier,
                stdin=theirs.fileno(),
                session=ctx.session_id if confined else "",
            )
            with suppress(TimeoutError):
                async with desk.open(ours, code), asyncio.timeout(seconds) as desk.clock:
                    return await run_command(command, output)
    return CommandResult(None)


async def _policy(ctx: ToolContext) -> SandboxPolicy | None:
    """A terminal's, without what we are made of and with the interpreter."""
    found = await policy(ctx)
    if found is None:
        return None
    own = [Path(__file__).parents[2]]
    if sys.prefix != sys.base_prefix:
        own.append(Path(sys.prefix))
    hidden = [p for p in own if not p.resolve().is_relative_to(found.workspace)]
    return structs.replace(
        found,
        hidden=(*found.hidden, *hidden),
        visible=(*found.visible, Path(sys.base_prefix)),
    )


@contextmanager
def _private_folder(*, made: bool) -> Iterator[dict[str, str]]:
    """Where nothing confines the script, temporary files of its own all the same."""
    if not made:
        yield {}
        return
    import tempfile

    with tempfile.TemporaryDirectory(prefix="hermes-", ignore_cleanup_errors=True) as folder:
        yield {"TMPDIR": folder}


def _notes(outcome: CommandResult, seconds: float, desk: _Desk) -> Iterator[str]:
    if outcome.status is None:
        yield f"[timed out after {seconds:g} s (killed)]"
    elif outcome.status > 0:
        yield f"[exit status {outcome.status}]"
    elif outcome.status:
        from hermes.exec.process.signals import signal_name

        yield f"[killed by {signal_name(-outcome.status)}]"
    if any(outcome.limit_hits):
        from hermes.exec.sandbox.limits import describe_hits

        yield from describe_hits(outcome.limit_hits)
    if outcome.left:
        yield f"[{outcome.left} background process(es) still running until this agent ends]"
    if desk.counts:
        each = ", ".join(f"{name} {count}" for name, count in desk.counts.items())
        yield f"[tool calls: {each}]"


class _Desk:
    """Answers one script's calls, one after the other, until it ends or its budget is used up."""

    def __init__(self, ctx: ToolContext) -> None:
        self.counts: Counter[str] = Counter()
        self.clock: asyncio.Timeout | None = None
        self._ctx = ctx
        self._tools = {name: t for name, t in ctx.toolbox.tools.items() if _callable(t)}

    @asynccontextmanager
    async def open(self, ours: socket.socket, code: str) -> AsyncIterator[None]:
        import orjson

        from hermes.tools.code._stubs import make_stub_module

        reader, writer = await asyncio.open_connection(sock=ours, limit=MAX_CALL_BYTES)
        stubs = make_stub_module(t.spec for t in self._tools.values())
        writer.write(orjson.dumps({"code": code, "tools": stubs}) + b"\n")
        serving = asyncio.ensure_future(self._serve(reader, writer))
        try:
            yield
        finally:
            self.clock = None
            serving.cancel()
            writer.transport.abort()
            await asyncio.wait([serving])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        import orjson

        with suppress(OSError, ValueError):  # a line too long, or no call: the script's own doing
            while line := await reader.readline():
                text, ok = await self._answer(orjson.loads(line))
                writer.write(orjson.dumps({"text": text, "ok": ok}) + b"\n")
                await writer.drain()
        writer.close()

    async def _answer(self, asked: Any) -> tuple[str, bool]:
        match asked:
            case {"tool": str(name), "arguments": dict(arguments)} if name in self._tools:
                pass
            case {"tool": str(name)}:
                return f"There is no tool {name!r} for scripts.", False
            case _:
                return "This is no call.", False
        if self.counts.total() >= CALLS:
            return f"This script has used up its {CALLS} tool calls.", False
        self.counts[name] += 1
        self._ctx.progress(_line(name, arguments))
        try:
            with self._paused():
                result = await self._ctx.toolbox.invoke(name, arguments)
        except ToolError as error:
            return str(error), False
        return _text(result), not result.error

    @contextmanager
    def _paused(self) -> Iterator[None]:
        now = asyncio.get_running_loop().time
        clock = self.clock
        if clock is None or (until := clock.when()) is None or clock.expired():
            yield
            return
        left = until - now()
        clock.reschedule(None)
        try:
            yield
        finally:
            if self.clock is clock:  # else the script has ended meanwhile
                clock.reschedule(now() + left)


def _callable(tool: Tool[Any]) -> bool:
    return tool.forward is None and tool.name not in _NOT_FOR_SCRIPTS


def _line(name: str, arguments: dict[str, Any]) -> str:
    import orjson

    text = orjson.dumps(arguments).decode()
    return f"{name} {text}\n" if len(text) <= 200 else f"{name} {text[:200]}…\n"


def _text(result: ToolResult) -> str:
    if isinstance(result.content, str):
        return result.content
    parts = (p.text if isinstance(p, Text) else "[an image, not shown]" for p in result.content)
    return "\n".join(parts)


@cache
def _boot() -> str:
    return Path(__file__).with_name("_boot.py").read_text(encoding="utf-8")
