"""Asks the user before a file tool leaves the session's boundary or changes what others obey."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from hermes.core.errors import ToolError
from hermes.core.escalation import FileAccess
from hermes.core.tool import Tool, ToolContext, ToolResult, Workspace
from hermes.tools._files.paths import check_access, find_real_path, find_user_home


async def require_readable(path: Path, ctx: ToolContext) -> None:
    """Raise ToolError unless this real path may be read: it is in the workspace or readable to
    commands too, or the user allows it."""
    check_access(path, ctx.workspace, write=False)
    if may_read(path, ctx.workspace):
        return
    folder = path if os.path.isdir(path) else path.parent  # noqa: ASYNC240, PTH112
    reason = f"it reads {path}, outside the working folder"
    await _require_approval(reason, FileAccess(folder=str(folder)), ctx)


def may_read(path: Path, workspace: Workspace) -> bool:
    """Whether the policy of the session lets tools read this real path without a question."""
    if workspace.sandbox == "full-access":
        return True
    inside = (find_real_path(workspace.cwd), find_real_path(workspace.outputs))
    if any(path.is_relative_to(folder) for folder in inside):
        return True
    from hermes.tools._sandbox_policy import derive_policy

    return derive_policy(workspace).allows_reading(path)


def explain_influence(path: Path, workspace: Workspace) -> str:
    """Why a person must see a change to this real path; empty: nobody must. Outside the workspace
    every write needs approval anyway."""
    root = find_real_path(workspace.cwd)
    if not path.is_relative_to(root):
        return ""
    from hermes.exec import path_rules
    from hermes.exec.sandbox.planted_files import find_git_references

    user_home = find_user_home(workspace)
    if reason := path_rules.explain_influence(path, root, user_home):
        return reason
    led = find_git_references(root, user_home)
    return "git's settings refer to it" if any(path.is_relative_to(p) for p in led) else ""


async def require_agreement(reasons: Iterable[str], diff: str, ctx: ToolContext) -> None:
    """Raise ToolError unless the user agrees to a change that programs outside act upon."""
    await _require_approval("; ".join(reasons), FileAccess(diff=diff), ctx)


async def _require_approval(reason: str, access: FileAccess, ctx: ToolContext) -> None:
    asking = Tool(ctx.call.name, "", FileAccess, _refuse_call, asks=reason)
    verdict = await ctx.user.approve(ctx.call, asking, access, ())
    if not verdict.allowed:
        raise ToolError(
            f"Not done: {verdict.reason or reason}. Do not try another way; tell the user what you "
            "need."
        )


async def _refuse_call(p: FileAccess, ctx: ToolContext) -> ToolResult:
    raise ToolError("This is no tool of its own.")
