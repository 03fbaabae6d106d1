"""/new: a fresh session in the same place."""

from __future__ import annotations

from hermes.app.commands import Command, CommandContext, Reply


async def run(ctx: CommandContext, args: str) -> Reply:
    old = ctx.session
    old.stop()
    fresh = await ctx.runtime.reopen(old)
    back = f" /resume {old.id} goes back." if len(old.transcript.history) else ""
    return Reply(f"A new session: {fresh.id}.{back}", session=fresh)


COMMAND = Command(
    "new",
    "start a fresh session; the old one stays stored",
    run,
    aliases=("reset",),
    never_waits=True,
    surfaces="live",
)
