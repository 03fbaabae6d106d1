"""/undo: take back the last turns, the messages and the files together."""

from __future__ import annotations

from pathlib import Path

from hermes.app.commands import Command, CommandContext, Reply, sure
from hermes.app.commands._branch import open_branch
from hermes.app.commands._files import described, preview, trouble
from hermes.app.session_chain import checkpoint_since, turn_starts
from hermes.core.errors import ConfigError
from hermes.core.text import format_plural


async def run(ctx: CommandContext, args: str) -> Reply:
    confirmed, words = sure(ctx, args)
    index = _first_index(ctx, words)
    session, home = ctx.session, ctx.runtime.setup.home
    found = await checkpoint_since(
        ctx.runtime.store,
        home,
        session.transcript.meta,
        index=index,
        length=len(session.transcript.history),
    )
    workspace = Path(session.transcript.meta.cwd)
    if not confirmed:
        shown = await preview(workspace, home, found) if found else trouble(workspace, home)
        return Reply(f"{_describe_messages(ctx, index)}\n{shown}", confirm="Undo this?")
    lines = []
    if found:
        from hermes.exec.snapshots.checkpoints import restore_checkpoint

        done = await restore_checkpoint(workspace, home, found.id)
        lines += [described(done), f"/rollback {done.before} brings these files back."]
    child = await open_branch(ctx, index)
    lines.append(f"The conversation goes on before that turn; /resume {session.id} goes back.")
    return Reply("\n".join(lines), session=child)


def _first_index(ctx: CommandContext, words: list[str]) -> int:
    """Index of the first message that is taken back."""
    session = ctx.session
    if session.busy:
        raise ConfigError("A turn is running; /stop it first.")
    count = 1
    if words:
        if len(words) > 1 or not words[0].isdecimal() or not int(words[0]):
            raise ConfigError("/undo takes how many turns, and yes: /undo 2 yes")
        count = int(words[0])
    starts = turn_starts(session.transcript.history.messages)
    if not starts:
        raise ConfigError("There is nothing to undo in this session.")
    if count > len(starts):
        raise ConfigError(f"This session has only {format_plural(len(starts), 'turn')} to undo.")
    return starts[-count]


def _describe_messages(ctx: CommandContext, index: int) -> str:
    gone = ctx.session.transcript.history.messages[index:]
    first = " ".join(gone[0].text.split())
    first = first if len(first) <= 80 else first[:77] + "..."
    return f"Takes back {format_plural(len(gone), 'message')}, from: {first}"


COMMAND = Command(
    "undo", "take back the last turn: its messages and its files", run, usage="[TURNS] [yes]"
)
