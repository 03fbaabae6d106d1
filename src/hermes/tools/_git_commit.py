"""A confined command that tells git to change the repository."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from msgspec import structs

from hermes.core.tool import ToolContext, ToolResult

if TYPE_CHECKING:
    from hermes.exec.commits import Stand
    from hermes.exec.process.local import Command

Run = Callable[["Command", ToolContext], Awaitable[ToolResult]]


async def committing(command: Command, ctx: ToolContext, run: Run) -> ToolResult:
    """Git works on a stand-in; what it did there is taken over when the command has ended, also
    when it was interrupted: the files of the workspace have changed with it."""
    from hermes.config.paths import cache_folder
    from hermes.exec.commits import NO_REPOSITORY, stand_in
    from hermes.exec.sandbox_probe import probe

    tier = await probe(cache_folder(ctx.home))
    if tier.level == 3 or command.policy is None:
        return await run(command, ctx)
    stand: Stand | str = "this sandbox has no namespaces"
    if tier.level == 1:
        stand = await asyncio.to_thread(stand_in, ctx.cwd, ctx.home, ctx.child_env)
    if isinstance(stand, str):
        return _read_only(await run(command, ctx), stand)
    policy = structs.replace(command.policy, instead=stand.places)
    command = structs.replace(command, policy=policy, env={**command.env, **stand.env})
    ended = asyncio.Event()
    taken = asyncio.ensure_future(_taken(stand, ended))
    try:
        result = await run(command, ctx)
    finally:
        ended.set()
        why = await asyncio.shield(taken)
    if not why:
        return result
    if why == NO_REPOSITORY:
        return _read_only(result, why) if result.error or _failed(result) else result
    return _noted(result, f"what git did to the repository was not kept: {why}", error=True)


async def _taken(stand: Stand, ended: asyncio.Event) -> str:
    """In a task of its own, which no interrupt reaches."""
    from hermes.exec.commits import take_over

    await ended.wait()
    return await asyncio.to_thread(take_over, stand)


def _failed(result: ToolResult) -> bool:
    return isinstance(result.data, dict) and result.data.get("exit_status") != 0


def _read_only(result: ToolResult, why: str) -> ToolResult:
    return _noted(result, f".git is read-only for commands here: {why}")


def _noted(result: ToolResult, note: str, *, error: bool = False) -> ToolResult:
    assert isinstance(result.content, str)
    text = "" if result.content == "(no output)" else f"{result.content}\n"
    return structs.replace(result, content=f"{text}[{note}]", error=result.error or error)
