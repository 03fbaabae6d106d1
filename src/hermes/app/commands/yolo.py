"""/yolo: turn approvals and the sandbox off for this session, or on again."""

from msgspec import structs

from hermes.app.commands import CommandContext, Reply, command
from hermes.core.errors import ConfigError

_ON = "Approvals and sandbox are OFF for this session. To turn them on: /yolo off"
_OFF = "Approvals and sandbox are on again."


@command(
    "yolo",
    "turn off approvals and the sandbox for this session",
    "[on|off]",
    admin_only=True,
    surfaces="live",
)
async def set_yolo(ctx: CommandContext, args: str) -> Reply:
    options = ctx.session.options
    word = args.lower() or ("off" if options.yolo else "on")
    if word not in ("on", "off"):
        raise ConfigError("/yolo takes on or off.")
    ctx.runtime.adapt_session(ctx.session, structs.replace(options, yolo=word == "on"))
    return Reply(_ON if word == "on" else _OFF)
