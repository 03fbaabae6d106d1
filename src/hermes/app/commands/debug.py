"""/debug: what somebody who is to help would ask first."""

from __future__ import annotations

import platform

from hermes.app.commands import Command, CommandContext, Reply
from hermes.config import paths
from hermes.version import VERSION


async def run(ctx: CommandContext, args: str) -> Reply:
    session, setup = ctx.session, ctx.runtime.setup
    endpoint = session.agent.providers[0]
    rows = (
        ("hermes", f"{VERSION}, Python {platform.python_version()}, {platform.platform()}"),
        ("session", session.id),
        ("model", f"{endpoint.target.model} ({endpoint.target.provider}, {endpoint.target.wire})"),
        ("address", endpoint.endpoint.base_url),
        ("home", str(setup.home)),
        ("log", str(paths.log_file(setup.home))),
    )
    told = "\n".join(f"{name}: {value}" for name, value in rows)
    return Reply(f"{told}\nMore: hermes doctor, hermes logs.")


COMMAND = Command("debug", "what to tell somebody who helps you", run, admin=True)
