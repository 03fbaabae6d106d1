"""/sessions: list the recent sessions of this conversation's surface."""

import time

from hermes.app.commands import Command, CommandContext, Reply
from hermes.app.commands._lookup import list_own_sessions


async def show_sessions(ctx: CommandContext, args: str) -> Reply:
    rows = []
    for meta in await list_own_sessions(ctx.runtime.store, ctx.session.transcript.meta):
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(meta.updated))
        mark = "*" if meta.id == ctx.session.id else " "
        rows.append(f"{mark} {meta.id}  {used}  {meta.messages:>4}  {meta.title}".rstrip())
    return Reply("\n".join(rows) or "No sessions are stored.")


COMMAND = Command("sessions", "list recent sessions, for /resume", show_sessions, needs_model=False)
