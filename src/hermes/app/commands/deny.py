"""/deny: deny the pending request."""

from hermes.app.commands import Command, CommandContext, Reply
from hermes.app.commands.approve import find_pending


async def deny_pending(ctx: CommandContext, args: str) -> Reply:
    question = find_pending(ctx, args)
    ctx.session.interactions.answer_approval(question.id, "deny")
    return Reply(f"Denied: {question.call.name}.")


COMMAND = Command(
    "deny", "deny the pending request", deny_pending, "[ID]", never_waits=True, surfaces="live"
)
