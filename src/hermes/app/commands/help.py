"""/help: list the commands, or explain one."""

from hermes.app.commands import (
    ONE_SHOT,
    Command,
    CommandContext,
    Reply,
    command,
    load_commands,
    require_command,
)


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
    width = max(len(c.name) for c in commands)
    return Reply("\n".join(f"/{c.name.ljust(width)}  {c.help}" for c in commands))


def _describe_command(command: Command) -> str:
    lines = [f"/{command.name} {command.usage}".rstrip(), command.help]
    if command.aliases:
        lines.append("also: " + ", ".join(f"/{alias}" for alias in command.aliases))
    return "\n".join(lines)
