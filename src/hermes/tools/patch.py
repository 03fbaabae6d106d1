"""Edits text files: replaces a piece of one, or applies a patch to several, all or none."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from hermes.core.errors import ToolError
from hermes.core.taint import BOTH
from hermes.core.tool import ToolContext, ToolResult, Workspace, tool
from hermes.tools._edit.atomic_write import reject_link_outside
from hermes.tools._files.boundary import require_agreement, require_outside_access
from hermes.tools._files.paths import resolve_path

if TYPE_CHECKING:
    from hermes.tools._edit.file_changes import FileChanges

_USAGE = "Nothing was changed. Give either path, old and new, or patch."


class Params(Struct, frozen=True):
    path: str | None = None
    old: str | None = None
    new: str | None = None
    all: bool | None = None
    patch: str | None = None


def _list_paths(p: Params) -> list[str]:
    if not p.patch:
        if not p.path:
            raise ToolError(_USAGE)
        return [p.path]
    from hermes.tools._edit.v4a import parse_patch

    return [raw for change in parse_patch(p.patch) for raw in (change.path, change.new_path) if raw]


def _resolve_paths(p: Params, cwd: Path) -> list[Path]:
    """The real paths. Raises ToolError when one inside the working folder leads out of it."""
    paths = []
    for raw in _list_paths(p):
        paths.append(resolve_path(raw, cwd))
        reject_link_outside(raw, paths[-1], cwd)
    return paths


@tool(
    "Edit files: replace `old` (unique, or `all`) by `new` in `path`, or apply a V4A `patch` "
    "(*** Begin Patch ...) to several files, all or none.",
    risk="write",
    brings=BOTH,
    key=lambda p, cwd: tuple(str(resolve_path(raw, cwd)) for raw in _list_paths(p)),
    asks_itself=True,
    preview=lambda p, workspace: _compute_changes(p, workspace).show_diff(),
)
async def patch(p: Params, ctx: ToolContext) -> ToolResult:
    if not (p.path or p.patch) or (p.patch and (p.old or p.new)):
        raise ToolError(_USAGE)
    if not p.patch and (p.old is None or p.new is None):
        raise ToolError("Nothing was changed. Give old and new (an empty `new` deletes `old`).")
    paths = _resolve_paths(p, ctx.workspace.cwd)
    await require_outside_access(paths, ctx, reads=True)
    files = await asyncio.to_thread(_compute_changes, p, ctx.workspace)
    changed = files.list_changed_paths()
    if not {*changed} <= {*paths}:
        raise ToolError("A folder was just replaced by a link; nothing was changed.")
    await require_agreement(changed, files.show_whole_diff, ctx)
    return await asyncio.to_thread(_write_changes, files)


def _compute_changes(p: Params, workspace: Workspace) -> "FileChanges":
    from hermes.tools._edit.file_changes import FileChanges

    files = FileChanges(workspace)
    if p.patch:
        from hermes.tools._edit.v4a import parse_patch

        for change in parse_patch(p.patch):
            files.apply_change(change)
    else:
        files.replace_text(p.path or "", (p.old or "", p.new or ""), every=bool(p.all))
    return files


def _write_changes(files: "FileChanges") -> ToolResult:
    files.commit()
    return files.build_result()
