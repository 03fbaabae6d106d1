"""/whoami: who you are logged in as."""

from hermes.app.commands import Command, CommandContext, Reply


async def show_identity(ctx: CommandContext, args: str) -> Reply:
    meta, setup = ctx.session.transcript.meta, ctx.runtime.setup
    rows = [
        ("surface", meta.source),
        ("conversation", meta.key),
        ("rights", "administrator" if ctx.is_admin else "user"),
        ("profile", setup.profile_name),
    ]
    return Reply("\n".join(f"{name}: {value}" for name, value in rows if value))


COMMAND = Command("whoami", "who you are logged in as", show_identity, needs_model=False)
