"""/help: what there is, or how one command is used."""

from __future__ import annotations

from hermes.app.commands import ONE_SHOT, Command, CommandContext, Reply, known, registry


async def run(ctx: CommandContext, args: str) -> Reply:
    if args:
        return Reply(_one(known(args.lstrip("/").lower())))
    shown = [
        c
        for c in registry()
        if (ctx.admin or not c.admin) and (c.surfaces == "all" or ctx.surface != ONE_SHOT)
    ]
    width = max(len(c.name) for c in shown)
    return Reply("\n".join(f"/{c.name.ljust(width)}  {c.help}" for c in shown))


def _one(command: Command) -> str:
    lines = [f"/{command.name} {command.usage}".rstrip(), command.help]
    if command.aliases:
        lines.append("also: " + ", ".join(f"/{alias}" for alias in command.aliases))
    return "\n".join(lines)


COMMAND = Command(
    "help",
    "list the commands, or explain one",
    run,
    usage="[COMMAND]",
    aliases=("commands",),
    never_waits=True,
    needs_model=False,
)
