"""/deny: deny the pending request."""

from hermes.app.commands import CommandContext, Reply, command
from hermes.app.commands.approve import find_pending


@command("deny", "deny the pending request", "[ID]", never_waits=True, surfaces="live")
async def deny_pending(ctx: CommandContext, args: str) -> Reply:
    question = find_pending(ctx, args)
    ctx.session.interactions.answer_approval(question.id, "deny")
    return Reply(f"Denied: {question.call.name}.")
