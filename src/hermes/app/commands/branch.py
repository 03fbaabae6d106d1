"""/branch: continue in a copy of the session and leave the original unchanged."""

from hermes.app.commands import Command, CommandContext, Reply
from hermes.app.commands._branch import open_branch
from hermes.core.errors import ConfigError


async def branch_session(ctx: CommandContext, args: str) -> Reply:
    session = ctx.session
    if session.is_busy:
        raise ConfigError("A turn is running. Wait for it to end or /stop it, then /branch.")
    if not len(session.transcript.history):
        raise ConfigError("There is nothing to branch from yet.")
    child = await open_branch(ctx, len(session.transcript.history), args)
    text = f"Now on a new branch ({child.id}). To return: /resume {session.id}"
    return Reply(text, session=child)


COMMAND = Command(
    "branch",
    "continue in a copy of this session",
    branch_session,
    usage="[TITLE]",
    aliases=("fork",),
)
