"""/plan: plan mode, in which nothing is changed until the user has approved a plan."""

from msgspec import structs

from hermes.app.commands import CommandContext, Reply, command
from hermes.core.errors import ConfigError

_ON = "Plan mode is on: the agent reads and plans, and changes nothing until you approve its plan."
_OFF = "Plan mode is off."


@command("plan", "plan first: change nothing until you approve", "[on|off]", surfaces="live")
async def set_plan_mode(ctx: CommandContext, args: str) -> Reply:
    options = ctx.session.options
    word = args.lower() or ("off" if options.plan else "on")
    if word not in ("on", "off"):
        raise ConfigError("/plan takes on or off.")
    ctx.runtime.adapt_session(ctx.session, structs.replace(options, plan=word == "on"))
    return Reply(_ON if word == "on" else _OFF)
