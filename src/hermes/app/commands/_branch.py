"""A session that begins as a copy of the command's."""

from __future__ import annotations

from hermes.app.commands import CommandContext
from hermes.app.session import Session
from hermes.app.session_chain import store_branch


async def open_branch(ctx: CommandContext, upto: int, title: str = "") -> Session:
    """A session of its own that begins with the first `upto` messages of this one."""
    old = ctx.session.transcript
    kept = old.history.messages[:upto]
    branch = await store_branch(ctx.runtime.store, old.meta, old.taint, kept, title)
    return await ctx.runtime.reopen(ctx.session, branch)
