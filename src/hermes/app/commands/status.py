"""/status: the session, its model and its permissions."""

from hermes.app.commands import CommandContext, Reply, command
from hermes.core.text import format_plural


@command("status", "the session, its model and its permissions", never_waits=True)
async def show_status(ctx: CommandContext, args: str) -> Reply:
    session, config = ctx.session, ctx.runtime.setup.config
    target = session.agent.providers[0].target
    yolo = session.options.yolo
    interactions = session.interactions
    waiting = len(interactions.pending_approvals) + len(interactions.pending_questions)
    activity = "working" if session.is_busy else "starting" if session.is_starting else "idle"
    if waiting:
        activity += f", waiting for {format_plural(waiting, 'answer')}"
    rows = [
        ("session", session.id),
        ("title", session.transcript.meta.title),
        ("state", activity),
        ("messages", str(len(session.transcript.history))),
        ("model", f"{target.model} ({target.provider})"),
        ("folder", session.transcript.meta.cwd),
        ("approvals", "off (yolo)" if yolo else config.approvals.mode),
        ("sandbox", "full-access" if yolo else config.sandbox.mode),
        ("branch of", session.transcript.meta.parent),
    ]
    return Reply("\n".join(f"{name}: {value}" for name, value in rows if value))
