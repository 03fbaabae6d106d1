"""The tool `memory`: notes that later conversations begin with."""

# Every request declares it, so what it needs to run is imported when it is called.
from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct

from hermes.core.errors import StoreError, ToolError
from hermes.core.store import Fact, FactAction, FactTarget
from hermes.core.taint import Source
from hermes.core.tool import ToolContext, ToolResult, tool
from hermes.memory.scope import MEMORY

if TYPE_CHECKING:
    from hermes.memory.notebook import Change, Outcome
    from hermes.memory.provider import RecalledFact
    from hermes.memory.session_memory import SessionMemory

_MAX_OPERATIONS = 50
_DEFAULT_LIMIT = 10
_MAX_LIMIT = 100


class Operation(Struct, frozen=True):
    action: FactAction
    target: FactTarget | None = None
    content: str | None = None
    old_text: str | None = None


class Params(Struct, frozen=True):
    action: Literal["add", "replace", "remove", "search", "list"] | None = None
    target: FactTarget | None = None
    content: str | None = None
    old_text: str | None = None
    query: str | None = None
    limit: int | None = None
    operations: tuple[Operation, ...] | None = None


def _flow(p: Params) -> tuple[frozenset[Source], bool]:
    """Reading brings what was noted before."""
    reads = p.action in ("search", "list")
    return frozenset({"private"} if reads else ()), False


@tool(
    "Lasting facts for later sessions: `user` on the person, `memory` on the work. old_text: part "
    "of the entry.",
    brings=(),
    sends=False,
    exclusive=True,
    asks_itself=True,
    flows=_flow,
)
async def memory(p: Params, ctx: ToolContext) -> ToolResult:
    open_memory = ctx.services.get(MEMORY)
    if open_memory is None:
        raise ToolError("This session has no memory.")
    from hermes.memory.page import MemoryRefused

    try:
        return _answer(await _run_action(p, open_memory(), ctx))
    except MemoryRefused as refusal:
        sentence = str(refusal)
        if p.operations:
            sentence = (
                f"Operation {refusal.number}: {sentence.removesuffix('Nothing was changed.')}"
            )
            sentence = f"{sentence.strip().rstrip('.')}. Nothing was changed."
        more = {"entries": list(refusal.entries)} if refusal.entries else {}
        return _answer({"ok": False, "error": sentence, **more}, error=True)
    except StoreError as error:
        return _answer({"ok": False, "error": str(error)}, error=True)


async def _run_action(p: Params, mine: SessionMemory, ctx: ToolContext) -> dict[str, Any]:
    from hermes.memory.page import MemoryRefused

    book = mine.notebook
    limit = max(1, min(p.limit or _DEFAULT_LIMIT, _MAX_LIMIT))
    if bool(p.action) == bool(p.operations):
        raise MemoryRefused("Give either action or operations.")
    if p.action == "search":
        if not (p.query or "").strip():
            raise MemoryRefused("search needs a query.")
        found = await book.search_facts(p.query or "", limit, p.target)
        rows = [format_fact(fact) for fact in found]
        if mine.recall is not None:
            known = {row["text"] for row in rows}
            more = [f for f in await mine.recall(p.query or "", limit) if f.text not in known]
            rows += [_format_recalled(fact) for fact in more]
        return {"ok": True, "facts": rows[:limit]}
    if p.action == "list":
        found = await book.list_facts(p.target, limit)
        return {"ok": True, "facts": [format_fact(fact) for fact in found]}
    if p.operations:
        if len(p.operations) > _MAX_OPERATIONS:
            raise MemoryRefused(f"At most {_MAX_OPERATIONS} operations.")
        changes = [_to_change(o.action, o) for o in p.operations]
        done = await mine.write_changes(changes, ctx.call, ctx.user.confirm)
        return {"ok": True, "results": [_format_outcome(outcome) for outcome in done]}
    assert p.action is not None
    done = await mine.write_changes((_to_change(p.action, p),), ctx.call, ctx.user.confirm)
    return {"ok": True, **_format_outcome(done[0])}


def _to_change(action: FactAction, wish: Params | Operation) -> Change:
    from hermes.memory.notebook import Change

    return Change(action, wish.target or "memory", wish.content or "", wish.old_text or "")


def _format_outcome(outcome: Outcome) -> dict[str, Any]:
    row: dict[str, Any] = {"status": outcome.status, "usage": outcome.usage}
    if outcome.fact is not None:
        row["id"] = outcome.fact.name
    if outcome.similar:
        row["similar"] = list(outcome.similar)
    return row


def format_fact(fact: Fact) -> dict[str, Any]:
    return {
        "id": fact.name,
        "text": fact.text,
        "target": fact.target,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(fact.created)),
        "state": fact.state,
    }


def _format_recalled(fact: RecalledFact) -> dict[str, Any]:
    row = {"id": fact.id, "text": fact.text, "target": "memory", "time": fact.time}
    return {**row, "state": "stored"}


def _answer(data: dict[str, Any], *, error: bool = False) -> ToolResult:
    return ToolResult(msgspec.json.encode(data).decode(), data=data, error=error)
