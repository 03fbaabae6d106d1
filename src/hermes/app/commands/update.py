"""/update: how to update this installation."""

from hermes.app.commands import CommandContext, Reply, command
from hermes.version import VERSION


@command(
    "update",
    "how to update Hermes",
    never_waits=True,
    admin_only=True,
    surfaces="messenger",
    needs_model=False,
)
async def show_update(ctx: CommandContext, args: str) -> Reply:
    return Reply(
        f"This is hermes {VERSION}. On its machine, `hermes update` shows the command that updates "
        "it; then /restart."
    )
