"""Makes, lists and changes the jobs of the schedule; a person approves every change."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct, structs

from hermes.core.errors import ConfigError, ToolError
from hermes.core.escalation import FileAccess
from hermes.core.taint import BOTH, Source
from hermes.core.tool import Tool, ToolContext, ToolResult, tool
from hermes.tools._services import OPEN_SCHEDULE

_RUN_SECONDS = 7200.0


class Params(Struct, frozen=True):
    action: Literal["create", "list", "update", "pause", "resume", "remove", "run"]
    job: Annotated[str | None, Meta(description="id or name")] = None
    schedule: Annotated[
        str | None,
        Meta(description="30m | every 2h | five cron fields | daily 09:00 | 2026-12-01T09:00"),
    ] = None
    prompt: Annotated[str | None, Meta(description="complete: a run knows nothing else")] = None
    name: str | None = None
    deliver: str | None = None
    skills: Annotated[tuple[str, ...] | str | None, Meta(description="names of skills")] = None
    model: str | None = None
    toolsets: Annotated[str | None, Meta(description="comma-separated")] = None
    workdir: str | None = None
    script: Annotated[str | None, Meta(description="a file of HERMES_HOME/scripts")] = None
    repeat: Annotated[int, Meta(ge=1)] | None = None


def _find_flows(p: Params) -> tuple[frozenset[Source], bool]:
    """Other actions answer with what the model wrote."""
    brings: dict[str, frozenset[Source]] = {"run": BOTH, "list": frozenset({"private"})}
    return brings.get(p.action, frozenset()), False


@tool(
    "Schedule prompts: reminders and recurring work. A run starts without this conversation and "
    "with nobody to ask; its final answer is delivered. The user approves every change.",
    toolset="schedule",
    flows=_find_flows,
    asks_itself=True,
    starts_work=True,
    timeout=_RUN_SECONDS,
    words="cron timer remind reminder every day daily weekly hourly later at time recurring job",
)
async def cronjob(p: Params, ctx: ToolContext) -> ToolResult:
    try:
        return _report({"ok": True, **await _perform_action(p, ctx)})
    except (ConfigError, ToolError) as error:
        return structs.replace(_report({"ok": False, "error": str(error)}), error=True)


async def _perform_action(p: Params, ctx: ToolContext) -> dict[str, Any]:
    open_schedule = ctx.services.get(OPEN_SCHEDULE)
    if open_schedule is None:
        raise ToolError("This session cannot use the schedule.")
    schedule = open_schedule()
    if p.action == "list":
        return {"jobs": await schedule.list_jobs()}
    wishes = structs.asdict(p)
    del wishes["action"], wishes["job"]
    change = await schedule.plan_change(p.action, p.job or "", wishes)
    asking = Tool(
        ctx.call.name, "", FileAccess, _refuse_call, asks=change.reason, needs_person=True
    )
    verdict = await ctx.user.approve(ctx.call, asking, FileAccess(diff=change.text), ())
    if not verdict.allowed:
        raise ToolError(f"Not done: {verdict.reason or change.reason}.")
    return await change.apply()


async def _refuse_call(p: FileAccess, ctx: ToolContext) -> ToolResult:
    raise ToolError("This is no tool of its own.")


def _report(data: dict[str, Any]) -> ToolResult:
    return ToolResult(msgspec.json.encode(data).decode(), data=data)
