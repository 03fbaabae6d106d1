"""/deny: say no to what waits for an approval."""

from __future__ import annotations

from hermes.app.commands import Command, CommandContext, Reply
from hermes.app.commands.approve import waiting


async def run(ctx: CommandContext, args: str) -> Reply:
    question = waiting(ctx, args)
    ctx.session.interactions.answer(question.id, "deny")
    return Reply(f"Denied: {question.call.name}.")


COMMAND = Command(
    "deny", "refuse what waits for an approval", run, "[ID]", never_waits=True, surfaces="live"
)
