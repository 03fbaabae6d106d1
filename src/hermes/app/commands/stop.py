"""/stop: stop the running turn at once."""

from hermes.app.commands import CommandContext, Reply, command

STOPPED = "⚡ Force-stopped. The session is suspended — your next message will start fresh."
STARTING = "⚡ Force-stopped. The agent was still starting — your next message will start fresh."
IDLE = "No active task to stop."


@command("stop", "stop the running turn", never_waits=True, needs_model=False)
async def stop_turn(ctx: CommandContext, args: str) -> Reply:
    session = ctx.session
    running, starting = session.is_busy, session.is_starting
    if not (running or starting):
        return Reply(IDLE)
    session.stop()
    return Reply(STOPPED if running else STARTING, suspend=True)
