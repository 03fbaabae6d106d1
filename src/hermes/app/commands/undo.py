"""/undo: undo the last turns, messages and file changes together."""

from pathlib import Path

from hermes.app.commands import CommandContext, Reply, command, require_idle, take_confirmation
from hermes.app.commands._files import describe_restored, explain_no_files, preview_restore
from hermes.app.session_records import find_checkpoint_since, find_turn_starts
from hermes.core.errors import ConfigError
from hermes.core.text import format_plural


@command("undo", "undo the last turn: its messages and file changes", "[TURNS] [yes]")
async def undo_turns(ctx: CommandContext, args: str) -> Reply:
    confirmed, words = take_confirmation(ctx, args)
    index = _first_index(ctx, words)
    session, home, store = ctx.session, ctx.runtime.setup.home, ctx.runtime.store
    meta, length = session.transcript.meta, len(session.transcript.history)
    found = await find_checkpoint_since(store, home, meta, index=index, length=length)
    workspace = Path(meta.cwd)
    if not confirmed:
        if found:
            preview = await preview_restore(workspace, home, found)
        else:
            preview = explain_no_files(workspace, home)
        return Reply(f"{_describe_messages(ctx, index)}\n{preview}", confirm="Undo this?")
    lines = []
    if found:
        from hermes.exec.snapshots.checkpoints import restore_checkpoint

        done = await restore_checkpoint(workspace, home, found.id)
        lines += [describe_restored(done), f"To undo the file changes: /rollback {done.before}"]
    child = await ctx.runtime.branch_session(ctx.session, index)
    lines.append(f"Went back to before that turn. To return: /resume {session.id}")
    return Reply("\n".join(lines), session=child)


def _first_index(ctx: CommandContext, words: list[str]) -> int:
    """Index of the first message to undo."""
    session = ctx.session
    require_idle(session)
    count = 1
    if words:
        if len(words) > 1 or not words[0].isdecimal() or not int(words[0]):
            raise ConfigError("/undo takes a number of turns and `yes`: /undo 2 yes")
        count = int(words[0])
    starts = find_turn_starts(session.transcript.history.messages)
    if not starts:
        raise ConfigError("There is nothing to undo in this session.")
    if count > len(starts):
        raise ConfigError(f"This session has only {format_plural(len(starts), 'turn')} to undo.")
    return starts[-count]


def _describe_messages(ctx: CommandContext, index: int) -> str:
    undone = ctx.session.transcript.history.messages[index:]
    first = " ".join(undone[0].text.split())
    first = first if len(first) <= 80 else first[:77] + "..."
    return f"Removes {format_plural(len(undone), 'message')}, starting with: {first}"
