"""/agents: what is running, in this conversation and in the background."""

import time

from hermes.app.commands import CommandContext, Reply, command

_MAX_CHARS = 120


@command("agents", "running and background work", never_waits=True, needs_model=False)
async def list_agents(ctx: CommandContext, args: str) -> Reply:
    session, meta, now = ctx.session, ctx.session.transcript.meta, time.time()
    activity = "working" if session.is_busy else "waiting for your next message"
    lines = [f"{meta.title or session.id}: {activity}"]
    processes = ctx.runtime.background_commands.list_running(meta)
    prompts = ctx.runtime.background_prompts.list_prompts(session)
    for name, text, started in (
        *((process.id, process.command, process.started) for process in processes),
        *((prompt.session.id, prompt.text, prompt.started) for prompt in prompts),
    ):
        text = " ".join(text.split())[:_MAX_CHARS]
        lines.append(f"{name}: {text} ({int(max(0, now - started))} s)")
    if not processes and not prompts:
        lines.append("Nothing runs in the background.")
    return Reply("\n".join(lines))
