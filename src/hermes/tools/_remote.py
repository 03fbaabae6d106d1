"""Commands of a session that run in another place than here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes.core.errors import ToolError
from hermes.core.tool import ToolContext

if TYPE_CHECKING:
    from hermes.exec.process.local import CommandSpec

_CLIENTS = "clients"


def folder(workdir: str | None, place: Any) -> Path:
    """In the paths of that place; whether it exists is seen there."""
    if workdir and "\0" in workdir:
        raise ToolError("workdir contains a NUL character; nothing was run.")
    if workdir and workdir.startswith("~"):
        return Path(workdir)
    here: Path = place.start_folder / (workdir or "")
    return here


async def require(ctx: ToolContext) -> None:
    """For `sandbox.required: true`."""
    if ctx.sandbox_required and not await ctx.place.is_confined():
        raise ToolError(
            f"sandbox.required is true, but commands run {ctx.place.location}, which confines them "
            "to nothing. Nothing was run."
        )


def remember(ctx: ToolContext, name: str, client: CommandSpec) -> None:
    """The client of a command in the background, by the name that it got."""
    ctx.state.setdefault(_CLIENTS, {})[name] = client


async def end(ctx: ToolContext, name: str) -> None:
    """What the command started there: ending its client does not."""
    client = ctx.state.get(_CLIENTS, {}).pop(name, None)
    if client is not None:
        await ctx.place.end_command(client)
