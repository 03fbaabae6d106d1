"""/compress: make the conversation shorter now, not when it must be."""

from __future__ import annotations

from hermes.app.commands import Command, CommandContext, Reply
from hermes.core.errors import ConfigError


async def run(ctx: CommandContext, args: str) -> Reply:
    session = ctx.session
    if args:
        raise ConfigError("/compress takes nothing.")
    if session.busy:
        raise ConfigError("A turn is running; /compress when it has ended, or /stop it.")
    before, old = len(session.transcript.history), session.id
    if not await session.compress():
        return Reply("There is nothing to gain by compressing this conversation.")
    goes = f"; /resume {old} goes back" if session.id != old else ""
    after = len(session.transcript.history)
    what = f"{before} messages became {after}" if after != before else "earlier results are shorter"
    return Reply(f"Compressed: {what}{goes}.")


COMMAND = Command(
    "compress",
    "summarise the older part of the conversation",
    run,
    aliases=("compact",),
    surfaces="live",
)
