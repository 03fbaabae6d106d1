"""A confined command that tells git to change the repository."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from msgspec import structs

from hermes.core.tool import ToolContext, ToolResult

if TYPE_CHECKING:
    from hermes.exec.commits import ChangesRejected, GitOverlay
    from hermes.exec.process.local import CommandSpec

Run = Callable[["CommandSpec", ToolContext], Awaitable[ToolResult]]


async def committing(command: CommandSpec, ctx: ToolContext, run: Run) -> ToolResult:
    """Run a command whose git works on an overlay, and merge its changes when it has ended, also
    when it was interrupted: the files of the workspace have changed with it."""
    from hermes.config.paths import cache_folder
    from hermes.exec.commits import NoRepository, OverlayUnavailable, create_overlay
    from hermes.exec.sandbox_probe import probe_tier

    workspace = ctx.workspace
    tier = await probe_tier(cache_folder(workspace.home))
    if tier.level == 3 or command.policy is None:
        return await run(command, ctx)
    if tier.level != 1:
        return _read_only(await run(command, ctx), "this sandbox has no namespaces")
    try:
        overlay = await asyncio.to_thread(
            create_overlay, workspace.cwd, workspace.home, workspace.child_env
        )
    except OverlayUnavailable as reason:
        return _read_only(await run(command, ctx), str(reason))
    policy = structs.replace(command.policy, overlays=overlay.mounts)
    command = structs.replace(command, policy=policy, env={**command.env, **overlay.env})
    ended = asyncio.Event()
    merged = asyncio.ensure_future(_merged(overlay, ended))
    try:
        result = await run(command, ctx)
    finally:
        ended.set()
        rejected = await asyncio.shield(merged)
    if rejected is None:
        return result
    if isinstance(rejected, NoRepository):
        return _read_only(result, str(rejected)) if result.error or _failed(result) else result
    return _noted(result, f"what git did to the repository was not kept: {rejected}", error=True)


async def _merged(overlay: GitOverlay, ended: asyncio.Event) -> ChangesRejected | None:
    """In a task of its own, which no interrupt reaches; why nothing was merged, or None."""
    from hermes.exec.commits import ChangesRejected, merge_overlay

    await ended.wait()
    try:
        await asyncio.to_thread(merge_overlay, overlay)
    except ChangesRejected as rejected:
        return rejected
    return None


def _failed(result: ToolResult) -> bool:
    return isinstance(result.data, dict) and result.data.get("exit_status") != 0


def _read_only(result: ToolResult, why: str) -> ToolResult:
    return _noted(result, f".git is read-only for commands here: {why}")


def _noted(result: ToolResult, note: str, *, error: bool = False) -> ToolResult:
    assert isinstance(result.content, str)
    text = "" if result.content == "(no output)" else f"{result.content}\n"
    return structs.replace(result, content=f"{text}[{note}]", error=result.error or error)
