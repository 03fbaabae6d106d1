"""/rollback: the folder as it was at an earlier checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hermes.app.commands import Command, CommandContext, Reply, sure
from hermes.app.commands._files import described, preview, trouble, when
from hermes.app.session_chain import readable_label
from hermes.core.errors import ConfigError
from hermes.core.text import format_plural

if TYPE_CHECKING:
    from hermes.exec.snapshots.checkpoints import Checkpoint

_LISTED = 20


async def run(ctx: CommandContext, args: str) -> Reply:
    from hermes.exec.snapshots.checkpoints import list_checkpoints, restore_checkpoint

    confirmed, words = sure(ctx, args)
    workspace, home = Path(ctx.session.transcript.meta.cwd), ctx.runtime.setup.home
    made = await list_checkpoints(workspace, home)
    if not words:
        return Reply(_list(made) or f"There are no checkpoints. {trouble(workspace, home)}")
    if ctx.session.busy:
        raise ConfigError("A turn is running; /stop it first.")
    found = _find(made, words[0])
    paths = [str(workspace / word) for word in words[1:]]
    if not confirmed:
        return Reply(await preview(workspace, home, found), confirm="Go back to this?")
    done = await restore_checkpoint(workspace, home, found.id, paths)
    return Reply(f"{described(done)}\n/rollback {done.before} undoes this.")


def _list(made: list[Checkpoint]) -> str:
    rows = [
        f"{number}. {c.id}  {when(c)}  {format_plural(c.files, 'file')}  "
        f"{readable_label(c.label)}".rstrip()
        for number, c in enumerate(made[:_LISTED], 1)
    ]
    if rows:
        rows.append("/rollback NUMBER shows what would change, /rollback NUMBER yes goes back.")
    return "\n".join(rows)


def _find(made: list[Checkpoint], word: str) -> Checkpoint:
    if word.isdecimal() and 1 <= int(word) <= len(made) and len(word) < 4:
        return made[int(word) - 1]
    found = [c for c in made if c.id.startswith(word)]
    match [c for c in found if c.id == word] or found:
        case [one]:
            return one
        case []:
            raise ConfigError(f"There is no checkpoint {word}; /rollback lists them.")
        case _:
            raise ConfigError(f"{word} fits several checkpoints; give more of the id.")


COMMAND = Command(
    "rollback",
    "list the checkpoints of this folder, go back to one",
    run,
    usage="[NUMBER|ID] [PATH...] [yes]",
    admin=True,
    needs_model=False,
)
