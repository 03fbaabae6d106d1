"""Edits text files: replaces a piece of one, or applies a patch to several, all or none."""

import asyncio
from typing import TYPE_CHECKING

from msgspec import Struct

from hermes.core.errors import ToolError
from hermes.core.taint import BOTH
from hermes.core.tool import ToolContext, ToolResult, Workspace, tool
from hermes.tools._files.boundary import require_agreement, require_outside_access
from hermes.tools._files.paths import resolve_path
from hermes.tools._services import CLIENT_FILES

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


def _compute_changes(p: Params, files: "FileChanges") -> None:
    if p.patch:
        from hermes.tools._edit.v4a import parse_patch

        for change in parse_patch(p.patch):
            files.apply_change(change)
    else:
        files.replace_text(p.path or "", (p.old or "", p.new or ""), every=bool(p.all))


def _preview_changes(p: Params, workspace: Workspace) -> str:
    from hermes.tools._edit.file_changes import FileChanges

    files = FileChanges(workspace)
    _compute_changes(p, files)
    return files.show_diff()


@tool(
    "Edit files: replace `old` (unique, or `all`) by `new` in `path`, or apply a V4A `patch` "
    "(*** Begin Patch ...) to several files, all or none.",
    risk="write",
    brings=BOTH,
    key=lambda p, cwd: tuple(str(resolve_path(raw, cwd)) for raw in _list_paths(p)),
    asks_itself=True,
    preview=_preview_changes,
)
async def patch(p: Params, ctx: ToolContext) -> ToolResult:
    if not (p.path or p.patch) or (p.patch and (p.old or p.new)):
        raise ToolError(_USAGE)
    if not p.patch and (p.old is None or p.new is None):
        raise ToolError("Nothing was changed. Give old and new (an empty `new` deletes `old`).")
    from hermes.tools._edit.file_changes import FileChanges

    files = FileChanges(ctx.workspace)
    paths = [files.resolve_path(raw) for raw in _list_paths(p)]
    await require_outside_access(paths, ctx, reads=True)
    client = ctx.services.get(CLIENT_FILES)
    if client is not None:
        files.unsaved = {path: text for path in paths if (text := await client.read_text(path))}
    result = await asyncio.to_thread(_change_freely, p, files)
    if result is None:
        await require_agreement(files.influences, files.show_whole_diff, ctx)
        result = await asyncio.to_thread(_write_changes, files)
    if client is not None:
        for path, text in files.list_written():
            await client.write_text(path, text)
    return result


def _change_freely(p: Params, files: "FileChanges") -> ToolResult | None:
    """Make the changes. None, and nothing is written, when a person must see them first."""
    _compute_changes(p, files)
    files.find_influences()
    return None if files.influences else _write_changes(files)


def _write_changes(files: "FileChanges") -> ToolResult:
    files.commit()
    return files.build_result()
