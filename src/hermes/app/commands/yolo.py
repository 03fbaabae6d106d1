"""/yolo: nothing is asked in this session, until it is turned off."""

from __future__ import annotations

from msgspec import structs

from hermes.app.commands import Command, CommandContext, Reply
from hermes.core.errors import ConfigError

_ON = "Nothing is asked any more, and nothing is confined. /yolo off ends it."
_OFF = "Questions are asked again."


async def run(ctx: CommandContext, args: str) -> Reply:
    options = ctx.session.options
    word = args.lower() or ("off" if options.yolo else "on")
    if word not in ("on", "off"):
        raise ConfigError("/yolo takes on or off.")
    ctx.runtime.adapt(ctx.session, structs.replace(options, yolo=word == "on"))
    return Reply(_ON if word == "on" else _OFF)


COMMAND = Command(
    "yolo",
    "run tools without asking, in this session",
    run,
    "[on|off]",
    admin=True,
    surfaces="live",
)
