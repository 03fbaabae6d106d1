"""/status: the session, its model, and what it may do."""

from __future__ import annotations

from hermes.app.commands import Command, CommandContext, Reply
from hermes.core.text import format_plural


async def run(ctx: CommandContext, args: str) -> Reply:
    session, config = ctx.session, ctx.runtime.setup.config
    target = session.agent.providers[0].target
    yolo = session.options.yolo
    waiting = len(session.interactions.approvals) + len(session.interactions.questions)
    doing = "working" if session.busy else "starting" if session.starting else "idle"
    rows = [
        ("session", session.id),
        ("title", session.transcript.meta.title),
        ("doing", doing + (f", waiting for {format_plural(waiting, 'answer')}" if waiting else "")),
        ("messages", str(len(session.transcript.history))),
        ("model", f"{target.model} ({target.provider})"),
        ("folder", session.transcript.meta.cwd),
        ("approvals", "nothing is asked (yolo)" if yolo else config.approvals.mode),
        ("sandbox", "full-access" if yolo else config.sandbox.mode),
        ("branch of", session.transcript.meta.parent),
    ]
    return Reply("\n".join(f"{name}: {value}" for name, value in rows if value))


COMMAND = Command("status", "the session, its model, and what it may do", run, never_waits=True)
