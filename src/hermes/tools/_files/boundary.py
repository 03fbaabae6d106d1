"""Asks the user before a file tool leaves the session's boundary or changes what others obey."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from hermes.core.errors import ToolError
from hermes.core.escalation import FileAccess
from hermes.core.tool import Tool, ToolContext, ToolResult, Workspace
from hermes.tools._files.paths import (
    check_access,
    display_path,
    find_real_path,
    find_user_home,
    is_inside,
)


async def require_readable(path: Path, ctx: ToolContext) -> None:
    """Raise ToolError unless this real path may be read: it is in the workspace or readable to
    commands too, or the user allows it."""
    check_access(path, ctx.workspace, write=False)
    if may_read(path, ctx.workspace):
        return
    _check_wall(path, ctx.workspace, "read")
    is_folder = os.path.isdir(path)  # noqa: ASYNC240, PTH112
    if os.path.lexists(path) and not (is_folder or os.path.isfile(path)):  # noqa: ASYNC240, PTH113
        raise ToolError(f"{path} is a device, pipe or socket, not a file.")  # whoever allows it
    folder = path if is_folder else path.parent
    reason = f"it reads {path}, outside the working folder"
    await _require_approval(reason, FileAccess(folder=str(folder)), ctx)


def may_read(path: Path, workspace: Workspace) -> bool:
    """Whether the policy of the session lets tools read this real path without a question."""
    if workspace.sandbox == "full-access":
        return True
    inside = (find_real_path(workspace.cwd), find_real_path(workspace.outputs))
    if any(is_inside(path, folder) for folder in inside):
        return True
    from hermes.tools._sandbox_policy import derive_policy

    return derive_policy(workspace).allows_reading(path)


def explain_influence(path: Path, workspace: Workspace) -> str:
    """Why a person must see a change to this real path; empty: nobody must."""
    from hermes.exec import path_rules
    from hermes.exec.path_rules import resolve_links
    from hermes.exec.sandbox.planted_files import find_git_references, find_nested_links, list_links

    if path.parts[-3:] == path_rules.FREE_IN_GIT:
        return ""
    root, user_home = find_real_path(workspace.cwd), find_user_home(workspace)
    reason = path_rules.explain_influence(path, root, user_home)
    if reason or not is_inside(path, root):
        return reason
    name = f"{path}/"
    if any(name.startswith(f"{led}/") for led in find_git_references(root, user_home)):
        return "git's settings refer to it"
    for link in (*list_links(os.fspath(root)), *find_nested_links(os.fspath(root))):
        target = resolve_links(link)
        if name.startswith(f"{target}/"):
            named = Path(link, os.path.relpath(path, target))
            if reason := path_rules.explain_influence(named, root, user_home):
                return f"{display_path(named, root)} leads to it, and {reason}"
    return ""


async def require_outside_access(paths: Iterable[Path], ctx: ToolContext, *, reads: bool) -> None:
    """Raise ToolError unless those of these real paths that are outside the workspace may be
    written. Nobody is asked about what cannot be written anyway. `reads`: the result would tell
    what is in the files."""
    root = find_real_path(ctx.workspace.cwd)
    outside = [path for path in paths if not is_inside(path, root)]
    for path in outside:
        check_access(path, ctx.workspace, write=True)
        _check_wall(path, ctx.workspace, "write")
        _check_permission(path)
    shown = [path for path in outside if explain_influence(path, ctx.workspace)]
    for path in shown if reads else ():
        await require_readable(path, ctx)
    if plain := [str(path) for path in outside if path not in shown]:
        reason = f"it writes {', '.join(plain)}, outside the working folder"
        await _require_approval(reason, FileAccess(writes=True), ctx)


def find_influences(paths: Iterable[Path], workspace: Workspace) -> dict[Path, str]:
    """Those of these real paths to which a person must see a change, and why."""
    reasons = ((path, explain_influence(path, workspace) or _explain_head(path)) for path in paths)
    return {path: reason for path, reason in reasons if reason}


def _explain_head(path: Path) -> str:
    """A folder with a file of this name may be a bare repository, whose settings git obeys."""
    if path.name.casefold() != "head":
        return ""
    return "git takes the folder around it for a repository and runs what its config names"


async def require_agreement(
    influences: Mapping[Path, str], show_diff: Callable[[], str], ctx: ToolContext
) -> None:
    """Raise ToolError unless the user has seen and agreed to what programs outside act upon."""
    if influences:
        reasons = [f"it changes {path}: {reason}" for path, reason in influences.items()]
        access = FileAccess(diff=await asyncio.to_thread(show_diff), writes=True)
        await _require_approval("; ".join(reasons), access, ctx)


def _check_wall(path: Path, workspace: Workspace, verb: str) -> None:
    """Raise ToolError where nobody can allow what is outside the workspace."""
    if workspace.walled:
        raise ToolError(
            f"Denied: {path} is outside the working folder, and this agent serves several tenants: "
            f"nobody can allow it. Do not try another way; {verb} files in the working folder only."
        )


def _check_permission(path: Path) -> None:
    """Raise ToolError when the operating system refuses the write, whoever allows it."""
    folder = path.parent
    while not os.path.lexists(folder):
        folder = folder.parent
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ToolError(
            f"Cannot write {path}: this user has no permission to write in {folder}. Nothing was "
            "changed, and nobody was asked. Choose another path, or tell the user."
        )


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
