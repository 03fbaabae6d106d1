"""Writes a whole file, atomically."""

from __future__ import annotations

import asyncio
from pathlib import Path

from msgspec import Struct

from hermes.core.errors import ToolError
from hermes.core.tool import ToolContext, ToolResult, tool
from hermes.tools._edit.atomic_write import Draft, reject_link_outside, reject_redaction_marks
from hermes.tools._files.paths import check_access, resolve_path


class Params(Struct, frozen=True):
    path: str
    content: str


def _choose_lock(p: Params, cwd: Path) -> str:
    return str(resolve_path(p.path, cwd))


@tool("Write a file, replacing it if it exists; creates folders.", risk="write", key=_choose_lock)
async def write_file(p: Params, ctx: ToolContext) -> ToolResult:
    path = resolve_path(p.path, ctx.workspace.cwd)
    reject_link_outside(p.path, path, ctx.workspace.cwd)
    check_access(path, ctx.workspace, write=True)
    data = p.content.encode("utf-8", "replace")
    try:
        # In a thread whatever the size: a disk may take its time to sync.
        created, problem = await asyncio.to_thread(_write_draft, path, data, ctx)
    except OSError as error:
        raise ToolError(f"Cannot write {path}: {error.strerror}. Nothing was changed.") from None
    said = f"{'Created' if created else 'Replaced'} {path} ({len(data)} bytes)"
    return ToolResult(
        f"{said}\n[warning: {problem}]" if problem else said,
        data={"created": created, "warning": problem},
    )


def _write_draft(path: Path, data: bytes, ctx: ToolContext) -> tuple[bool, str]:
    """Whether the file is new, and what is wrong with its syntax."""
    from hermes.tools._edit.syntax import find_syntax_error

    def old() -> bytes | None:
        from hermes.tools._edit.text_file import read_bytes

        try:
            return read_bytes(path, ctx.workspace)[0]
        except FileNotFoundError:
            return None

    reject_redaction_marks(path, data, old)
    draft = Draft(path, data, ctx.workspace)
    try:
        draft.commit()
    except OSError:
        draft.discard()
        raise
    return draft.existing is None, find_syntax_error(
        path, data, ctx.workspace.child_env.get("PATH", "")
    )
