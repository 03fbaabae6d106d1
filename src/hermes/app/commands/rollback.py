"""/rollback: list the checkpoints of the folder, or restore one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hermes.app.commands import CommandContext, Reply, command, require_idle, take_confirmation
from hermes.app.commands._files import (
    describe_restored,
    explain_no_files,
    format_time,
    preview_restore,
)
from hermes.app.session_records import strip_label_mark
from hermes.core.errors import ConfigError
from hermes.core.text import format_plural

if TYPE_CHECKING:
    from hermes.exec.snapshots.checkpoints import Checkpoint

_MAX_LISTED = 20


@command(
    "rollback",
    "list the checkpoints of this folder, or restore one",
    "[NUMBER|ID] [PATH...] [yes]",
    admin_only=True,
    needs_model=False,
)
async def roll_back(ctx: CommandContext, args: str) -> Reply:
    from hermes.exec.snapshots.checkpoints import list_checkpoints, restore_checkpoint

    confirmed, words = take_confirmation(ctx, args)
    workspace, home = Path(ctx.session.transcript.meta.cwd), ctx.runtime.setup.home
    made = await list_checkpoints(workspace, home)
    if not words:
        return Reply(
            _list_checkpoints(made)
            or f"There are no checkpoints. {explain_no_files(workspace, home)}"
        )
    require_idle(ctx.session)
    found = _find_checkpoint(made, words[0])
    paths = [str(workspace / word) for word in words[1:]]
    if not confirmed:
        preview = await preview_restore(workspace, home, found, paths)
        return Reply(preview, confirm="Restore these files?")
    done = await restore_checkpoint(workspace, home, found.id, paths)
    return Reply(f"{describe_restored(done)}\nTo undo this: /rollback {done.before}")


def _list_checkpoints(made: list[Checkpoint]) -> str:
    rows = [
        f"{number}. {c.id}  {format_time(c)}  {format_plural(c.files, 'file')}  "
        f"{strip_label_mark(c.label)}".rstrip()
        for number, c in enumerate(made[:_MAX_LISTED], 1)
    ]
    if rows:
        rows.append("/rollback NUMBER shows what would change; /rollback NUMBER yes restores it.")
    return "\n".join(rows)


def _find_checkpoint(made: list[Checkpoint], word: str) -> Checkpoint:
    if word.isdecimal() and 1 <= int(word) <= len(made) and len(word) < 4:
        return made[int(word) - 1]
    found = [c for c in made if c.id.startswith(word)]
    match [c for c in found if c.id == word] or found:
        case [checkpoint]:
            return checkpoint
        case []:
            raise ConfigError(f"There is no checkpoint {word}. /rollback lists them.")
        case _:
            raise ConfigError(f"{word} matches several checkpoints; type more of the id.")
