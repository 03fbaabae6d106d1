"""/tools: the tools of this session."""

from hermes.app.commands import CommandContext, Reply, command


@command("tools", "the tools of this session")
async def show_tools(ctx: CommandContext, args: str) -> Reply:
    agent = ctx.session.agent
    if not agent.tools:
        return Reply("This session has no tools.")
    offered = {spec.name for spec in agent.specs}
    declared = [name for name in agent.tools if name in offered]
    searchable = [name for name in agent.tools if name not in offered]
    lines = ["always offered: " + ", ".join(declared)]
    if searchable:
        lines.append("found by search: " + ", ".join(searchable))
    lines.append("To change this for new sessions: hermes tools enable|disable NAME")
    return Reply("\n".join(lines))
