"""/debug: details for a bug report."""

import platform

from hermes.app.commands import CommandContext, Reply, command
from hermes.config import paths
from hermes.version import VERSION


@command("debug", "details for a bug report", admin_only=True)
async def show_debug_details(ctx: CommandContext, args: str) -> Reply:
    session, setup = ctx.session, ctx.runtime.setup
    client = session.agent.providers[0]
    target = client.target
    rows = (
        ("hermes", f"{VERSION}, Python {platform.python_version()}, {platform.platform()}"),
        ("session", session.id),
        ("model", f"{target.model} ({target.provider}, {target.wire})"),
        ("address", client.endpoint.base_url),
        ("home", str(setup.home)),
        ("log", str(paths.log_file(setup.home))),
    )
    details = "\n".join(f"{name}: {value}" for name, value in rows)
    return Reply(f"{details}\nMore: hermes doctor, hermes logs.")
