"""/background: a prompt that is answered in a session of its own while you go on."""

from __future__ import annotations

from pathlib import Path

from hermes.app.commands import Command, CommandContext, Reply
from hermes.core.errors import ConfigError
from hermes.core.message import user_message


async def run(ctx: CommandContext, args: str) -> Reply:
    if not args:
        raise ConfigError("/background needs the prompt; /agents shows what runs.")
    match args.split():
        case ["stop", wanted]:
            return _stop(ctx, wanted)
    mine = ctx.session
    session = await ctx.runtime.session(
        source=mine.transcript.meta.source,
        key=mine.transcript.meta.key,
        cwd=Path(mine.transcript.meta.cwd),
        options=mine.options,
    )
    ctx.runtime.errands.start(mine, session, user_message(args))
    return Reply(
        f"In the background: {session.id}. Its answer is shown when it is there; what would ask "
        f"you is not run. /background stop {session.id} ends it."
    )


def _stop(ctx: CommandContext, wanted: str) -> Reply:
    errands = ctx.runtime.errands.of(ctx.session)
    found = [one for one in errands if wanted == "all" or one.session.id == wanted]
    if not found:
        raise ConfigError(f"There is no {wanted} in the background; /agents shows what runs.")
    for one in found:
        one.session.stop()
    return Reply(f"Stopped: {', '.join(one.session.id for one in found)}. What it did is kept.")


COMMAND = Command(
    "background",
    "answer a prompt in a session of its own meanwhile",
    run,
    usage="PROMPT | stop ID",
    aliases=("bg",),
    never_waits=True,
    surfaces="live",
)
