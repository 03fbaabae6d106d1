"""/toolsets: all available tools, by group."""

from hermes.app.commands import CommandContext, Reply, command
from hermes.tools.registry import list_toolsets


@command("toolsets", "all available tools, by group")
async def show_toolsets(ctx: CommandContext, args: str) -> Reply:
    mine = ctx.session.agent.tools
    lines = []
    for toolset, tools in list_toolsets().items():
        marked = [name if name in mine else f"({name})" for name in tools]
        if marked:
            lines.append(f"{toolset}: {', '.join(marked)}")
    return Reply("\n".join([*lines, "In parentheses: not in this session."]))
