"""/profile: whose configuration, keys and sessions these are."""

from __future__ import annotations

from hermes.app.commands import Command, CommandContext, Reply


async def run(ctx: CommandContext, args: str) -> Reply:
    setup = ctx.runtime.setup
    lines = [f"profile: {setup.profile_name}"]
    if ctx.admin:
        lines += [f"home: {setup.home}", "Another one: hermes -p NAME; hermes profile list."]
    return Reply("\n".join(lines))


COMMAND = Command(
    "profile", "which profile this is, and where it lives", run, never_waits=True, needs_model=False
)
