"""/toolsets: all available tools, by group."""

from hermes.app.commands import Command, CommandContext, Reply
from hermes.tools.registry import list_toolsets


async def show_toolsets(ctx: CommandContext, args: str) -> Reply:
    mine = ctx.session.agent.tools
    lines = []
    for toolset, tools in list_toolsets().items():
        marked = [name if name in mine else f"({name})" for name in tools]
        if marked:
            lines.append(f"{toolset}: {', '.join(marked)}")
    return Reply("\n".join([*lines, "In parentheses: not in this session."]))


COMMAND = Command("toolsets", "all available tools, by group", show_toolsets)
