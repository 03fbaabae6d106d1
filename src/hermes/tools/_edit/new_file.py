"""Writes files that a tool made, where there was none before."""

import asyncio
from pathlib import Path

from hermes.core.errors import ToolError
from hermes.core.tool import ToolContext
from hermes.tools._edit.atomic_write import Draft, reject_link_outside
from hermes.tools._files.boundary import find_influences, require_agreement, require_outside_access
from hermes.tools._files.paths import check_access, resolve_path


async def require_new_file(raw: str, ctx: ToolContext) -> Path:
    """The path, once it is certain that a new file may be written there; ToolError otherwise."""
    path = resolve_path(raw, ctx.workspace.cwd)
    reject_link_outside(raw, path, ctx.workspace.cwd)
    check_access(path, ctx.workspace, write=True)
    await require_outside_access([path], ctx, reads=False)
    influences = find_influences([path], ctx.workspace)
    await require_agreement(influences, lambda: f"+ {path}", ctx)
    if await asyncio.to_thread(path.exists):
        raise ToolError(f"{path} exists already. Nothing was made; name another path.")
    return path


async def write_new_file(path: Path, data: bytes, ctx: ToolContext) -> None:
    try:
        await asyncio.to_thread(_commit_draft, path, data, ctx)
    except OSError as error:
        raise ToolError(f"Cannot write {path}: {error.strerror}. Nothing was changed.") from None


def _commit_draft(path: Path, data: bytes, ctx: ToolContext) -> None:
    draft = Draft(path, data, ctx.workspace)
    try:
        draft.commit()
    except OSError:
        draft.discard()
        raise
