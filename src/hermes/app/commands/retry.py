"""/retry: answer the last message once more."""

from __future__ import annotations

from hermes.app.commands import Command, CommandContext, Reply
from hermes.app.commands._branch import open_branch
from hermes.app.session_chain import turn_starts
from hermes.core.errors import ConfigError


async def run(ctx: CommandContext, args: str) -> Reply:
    session = ctx.session
    if session.busy:
        raise ConfigError("A turn is running; /stop it first.")
    starts = turn_starts(session.transcript.history.messages)
    if not starts:
        raise ConfigError("There is no message to answer again.")
    message = session.transcript.history.messages[starts[-1]]
    child = await open_branch(ctx, starts[-1])
    text = "Answering the last message again; files stay as they are (/undo takes them back too)."
    return Reply(text, session=child, submit=message)


COMMAND = Command("retry", "answer the last message once more", run)
