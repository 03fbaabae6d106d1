"""Writes a whole file atomically."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from hermes.core.errors import ToolError
from hermes.core.tool import ToolContext, ToolResult, Workspace, tool
from hermes.tools._edit.atomic_write import (
    Draft,
    find_redaction_marks,
    reject_link_outside,
    reject_redaction_marks,
)
from hermes.tools._files.boundary import find_influences, require_agreement, require_outside_access
from hermes.tools._files.paths import check_access, display_path, find_real_path, resolve_path
from hermes.tools._services import CLIENT_FILES

if TYPE_CHECKING:
    from hermes.tools._edit.file_changes import FileChanges


class Params(Struct, frozen=True):
    path: str
    content: str


def _choose_lock(p: Params, cwd: Path) -> str:
    return str(resolve_path(p.path, cwd))


def _preview_change(p: Params, workspace: Workspace) -> str:
    path = resolve_path(p.path, workspace.cwd)
    return _load_change(path, _encode_content(p), workspace).show_diff()


def _encode_content(p: Params) -> bytes:
    return p.content.encode("utf-8", "replace")


def _load_change(path: Path, data: bytes, workspace: Workspace) -> "FileChanges":
    from hermes.tools._edit.file_changes import FileChanges

    changes = FileChanges(workspace)
    changes.replace_file(path, data)
    return changes


@tool(
    "Write a file, replacing it if it exists; creates folders.",
    risk="write",
    key=_choose_lock,
    asks_itself=True,
    preview=_preview_change,
)
async def write_file(p: Params, ctx: ToolContext) -> ToolResult:
    path = resolve_path(p.path, ctx.workspace.cwd)
    reject_link_outside(p.path, path, ctx.workspace.cwd)
    check_access(path, ctx.workspace, write=True)
    data = _encode_content(p)
    await require_outside_access([path], ctx, reads=False)
    influences = find_influences([path], ctx.workspace)
    await require_agreement(
        influences, lambda: _load_change(path, data, ctx.workspace).show_whole_diff(), ctx
    )
    try:
        # In a thread whatever the size: syncing a disk may take long.
        created, problem, diff = await asyncio.to_thread(
            _write_draft, path, data, ctx, in_place=bool(influences)
        )
    except OSError as error:
        raise ToolError(f"Cannot write {path}: {error.strerror}. Nothing was changed.") from None
    if client := ctx.services.get(CLIENT_FILES):
        await client.write_text(path, data.decode("utf-8", "replace"))
    text = f"{'Created' if created else 'Replaced'} {path} ({len(data)} bytes)"
    return ToolResult(
        f"{text}\n[warning: {problem}]" if problem else text,
        data={"created": created, "warning": problem, "diff": diff},
    )


def _show_diff(path: Path, data: bytes, workspace: Workspace) -> str:
    """What changes in a file; empty when it cannot be compared, because it is large for example."""
    from hermes.tools._edit.file_changes import diff_contents
    from hermes.tools._edit.text_file import read_bytes

    name = display_path(path, find_real_path(workspace.cwd))
    with suppress(ToolError, OSError):
        old = read_bytes(path, workspace)[0]
        return diff_contents(old, data, (name, name)).text if old != data else ""
    return ""


def _write_draft(
    path: Path, data: bytes, ctx: ToolContext, *, in_place: bool
) -> tuple[bool, str, str]:
    """Write the file; returns whether it is new, what is wrong with its syntax, and what changed in
    an existing one."""
    from hermes.tools._edit.syntax import find_syntax_error
    from hermes.tools._edit.text_file import read_bytes

    if find_redaction_marks(data):
        try:
            old = read_bytes(path, ctx.workspace)[0]
        except FileNotFoundError:
            old = None
        reject_redaction_marks(path, data, old)
    draft = Draft(path, data, ctx.workspace, in_place=in_place)
    try:
        diff = _show_diff(path, data, ctx.workspace) if draft.existing is not None else ""
        draft.commit()
    except OSError:
        draft.discard()
        raise
    return draft.existing is None, find_syntax_error(path, data, ctx.workspace), diff
