"""/background: answer a prompt in a separate session while the conversation continues."""

from pathlib import Path

from hermes.app.commands import CommandContext, Reply, command
from hermes.core.errors import ConfigError
from hermes.core.message import user_message


@command(
    "background",
    "answer a prompt in the background",
    "PROMPT | stop ID",
    aliases=("bg",),
    never_waits=True,
    surfaces="live",
)
async def start_background(ctx: CommandContext, args: str) -> Reply:
    if not args:
        raise ConfigError("/background needs a prompt. /agents shows what is running.")
    match args.split():
        case ["stop", wanted]:
            return _stop_prompts(ctx, wanted)
    mine, meta = ctx.session, ctx.session.transcript.meta
    session = await ctx.runtime.open_session(
        source=meta.source, key=meta.key, cwd=Path(meta.cwd), options=mine.options
    )
    ctx.runtime.background_prompts.start_prompt(mine, session, user_message(args))
    return Reply(
        f"In the background: {session.id}. The answer appears here when it is ready. Commands that "
        f"need approval are skipped. To stop it: /background stop {session.id}"
    )


def _stop_prompts(ctx: CommandContext, wanted: str) -> Reply:
    prompts = ctx.runtime.background_prompts.list_prompts(ctx.session)
    sessions = [p.session for p in prompts if wanted in ("all", p.session.id)]
    if not sessions:
        raise ConfigError(f"There is no {wanted} in the background. See /agents.")
    for session in sessions:
        session.stop()
    return Reply(f"Stopped: {', '.join(s.id for s in sessions)}. What was done is kept.")
