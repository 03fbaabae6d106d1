"""/steer: guide the running turn."""

from hermes.app.commands import CommandContext, Reply, command
from hermes.core.errors import ConfigError
from hermes.core.message import user_message


@command("steer", "guide the running turn", "TEXT", never_waits=True, surfaces="live")
async def steer_turn(ctx: CommandContext, args: str) -> Reply:
    if not args:
        raise ConfigError("/steer needs a text.")
    if not ctx.session.is_steerable:
        return Reply(
            "No turn is running, so this was sent as a message.", submit=user_message(args)
        )
    ctx.session.submit(user_message(args), "steer")
    return Reply("Steering: the agent reads this after its current step.")
