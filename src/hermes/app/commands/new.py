"""/new: start a new session in the same place."""

from hermes.app.commands import Command, CommandContext, Reply


async def start_session(ctx: CommandContext, args: str) -> Reply:
    old = ctx.session
    old.stop()
    fresh = await ctx.runtime.reopen_session(old)
    back = f" To return: /resume {old.id}" if len(old.transcript.history) else ""
    return Reply(f"New session: {fresh.id}.{back}", session=fresh)


COMMAND = Command(
    "new",
    "start a new session; the old one is kept",
    start_session,
    aliases=("reset",),
    never_waits=True,
    surfaces="live",
)
