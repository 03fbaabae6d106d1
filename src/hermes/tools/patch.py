"""Edits text files: replaces a piece of one, or applies a patch to several, all or none."""

import asyncio
from typing import TYPE_CHECKING

from msgspec import Struct

from hermes.core.errors import ToolError
from hermes.core.taint import BOTH
from hermes.core.tool import ToolContext, ToolResult, Workspace, tool
from hermes.tools._files.boundary import require_agreement
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


@tool(
    "Edit files: replace `old` (unique, or `all`) by `new` in `path`, or apply a V4A `patch` "
    "(*** Begin Patch ...) to several files, all or none.",
    risk="write",
    brings=BOTH,
    key=lambda p, cwd: tuple(str(resolve_path(raw, cwd)) for raw in _list_paths(p)),
    preview=lambda p, workspace: _compute_changes(p, workspace).show_diff(),
)
async def patch(p: Params, ctx: ToolContext) -> ToolResult:
    if not (p.path or p.patch) or (p.patch and (p.old or p.new)):
        raise ToolError(_USAGE)
    if not p.patch and (p.old is None or p.new is None):
        raise ToolError("Nothing was changed. Give old and new (an empty `new` deletes `old`).")
    files = await asyncio.to_thread(_compute_changes, p, ctx.workspace)
    if reasons := files.list_influences():
        await require_agreement(reasons, files.show_whole_diff(), ctx)
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
