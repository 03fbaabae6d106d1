"""/profile: the active profile and its folder."""

from hermes.app.commands import CommandContext, Reply, command


@command("profile", "the active profile and its folder", never_waits=True, needs_model=False)
async def show_profile(ctx: CommandContext, args: str) -> Reply:
    setup = ctx.runtime.setup
    lines = [f"profile: {setup.profile_name}"]
    if ctx.is_admin:
        lines += [
            f"home: {setup.home}",
            "To use another: hermes -p NAME. See also: hermes profile list.",
        ]
    return Reply("\n".join(lines))
