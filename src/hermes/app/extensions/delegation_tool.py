"""Gives tasks to subagents: sessions of their own that work and report back."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from hermes.app.extensions.delegation import Child, ChildTask, SessionDelegation
from hermes.app.extensions.delegations import DELEGATION
from hermes.core.errors import ConfigError, ToolError
from hermes.core.tool import ToolContext, ToolResult, tool

_DAY = 86_400.0


class Task(Struct, frozen=True):
    goal: str
    context: str | None = None
    toolsets: list[str] | None = None
    model: str | None = None


class Params(Struct, frozen=True):
    goal: str | None = None
    context: Annotated[
        str | None,
        Meta(description="everything it must know: it sees nothing of this conversation"),
    ] = None
    tasks: Annotated[list[Task] | None, Meta(description="several at once")] = None
    toolsets: list[str] | None = None
    background: Annotated[
        bool | None, Meta(description="do not wait; the result comes with a later message")
    ] = None


@tool(
    "Give one task, or several that run at once, to subagents. Each works in its own session with "
    "your tools and returns a summary and the files it changed.",
    brings=(),
    sends=False,
    toolset="delegation",
    timeout=_DAY,
    starts_work=True,
    words="subagent agent parallel child spawn worker",
)
async def delegate_task(p: Params, ctx: ToolContext) -> ToolResult:
    open_delegation = ctx.services.get(DELEGATION)
    if open_delegation is None:
        raise ToolError("This session cannot delegate.")
    try:
        tasks = _list_tasks(p)
        delegation = open_delegation()
        if p.background and delegation.allows_background:
            return _answer(await _start_background(delegation, tasks))
        rows = await delegation.run_tasks(tasks, ctx.progress)
        return _answer({"ok": True, "results": rows})
    except ConfigError as error:
        return _answer({"ok": False, "error": str(error)}, error=True)


def _list_tasks(p: Params) -> list[ChildTask]:
    wanted = p.tasks or ([Task(p.goal, p.context)] if p.goal else [])
    if not wanted or (p.tasks and p.goal):
        raise ConfigError("Give either goal or tasks.")
    tasks = []
    for each in wanted:
        if not each.goal.strip():
            raise ConfigError("A goal is empty.")
        toolsets = each.toolsets or p.toolsets  # models write an empty list for "the usual ones"
        context = each.context or (p.context if p.tasks else "") or ""
        names = tuple(toolsets) if toolsets else None
        tasks.append(ChildTask(each.goal.strip(), context, names, each.model or ""))
    return tasks


async def _start_background(
    delegation: SessionDelegation, tasks: list[ChildTask]
) -> dict[str, Any]:
    started = []
    delegation.require_room(tasks)  # before the first is started: all of them or none
    for task in tasks:
        found = await delegation.start_background(task)
        if isinstance(found, Child):
            found = {"id": found.id, "session_id": found.session.id}
        started.append(found)
    return {"ok": True, **started[0]} if len(started) == 1 else {"ok": True, "tasks": started}


def _answer(data: dict[str, Any], *, error: bool = False) -> ToolResult:
    return ToolResult(msgspec.json.encode(data).decode(), data=data, error=error)
