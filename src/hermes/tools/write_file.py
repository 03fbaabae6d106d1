"""Writes a whole file atomically."""

import asyncio
from pathlib import Path

from msgspec import Struct

from hermes.core.errors import ToolError
from hermes.core.tool import ToolContext, ToolResult, tool
from hermes.tools._edit.atomic_write import (
    Draft,
    find_redaction_marks,
    reject_link_outside,
    reject_redaction_marks,
)
from hermes.tools._files.boundary import require_agreement, require_outside_access
from hermes.tools._files.paths import check_access, resolve_path


class Params(Struct, frozen=True):
    path: str
    content: str


def _choose_lock(p: Params, cwd: Path) -> str:
    return str(resolve_path(p.path, cwd))


@tool(
    "Write a file, replacing it if it exists; creates folders.",
    risk="write",
    key=_choose_lock,
    asks_itself=True,
)
async def write_file(p: Params, ctx: ToolContext) -> ToolResult:
    path = resolve_path(p.path, ctx.workspace.cwd)
    reject_link_outside(p.path, path, ctx.workspace.cwd)
    check_access(path, ctx.workspace, write=True)
    data = p.content.encode("utf-8", "replace")
    await require_outside_access([path], ctx, reads=False)
    await require_agreement([path], lambda: _show_diff(path, data, ctx), ctx)
    try:
        # In a thread whatever the size: syncing a disk may take long.
        created, problem = await asyncio.to_thread(_write_draft, path, data, ctx)
    except OSError as error:
        raise ToolError(f"Cannot write {path}: {error.strerror}. Nothing was changed.") from None
    text = f"{'Created' if created else 'Replaced'} {path} ({len(data)} bytes)"
    return ToolResult(
        f"{text}\n[warning: {problem}]" if problem else text,
        data={"created": created, "warning": problem},
    )


def _show_diff(path: Path, data: bytes, ctx: ToolContext) -> str:
    from hermes.tools._edit.file_changes import FileChanges

    changes = FileChanges(ctx.workspace)
    changes.replace_file(path, data)
    return changes.show_whole_diff()


def _write_draft(path: Path, data: bytes, ctx: ToolContext) -> tuple[bool, str]:
    """Write the file; returns whether it is new, and what is wrong with its syntax."""
    from hermes.tools._edit.syntax import find_syntax_error
    from hermes.tools._edit.text_file import read_bytes

    if find_redaction_marks(data):
        try:
            old = read_bytes(path, ctx.workspace)[0]
        except FileNotFoundError:
            old = None
        reject_redaction_marks(path, data, old)
    draft = Draft(path, data, ctx.workspace)
    try:
        draft.commit()
    except OSError:
        draft.discard()
        raise
    problem = find_syntax_error(path, data, ctx.workspace.child_env.get("PATH", ""))
    return draft.existing is None, problem
