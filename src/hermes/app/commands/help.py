"""/help: list the commands, or explain one."""

import asyncio
from pathlib import Path

from hermes.app.commands import (
    ONE_SHOT,
    Command,
    CommandContext,
    Reply,
    command,
    load_commands,
    require_command,
)
from hermes.app.commands._own import list_own_commands


@command(
    "help",
    "list the commands, or explain one",
    "[COMMAND]",
    aliases=("commands",),
    never_waits=True,
    needs_model=False,
)
async def show_help(ctx: CommandContext, args: str) -> Reply:
    if args:
        return Reply(_describe_command(require_command(args.lstrip("/").lower())))
    commands = [
        c
        for c in load_commands()
        if (ctx.is_admin or not c.admin_only)
        and (c.surfaces == "all" or (c.surfaces == "live" and ctx.surface != ONE_SHOT))
    ]
    home, folder = ctx.runtime.setup.home, Path(ctx.session.transcript.meta.cwd)
    own = await asyncio.to_thread(list_own_commands, home, folder)
    rows = [(c.name, _help_with_aliases(c)) for c in commands]
    rows += [(c.name, f"{c.help} (your own)") for c in own.values()]
    if ctx.runtime.plugins is not None:
        rows += [(c.name, f"{c.help} (plugin)") for c in ctx.runtime.plugins.commands.values()]
    width = max(len(name) for name, _ in rows)
    return Reply("\n".join(f"/{name.ljust(width)}  {text}" for name, text in rows))


def _help_with_aliases(command: Command) -> str:
    also = ", ".join(f"/{alias}" for alias in command.aliases)
    return f"{command.help} (also {also})" if also else command.help


def _describe_command(command: Command) -> str:
    lines = [f"/{command.name} {command.usage}".rstrip(), command.help]
    if command.aliases:
        lines.append("also: " + ", ".join(f"/{alias}" for alias in command.aliases))
    return "\n".join(lines)
