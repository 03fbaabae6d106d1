"""/whoami: who you are logged in as."""

from hermes.app.commands import CommandContext, Reply, command


@command("whoami", "who you are logged in as", never_waits=True, needs_model=False)
async def show_identity(ctx: CommandContext, args: str) -> Reply:
    meta, setup = ctx.session.transcript.meta, ctx.runtime.setup
    rows = [
        ("surface", meta.source),
        ("conversation", meta.key),
        ("rights", "administrator" if ctx.is_admin else "user"),
        ("profile", setup.profile_name),
    ]
    return Reply("\n".join(f"{name}: {value}" for name, value in rows if value))
