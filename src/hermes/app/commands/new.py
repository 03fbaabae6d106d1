"""/new: start a new session in the same place."""

from hermes.app.commands import CommandContext, Reply, command


@command(
    "new",
    "start a new session; the old one is kept",
    aliases=("clear", "reset"),
    never_waits=True,
    surfaces="live",
)
async def start_session(ctx: CommandContext, args: str) -> Reply:
    old = ctx.session
    old.stop()
    fresh = await ctx.runtime.reopen_session(old)
    old.host.closing = "reset"
    if old.host.hooks is not None:
        await old.host.hooks.notify("on_session_reset", new_session_id=fresh.id, reason="new")
    back = f" To return: /resume {old.id}" if len(old.transcript.history) else ""
    folder = fresh.transcript.meta.cwd
    return Reply(f"New session: {fresh.id} in {folder}.{back}", session=fresh)
