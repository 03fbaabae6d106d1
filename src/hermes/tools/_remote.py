"""Commands of a session that run on a remote backend."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hermes.core.errors import ToolError
from hermes.core.services import ServiceKey
from hermes.core.tool import ToolContext
from hermes.tools._services import BACKEND

if TYPE_CHECKING:
    from hermes.exec.backends import CommandBackend
    from hermes.exec.process.local import CommandSpec

_CLIENTS: ServiceKey[dict[str, CommandSpec]] = ServiceKey("backend clients")
"""The clients of background commands, by the ids of the commands."""


def resolve_folder(workdir: str | None, backend: CommandBackend) -> Path:
    """The folder as a path of the backend, which also finds out whether it exists."""
    if workdir and "\0" in workdir:
        raise ToolError("workdir contains a NUL character; nothing was run.")
    if workdir and workdir.startswith("~"):
        return Path(workdir)
    return backend.start_folder / (workdir or "")


async def require_confinement(ctx: ToolContext, backend: CommandBackend) -> None:
    """Raise ToolError when `sandbox.required` is set and the backend does not confine commands."""
    if ctx.workspace.sandbox_required and not await backend.is_confined():
        raise ToolError(
            f"sandbox.required is true, but commands run {backend.location}, which does not "
            "confine them. Nothing was run."
        )


def remember_client(ctx: ToolContext, name: str, client: CommandSpec) -> None:
    """Keep the client of a background command, so that `end_client` can end both."""
    ctx.services.get_or_make(_CLIENTS, dict)[name] = client


async def end_client(ctx: ToolContext, name: str) -> None:
    """End a background command on the backend: ending its client does not."""
    backend, clients = ctx.services.get(BACKEND), ctx.services.get(_CLIENTS)
    if backend is not None and clients is not None and name in clients:
        await backend.end_command(clients.pop(name))
