"""/resume: resume a stored session, in its own folder or as a copy in this one."""

from pathlib import Path

from hermes.app.commands import CommandContext, Reply, command, require_idle
from hermes.app.commands._lookup import find_own_session
from hermes.app.session_records import find_current_session, has_folder
from hermes.core.errors import ConfigError
from hermes.core.store import SessionMeta

_ANSWERS = frozenset({"there", "here", "branch", "read"})


@command("resume", "resume a stored session", "ID|TITLE [here|there]", surfaces="live")
async def resume_session(ctx: CommandContext, args: str) -> Reply:
    if not args:
        raise ConfigError("/resume needs the id or the title of a session. See /sessions.")
    require_idle(ctx.session)
    meta, answers = await _find_session(ctx, args)
    here = Path(ctx.session.transcript.meta.cwd)
    is_gone = not has_folder(meta)
    if is_gone:
        answers.add("here")
    if question := _find_question(ctx, meta, here, answers):
        return question
    session_id = meta.id
    if answers & {"here", "branch"}:
        folder = here if "here" in answers else None
        session_id = await ctx.runtime.copy_session(meta.id, ctx.session.options, folder)
    other = await ctx.runtime.reopen_session(ctx.session, session_id)
    title = f": {other.transcript.meta.title}" if other.transcript.meta.title else ""
    lines = [f"Resumed {other.id}{title}", f"Folder: {other.transcript.meta.cwd}"]
    if is_gone:
        lines.append(f"Its folder {meta.cwd} no longer exists, so a copy continues here.")
    read_only = ctx.runtime.claims.is_taken(session_id)
    if read_only:
        lines.append("Read-only: it is open in another terminal. /branch continues in a copy.")
    return Reply("\n".join(lines), session=other, read_only=read_only)


def _find_question(
    ctx: CommandContext, meta: SessionMeta, here: Path, answers: set[str]
) -> Reply | None:
    """What the user must decide first: about the folder, then about another terminal."""
    if meta.cwd != str(here) and not answers & {"there", "here"}:
        return Reply(
            f"That session works in {meta.cwd}; you are in {here}.\n"
            "there: continue it in its folder. here: continue a copy in this folder.",
            confirm="Continue there or here?",
            choices=("there", "here"),
        )
    if ctx.runtime.claims.is_taken(meta.id) and not answers & {"here", "branch", "read"}:
        return Reply(
            "That session is open in another terminal.\n"
            "branch: continue in a copy. read: only look at it.",
            confirm="Branch it or read only?",
            choices=("branch", "read"),
        )
    return None


async def _find_session(ctx: CommandContext, args: str) -> tuple[SessionMeta, set[str]]:
    """The session, and the answers at the end of the arguments."""
    store, mine = ctx.runtime.store, ctx.session.transcript.meta
    words, answers = args.split(), set[str]()
    while len(words) > 1 and words[-1].lower() in _ANSWERS:
        answers.add(words.pop().lower())
    found = await find_own_session(store, mine, " ".join(words))
    return await find_current_session(store, found.id) or found, answers
