"""/branch: go on in a copy, so that the conversation so far stays as it is."""

from __future__ import annotations

from hermes.app.commands import Command, CommandContext, Reply
from hermes.app.commands._branch import open_branch
from hermes.core.errors import ConfigError


async def run(ctx: CommandContext, args: str) -> Reply:
    session = ctx.session
    if session.busy:
        raise ConfigError("A turn is running; /branch when it has ended, or /stop it.")
    if not len(session.transcript.history):
        raise ConfigError("There is nothing to branch off yet.")
    child = await open_branch(ctx, len(session.transcript.history), args)
    return Reply(f"On a branch now: {child.id}. /resume {session.id} goes back.", session=child)


COMMAND = Command(
    "branch", "go on in a copy of this session", run, usage="[TITLE]", aliases=("fork",)
)
