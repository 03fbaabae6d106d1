"""/init: have the agent write AGENTS.md for this project."""

from hermes.app.commands import CommandContext, Reply, command
from hermes.core.message import user_message

_TASK = (
    "Write AGENTS.md for this project: notes for AI agents that will work on it. Look at the "
    "README, the build files, the tests and the layout first. Say how to build, test and run it, "
    "what is where, and which conventions the code follows; leave out what every developer knows. "
    "Keep it under 60 lines. If the file exists, improve it and keep what is right in it."
)


@command("init", "have the agent write AGENTS.md for this project", "[WISHES]", surfaces="live")
async def write_notes(ctx: CommandContext, args: str) -> Reply:
    return Reply(submit=user_message(f"{_TASK} {args}".rstrip()))
