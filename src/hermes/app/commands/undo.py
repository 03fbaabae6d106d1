"""/undo: take back the last turns, the messages and the files together."""

from __future__ import annotations

from pathlib import Path

from hermes.app.branching import branch, checkpoint_since, starts
from hermes.app.commands import Command, CommandContext, Reply, sure
from hermes.app.commands._files import described, preview, trouble
from hermes.core.errors import ConfigError
from hermes.core.text import counted


async def run(ctx: CommandContext, args: str) -> Reply:
    confirmed, words = sure(ctx, args)
    place = _place(ctx, words)
    session, home = ctx.session, ctx.runtime.setup.home
    found = await checkpoint_since(ctx.runtime, session, place)
    workspace = Path(session.meta.cwd)
    if not confirmed:
        shown = await preview(workspace, home, found) if found else trouble(workspace, home)
        return Reply(f"{_messages(ctx, place)}\n{shown}", confirm="Undo this?")
    lines = []
    if found:
        from hermes.exec.snapshots.checkpoints import restore_checkpoint

        done = await restore_checkpoint(workspace, home, found.id)
        lines += [described(done), f"/rollback {done.before} brings these files back."]
    child = await branch(ctx.runtime, session, place)
    lines.append(f"The conversation goes on before that turn; /resume {session.id} goes back.")
    return Reply("\n".join(lines), session=child)


def _place(ctx: CommandContext, words: list[str]) -> int:
    """Of the first message that is taken back."""
    session = ctx.session
    if session.busy:
        raise ConfigError("A turn is running; /stop it first.")
    count = 1
    if words:
        if len(words) > 1 or not words[0].isdecimal() or not int(words[0]):
            raise ConfigError("/undo takes how many turns, and yes: /undo 2 yes")
        count = int(words[0])
    places = starts(session.history.messages)
    if not places:
        raise ConfigError("There is nothing to undo in this session.")
    if count > len(places):
        raise ConfigError(f"This session has only {counted(len(places), 'turn')} to undo.")
    return places[-count]


def _messages(ctx: CommandContext, place: int) -> str:
    gone = ctx.session.history.messages[place:]
    first = " ".join(gone[0].text.split())
    first = first if len(first) <= 80 else first[:77] + "..."
    return f"Takes back {counted(len(gone), 'message')}, from: {first}"


COMMAND = Command(
    "undo", "take back the last turn: its messages and its files", run, usage="[TURNS] [yes]"
)
