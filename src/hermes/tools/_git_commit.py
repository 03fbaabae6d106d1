"""Runs a confined command that changes the git repository."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from msgspec import structs

from hermes.core.tool import ToolContext, ToolResult

if TYPE_CHECKING:
    from hermes.exec.commits import ChangesRejected, GitOverlay
    from hermes.exec.process.local import CommandSpec

_READ_ONLY = re.compile(r"\.git\b.*(?:permission denied|read-only)", re.IGNORECASE)
RunCommand = Callable[["CommandSpec", ToolContext], Awaitable[ToolResult]]


async def run_with_git_overlay(
    command: CommandSpec, ctx: ToolContext, run: RunCommand
) -> ToolResult:
    """Run a command whose git works on an overlay of the repository, and merge the overlay when
    the command has ended, even interrupted: the files of the workspace have changed with it."""
    from hermes.config.paths import cache_folder
    from hermes.exec.commits import NoRepository, OverlayUnavailable, create_overlay
    from hermes.exec.sandbox_probe import probe_tier

    workspace = ctx.workspace
    tier = await probe_tier(cache_folder(workspace.home))
    if tier.level == 3 or command.policy is None:
        return await run(command, ctx)
    if tier.level != 1:
        return _note_read_only(await run(command, ctx), "this sandbox has no namespaces")
    try:
        overlay = await asyncio.to_thread(
            create_overlay, workspace.cwd, workspace.home, workspace.child_env
        )
    except OverlayUnavailable as reason:
        return _note_read_only(await run(command, ctx), str(reason))
    policy = structs.replace(command.policy, overlays=overlay.mounts)
    command = structs.replace(command, policy=policy, env={**command.env, **overlay.env})
    ended = asyncio.Event()
    merged = asyncio.ensure_future(_merge_when_ended(overlay, ended))
    try:
        result = await run(command, ctx)
    finally:
        ended.set()
        rejected = await asyncio.shield(merged)
    if rejected is None:
        return result
    if isinstance(rejected, NoRepository):
        return _note_read_only(result, str(rejected))
    note = f"git's changes to the repository were not kept: {rejected}"
    return _append_note(result, note, error=True)


async def _merge_when_ended(overlay: GitOverlay, ended: asyncio.Event) -> ChangesRejected | None:
    """Merge in a task of its own, which no interrupt reaches; returns why it failed, or None."""
    from hermes.exec.commits import ChangesRejected, merge_overlay

    await ended.wait()
    try:
        await asyncio.to_thread(merge_overlay, overlay)
    except ChangesRejected as rejected:
        return rejected
    return None


def _note_read_only(result: ToolResult, why: str) -> ToolResult:
    """The result, with a note if the command failed or says that it could not write to .git."""
    assert isinstance(result.content, str)
    status = result.data.get("exit_status") if isinstance(result.data, dict) else 0
    if not result.error and status == 0 and not _READ_ONLY.search(result.content):
        return result
    return _append_note(
        result,
        f".git is read-only for commands here: {why}; to ask the user: escalate "
        "{unconfined: true, why}",
    )


def _append_note(result: ToolResult, note: str, *, error: bool = False) -> ToolResult:
    assert isinstance(result.content, str)
    text = "" if result.content == "(no output)" else f"{result.content}\n"
    return structs.replace(result, content=f"{text}[{note}]", error=result.error or error)
