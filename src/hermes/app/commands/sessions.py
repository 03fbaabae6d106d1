"""/sessions: list the recent sessions of this conversation's surface."""

import time

from hermes.app.commands import CommandContext, Reply, command
from hermes.app.commands._lookup import list_own_sessions


@command("sessions", "list recent sessions, for /resume", needs_model=False)
async def show_sessions(ctx: CommandContext, args: str) -> Reply:
    rows = []
    for meta in await list_own_sessions(ctx.runtime.store, ctx.session.transcript.meta):
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(meta.updated))
        mark = "*" if meta.id == ctx.session.id else " "
        rows.append(f"{mark} {meta.id}  {used}  {meta.messages:>4}  {meta.title}".rstrip())
    return Reply("\n".join(rows) or "No sessions are stored.")
