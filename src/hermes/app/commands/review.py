"""/review: have the agent review changes."""

from hermes.app.commands import CommandContext, Reply, command
from hermes.core.message import user_message

_CHANGES = "the uncommitted changes in this folder (git status, git diff HEAD, untracked files)"
_TASK = (
    "Review {what}. Look for mistakes, missing cases and tests, security problems and needless "
    "complexity; read the code around the changes before you judge. List the findings, the gravest "
    "first, each with file and line and what to do. If there are none, say so. Change nothing."
)


@command("review", "have the agent review changes", "[WHAT]", surfaces="live")
async def review_changes(ctx: CommandContext, args: str) -> Reply:
    return Reply(submit=user_message(_TASK.format(what=args or _CHANGES)))
