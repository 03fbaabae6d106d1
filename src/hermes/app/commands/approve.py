"""/approve: say yes to what waits for it."""

from __future__ import annotations

from typing import get_args

from hermes.app.commands import Command, CommandContext, Reply
from hermes.core.errors import ConfigError
from hermes.core.events import Answer, Approval


async def run(ctx: CommandContext, args: str) -> Reply:
    answer: Answer = "once"
    wanted = ""
    for word in args.split():
        for choice in get_args(Answer):
            if word.lower() == choice and choice != "deny":
                answer = choice
                break
        else:
            wanted = word
    question = waiting(ctx, wanted)
    if not ctx.session.interactions.answer(question.id, answer):
        raise ConfigError(f"That can be answered with: {', '.join(question.choices)}.")
    saved = f" The rule: {'; '.join(question.rules)}" if answer == "always" else ""
    return Reply(f"Allowed ({answer}): {question.call.name}.{saved}")


def waiting(ctx: CommandContext, wanted: str) -> Approval:
    """The oldest question, or the one with that id."""
    questions = ctx.session.interactions.approvals
    if not questions:
        raise ConfigError("Nothing waits for an approval.")
    found = [q for q in questions if q.id == wanted] if wanted else list(questions)
    if not found:
        raise ConfigError(f"Nothing called {wanted} waits for an approval.")
    return found[0]


COMMAND = Command(
    "approve",
    "allow what waits for it",
    run,
    usage="[once|session|always] [ID]",
    never_waits=True,
    surfaces="live",
)
