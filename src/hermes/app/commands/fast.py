"""/fast: pay more to be answered sooner."""

from msgspec import structs

from hermes.app.commands import CommandContext, Reply, command
from hermes.app.commands._price import describe_reread_cost
from hermes.core.errors import ConfigError


@command("fast", "pay more to be answered sooner, or not", "[on|off]", surfaces="live")
async def set_fast(ctx: CommandContext, args: str) -> Reply:
    session, word = ctx.session, args.lower()
    if word not in ("", "on", "off", "status"):
        raise ConfigError("/fast takes on or off.")
    before = session.agent
    if word in ("on", "off"):
        endpoint = before.providers[0].endpoint
        if word == "on" and not endpoint.quirks.fast:
            raise ConfigError(f"{endpoint.target.provider} offers no fast mode.")
        ctx.runtime.adapt_session(session, structs.replace(session.options, fast=word == "on"))
    state = "on" if session.options.fast else "off"
    cost = describe_reread_cost(session, before) if word in ("on", "off") else ""
    return Reply(f"Fast mode: {state}.{cost}")
