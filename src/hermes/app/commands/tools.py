"""/tools: what the agent can use in this session."""

from __future__ import annotations

from hermes.app.commands import Command, CommandContext, Reply


async def run(ctx: CommandContext, args: str) -> Reply:
    agent = ctx.session.agent
    if not agent.tools:
        return Reply("This session has no tools.")
    offered = {spec.name for spec in agent.specs}
    shown = [name for name in agent.tools if name in offered]
    found = [name for name in agent.tools if name not in offered]
    lines = ["always there: " + ", ".join(shown)]
    if found:
        lines.append("found when needed: " + ", ".join(found))
    lines.append("hermes tools enable|disable NAME changes it for new sessions.")
    return Reply("\n".join(lines))


COMMAND = Command("tools", "the tools of this session", run)
