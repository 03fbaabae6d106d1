"""/memory: what the agent remembers here, and changes to it."""

from hermes.app.commands import (
    CommandContext,
    Reply,
    command,
    refuse_agent_tool,
    take_confirmation,
)
from hermes.core.errors import ConfigError
from hermes.core.store import FactTarget

_NONE = "This conversation has no memory."
_CHANGING = frozenset({"add", "remove", "restore", "approve", "reject", "clear"})


@command(
    "memory",
    "show or change what the agent remembers",
    "[list | search WORDS | add [user] TEXT | remove ID | restore ID | pending | approve ID|all | "
    "reject ID | clear | status]",
    needs_model=False,
)
async def manage_memory(ctx: CommandContext, args: str) -> Reply:
    from hermes.memory.commands import run_verb

    session, knowledge = ctx.session, ctx.runtime.knowledge
    meta = session.transcript.meta
    scope = knowledge.find_scope(meta.source, meta.key, session.options.user)
    if scope is None:
        raise ConfigError(_NONE)
    book = knowledge.open_notebook(session.agent, scope)
    verb, _, rest = args.strip().partition(" ")
    words = rest.split()
    if not verb:
        block = await knowledge.show_memory(session.agent, scope)
        return Reply(block or "Nothing is remembered yet.")
    if verb in _CHANGING:
        refuse_agent_tool("change the memory")
    if verb == "clear":
        agreed, _ = take_confirmation(ctx, rest)
        count = len(await book.list_facts())
        if not agreed:
            return Reply(f"{count} facts are remembered.", confirm="Forget all of them?")
        await book.clear_facts()
        return Reply(f"forgot {count} facts; each can be restored for 30 days")
    target: FactTarget | None = None
    if verb == "add" and words[:1] in (["user"], ["memory"]) and len(words) > 1:
        target = "user" if words[0] == "user" else "memory"
        rest = rest.strip().removeprefix(words[0]).strip()
    takes_ids = verb in ("remove", "restore", "approve", "reject")
    if not rest.strip() and (takes_ids or verb in ("add", "search")):
        raise ConfigError(f"/memory {verb} needs {'an ID' if takes_ids else 'TEXT'}.")
    lines = await run_verb(book, verb, words if takes_ids else [rest.strip()], target)
    return Reply("\n".join(lines) or "Nothing found.")
