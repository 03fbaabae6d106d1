"""/toolsets: the tools there are, in their groups."""

from __future__ import annotations

from hermes.app.commands import Command, CommandContext, Reply
from hermes.tools.registry import list_toolsets


async def run(ctx: CommandContext, args: str) -> Reply:
    mine = ctx.session.agent.tools
    lines = []
    for toolset, tools in list_toolsets().items():
        marked = [name if name in mine else f"({name})" for name in tools]
        if marked:
            lines.append(f"{toolset}: {', '.join(marked)}")
    return Reply("\n".join([*lines, "In brackets: not in this session."]))


COMMAND = Command("toolsets", "all tools there are, in their groups", run)
