"""A slash command given as the one prompt."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec import structs

from hermes.app.commands import ONE_SHOT, CommandContext, Reply, run
from hermes.core.events import Question

if TYPE_CHECKING:
    from hermes.app.runtime import Runtime
    from hermes.app.session import Session
    from hermes.cli.terminal.approval_prompt import Asker
    from hermes.cli.terminal.progress import Status
    from hermes.core.events import Answer


class _Waiting:
    """One question of ours to the person at the terminal."""

    def __init__(self) -> None:
        self.said: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

    def reply(self, question_id: str, text: str | None) -> None:
        self.said.set_result(text)

    def answer(self, approval_id: str, answer: Answer) -> None:
        raise AssertionError("only a question was asked")


async def command(
    runtime: Runtime, session: Session, given: tuple[str, str], asker: Asker, status: Status
) -> Reply:
    """Run it; what changes something is shown first, and asked about where somebody is there."""
    name, args = given
    context = CommandContext(runtime, session, ONE_SHOT)
    reply = await run(context, name, args)
    if not reply.confirm:
        return reply
    if not asker.possible:
        status.line(f"! nothing was changed; to do it: /{name} {args}".rstrip() + " yes")
        return reply
    for line in reply.text.splitlines():
        status.line(line)
    waiting = _Waiting()
    asker.ask(Question("confirm", f"{reply.confirm} [y/N]"), waiting)
    if (await waiting.said or "").lower() not in ("y", "yes"):
        return Reply("Nothing was changed.")
    return await run(structs.replace(context, confirmed=True), name, args)
