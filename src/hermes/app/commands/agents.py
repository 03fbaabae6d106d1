"""/agents: what works for you at the moment, in this conversation and in the background."""

from __future__ import annotations

import time

from hermes.app.commands import Command, CommandContext, Reply

_SHOWN = 120


async def run(ctx: CommandContext, args: str) -> Reply:
    session = ctx.session
    doing = "works" if session.busy else "waits for your next message"
    lines = [f"{session.transcript.meta.title or session.id}: {doing}"]
    now = time.time()
    for record in ctx.runtime.background.running(session.transcript.meta, session.id):
        command = " ".join(record.command.split())[:_SHOWN]
        lines.append(f"{record.id}: {command} ({int(max(0, now - record.started))} s)")
    for errand in ctx.runtime.errands.of(session):
        prompt = " ".join(errand.prompt.split())[:_SHOWN]
        lines.append(f"{errand.session.id}: {prompt} ({int(max(0, now - errand.since))} s)")
    if len(lines) == 1:
        lines.append("Nothing runs in the background.")
    return Reply("\n".join(lines))


COMMAND = Command(
    "agents",
    "what is at work, and what runs in the background",
    run,
    never_waits=True,
    needs_model=False,
)
