"""/approve: approve the pending request."""

from typing import get_args

from hermes.app.commands import CommandContext, Reply, command
from hermes.core.errors import ConfigError
from hermes.core.events import Answer, Approval


@command(
    "approve",
    "approve the pending request",
    "[once|session|always] [ID]",
    never_waits=True,
    surfaces="live",
)
async def approve_pending(ctx: CommandContext, args: str) -> Reply:
    answer: Answer = "once"
    wanted = ""
    choices = {choice: choice for choice in get_args(Answer) if choice != "deny"}
    for word in args.split():
        if word.lower() in choices:
            answer = choices[word.lower()]
        else:
            wanted = word
    question = find_pending(ctx, wanted)
    if not ctx.session.interactions.answer_approval(question.id, answer):
        raise ConfigError(f"This request can be answered with: {', '.join(question.choices)}.")
    rules = f" Saved rule: {'; '.join(question.rules)}" if answer == "always" else ""
    return Reply(f"Allowed ({answer}): {question.call.name}.{rules}")


def find_pending(ctx: CommandContext, wanted: str) -> Approval:
    """The oldest pending request, or the one with that id."""
    questions = ctx.session.interactions.pending_approvals
    if not questions:
        raise ConfigError("No request is waiting for approval.")
    found = [q for q in questions if q.id == wanted] if wanted else list(questions)
    if not found:
        raise ConfigError(f"No request {wanted} is waiting for approval.")
    return found[0]
