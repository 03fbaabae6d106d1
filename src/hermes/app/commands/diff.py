"""/diff: what has changed in the folder since the session first changed a file."""

from pathlib import Path

from hermes.app.commands import CommandContext, Reply, command
from hermes.app.commands._files import explain_no_files
from hermes.app.session_records import find_checkpoint_since

_MAX_CHARS = 20_000


@command("diff", "the file changes since this session began", needs_model=False)
async def show_diff(ctx: CommandContext, args: str) -> Reply:
    from hermes.exec.snapshots.checkpoints import diff_checkpoint

    session, home = ctx.session, ctx.runtime.setup.home
    meta, length = session.transcript.meta, len(session.transcript.history)
    workspace = Path(meta.cwd)
    found = await find_checkpoint_since(ctx.runtime.store, home, meta, index=0, length=length)
    if found is None:
        why = explain_no_files(workspace, home).replace("in it", "in this session")
        return Reply(why)
    text = await diff_checkpoint(workspace, home, found.id)
    text = "\n".join(row for row in text.split("\n") if not row.startswith("index "))
    if not text:
        return Reply("The files are as they were when this session began.")
    if len(text) > _MAX_CHARS:
        text = text[:_MAX_CHARS].rsplit("\n", 1)[0] + "\n[cut]"
    return Reply(f"Changes since this session began, also those of others:\n{text.rstrip()}")
