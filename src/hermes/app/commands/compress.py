"""/compress: shorten the conversation now, before it has to be."""

from hermes.app.commands import CommandContext, Reply, command, require_idle


@command(
    "compress",
    "summarise the older part of the conversation",
    "[FOCUS]",
    aliases=("compact",),
    surfaces="live",
)
async def compress_history(ctx: CommandContext, args: str) -> Reply:
    session = ctx.session
    require_idle(session)
    before, old = len(session.transcript.history), session.id
    if not await session.compress(focus=args):
        return Reply("The conversation is too short to compress.")
    back = f" To return: /resume {old}" if session.id != old else ""
    after = len(session.transcript.history)
    change = f"{before} messages became {after}" if after != before else "tool output was shortened"
    return Reply(f"Compressed: {change}.{back}")
