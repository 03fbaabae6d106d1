"""Opens a session that begins as a copy of the current one."""

from hermes.app.commands import CommandContext
from hermes.app.session import Session
from hermes.app.session_records import store_branch


async def open_branch(ctx: CommandContext, upto: int, title: str = "") -> Session:
    """A new session that begins with the first `upto` messages of the current one."""
    old = ctx.session.transcript
    messages = old.history.messages[:upto]
    branch = await store_branch(ctx.runtime.store, old.meta, old.taint, messages, title)
    return await ctx.runtime.reopen_session(ctx.session, branch)
