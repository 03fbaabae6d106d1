"""/sessions: the stored conversations of this place."""

from __future__ import annotations

import time

from hermes.app.commands import Command, CommandContext, Reply
from hermes.app.commands._lookup import here


async def run(ctx: CommandContext, args: str) -> Reply:
    rows = []
    for meta in await here(ctx):
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(meta.updated))
        mark = "*" if meta.id == ctx.session.id else " "
        rows.append(f"{mark} {meta.id}  {used}  {meta.messages:>4}  {meta.title}".rstrip())
    return Reply("\n".join(rows) or "No sessions are stored.")


COMMAND = Command(
    "sessions", "the latest sessions; /resume goes on with one", run, needs_model=False
)
