"""/whoami: who the agent takes you for."""

from __future__ import annotations

from hermes.app.commands import Command, CommandContext, Reply


async def run(ctx: CommandContext, args: str) -> Reply:
    meta, setup = ctx.session.transcript.meta, ctx.runtime.setup
    rows = [
        ("surface", meta.source),
        ("conversation", meta.key),
        ("rights", "administrator" if ctx.admin else "user"),
        ("profile", setup.profile_name),
    ]
    return Reply("\n".join(f"{name}: {value}" for name, value in rows if value))


COMMAND = Command("whoami", "who the agent takes you for", run, needs_model=False)
