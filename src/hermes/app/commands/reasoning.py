"""/reasoning: how much the model thinks before it answers."""

from __future__ import annotations

from typing import get_args

from msgspec import structs

from hermes.app.commands import Command, CommandContext, Reply
from hermes.app.commands._price import price
from hermes.core.errors import ConfigError
from hermes.core.provider import Effort

_WORDS: dict[str, Effort] = {"on": "medium", "off": "none"}


async def run(ctx: CommandContext, args: str) -> Reply:
    session = ctx.session
    now = session.agent.settings.effort
    if not args:
        return Reply(f"Reasoning: {now or 'as the provider likes'}.")
    word = args.lower()
    configured = ctx.runtime.setup.config.agent.reasoning_effort
    effort: Effort | None = _WORDS.get(word)
    if word == "on" and configured not in (None, "none"):
        effort = configured
    for level in get_args(Effort):
        if word == level:
            effort = level
    if effort is None:
        levels = ", ".join((*get_args(Effort), *_WORDS))
        raise ConfigError(f"/reasoning takes one of {levels}.")
    before = session.agent
    ctx.runtime.adapt(session, structs.replace(session.options, effort=effort))
    return Reply(f"Reasoning: {effort}." + price(session, before))


COMMAND = Command(
    "reasoning",
    "how much the model thinks",
    run,
    usage=f"[{'|'.join((*get_args(Effort), *_WORDS))}]",
    surfaces="live",
)
