"""/busy: what happens to messages sent while the agent works."""

from hermes.app.commands import CommandContext, Reply, command
from hermes.config.schema import BusyMode
from hermes.core.errors import ConfigError

_MEANING: dict[BusyMode, str] = {
    "interrupt": "stop the current turn",
    "steer": "steer the current turn",
    "queue": "wait for the current turn to end",
}


@command("busy", "what Enter does while it works", "[queue|steer|interrupt]", surfaces="live")
async def set_busy_mode(ctx: CommandContext, args: str) -> Reply:
    interactions = ctx.session.interactions
    if args:
        modes = [mode for mode in _MEANING if mode == args.lower()]
        if not modes:
            raise ConfigError(f"/busy takes one of: {', '.join(_MEANING)}.")
        interactions.busy_mode = modes[0]
    mode = interactions.busy_mode
    return Reply(f"Messages sent while it works: {_MEANING[mode]} ({mode}).")
