"""/reasoning: show or set the reasoning effort of the model."""

from typing import get_args

from msgspec import structs

from hermes.app.commands import CommandContext, Reply, command
from hermes.app.commands._price import describe_reread_cost
from hermes.core.errors import ConfigError
from hermes.core.provider import Effort

_LEVELS: dict[str, Effort] = {level: level for level in get_args(Effort)}
_LEVELS |= {"on": "medium", "off": "none"}


@command("reasoning", "show or set the reasoning effort", f"[{'|'.join(_LEVELS)}]", surfaces="live")
async def set_effort(ctx: CommandContext, args: str) -> Reply:
    session = ctx.session
    if not args:
        current = session.agent.settings.effort or "provider's default"
        return Reply(f"Reasoning effort: {current}.")
    word = args.lower()
    configured = ctx.runtime.setup.config.agent.reasoning_effort
    effort = _LEVELS.get(word)
    if word == "on" and configured not in (None, "none"):
        effort = configured
    if effort is None:
        raise ConfigError(f"/reasoning takes one of: {', '.join(_LEVELS)}.")
    before = session.agent
    ctx.runtime.adapt_session(session, structs.replace(session.options, effort=effort))
    return Reply(f"Reasoning effort: {effort}." + describe_reread_cost(session, before))
