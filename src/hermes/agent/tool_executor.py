"""Runs the tool calls of one assistant message: validates, approves, orders and records them."""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from msgspec import Struct, structs

from hermes.agent.json_repair import BadArguments, parse_arguments
from hermes.agent.loop_guard import LoopGuard
from hermes.agent.tool_hooks import HookedCall
from hermes.agent.tool_names import resolve_name
from hermes.agent.tool_output import output_path, prepare_result
from hermes.agent.turn import Agent, Turn
from hermes.core.errors import HermesError, ToolError
from hermes.core.events import ToolDone, ToolProgress, ToolStarted
from hermes.core.hooks import HookFailure
from hermes.core.lifecycle import run_shielded
from hermes.core.message import Message, Text, ToolCall, ToolReturn
from hermes.core.tool import Invoker, Tool, Toolbox, ToolContext, ToolResult
from hermes.core.untrusted_text import SKIPPED
from hermes.llm.http.tape import TOOL_JOB, mark_job

log = logging.getLogger(__name__)

_MAX_LISTED = 60
_LONGEST_PROGRESS = 2000
"""Most names of tools in an error; servers may offer hundreds."""
_DENIAL = "Not run: {why}. Do not try to get around that; say what you wanted to do and why."
INTERRUPTED = "interrupted by the user while it was running; its outcome is unknown"


class _Plan(Struct, frozen=True):
    """A valid call: the tool, its typed parameters, what it writes to."""

    call: ToolCall
    inner: ToolCall
    """The call that is approved and run: this one, or the one it forwards to."""
    tool: Tool[Any]
    params: Any
    keys: tuple[str, ...]
    note: str = ""
    """What the model should know about its arguments."""


class ToolBatch:
    """The calls of one message. Each result is recorded when it is known; equal calls run once."""

    def __init__(self, agent: Agent, turn: Turn, guard: LoopGuard) -> None:
        self._agent = agent
        self._turn = turn
        self._guard = guard
        self._open: dict[str, ToolCall] = {}
        self._started: set[str] = set()
        self._began: dict[str, float] = {}
        self._twins: dict[str, list[ToolCall]] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._unknown = self._bad = self._ran = False

    async def run_calls(self, calls: Sequence[ToolCall]) -> None:
        self._open = {c.id: c for c in calls}
        try:
            for group in _group_plans(await self._plan_calls(calls)):
                if len(group) == 1:
                    await self._run_locked(group[0])
                else:
                    await self._run_group(group)
        except asyncio.CancelledError:
            if not self._turn.host.hands_over:  # otherwise who continues the turn does so
                await run_shielded(self._close_interrupted())
            raise
        self._guard.end_step(ran=self._ran, unknown=self._unknown, bad=self._bad)

    async def _run_group(self, group: list[_Plan]) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                for plan in group:
                    tasks.create_task(self._run_locked(plan))
        except* HermesError as errors:
            # Only the store can fail here (a tool's failure is a result); one error is enough.
            raise errors.exceptions[0] from None

    async def _plan_calls(self, calls: Sequence[ToolCall]) -> list[_Plan]:
        """The calls that can be run; the others get an error the model can act on."""
        plans: list[_Plan] = []
        first: dict[tuple[str, str], str] = {}
        for call in calls:
            twin = first.setdefault((call.name, call.args), call.id)
            if twin != call.id and twin in self._open:
                self._twins.setdefault(twin, []).append(call)
                continue
            try:
                plans.append(self._plan_call(call))
            except ToolError as error:
                self._turn.host.emit(ToolStarted(call))
                await self._record_result(call, _refuse(str(error)), None)
        return plans

    def _plan_call(self, call: ToolCall) -> _Plan:
        tool = self._agent.tools.get(call.name)
        if tool is None:
            self._unknown = True
            known = sorted(self._agent.tools)
            if len(known) > _MAX_LISTED:
                known = [spec.name for spec in self._agent.specs]
            names = ", ".join(known) or "none"
            raise ToolError(f"There is no tool {call.name!r}. Available tools: {names}.")
        try:
            args = parse_arguments(call.args)
        except BadArguments:
            self._bad = True
            raise
        params = tool.parse_params(args)
        note = tool.describe_ignored(args)
        inner = call
        if tool.forward and (target := tool.forward(params)):
            tool, params, inner = self._resolve_forward(call, *target)
            note = tool.describe_ignored(target[1])
        self._guard.refuse_repetition(call)
        keys = self._write_keys(tool, params)
        return _Plan(call, inner, tool.for_call(params), params, keys, note)

    def _write_keys(self, tool: Tool[Any], params: Any) -> tuple[str, ...]:
        keys = tool.key(params, self._turn.host.workspace.cwd) if tool.key else None
        return (keys,) if isinstance(keys, str) else keys or ()

    def _resolve_forward(
        self, call: ToolCall, name: str, args: dict[str, Any]
    ) -> tuple[Tool[Any], Any, ToolCall]:
        meant = resolve_name(name, self._agent.tools) or name
        tool = self._agent.tools.get(meant)
        if tool is None or tool.forward:
            self._unknown = True
            raise ToolError(f"{call.name} cannot call {name!r}. Search for tools with a query.")
        inner = structs.replace(call, name=meant, args=json.dumps(args, ensure_ascii=False))
        return tool, tool.parse_params(args), inner

    async def _run_locked(self, plan: _Plan) -> None:
        async with self._hold_locks(plan.keys):
            await self._execute_plan(plan)

    @asynccontextmanager
    async def _hold_locks(self, keys: Sequence[str]) -> AsyncIterator[None]:
        async with AsyncExitStack() as held:
            for key in sorted(set(keys)):  # in one order, to avoid deadlocks
                await held.enter_async_context(self._locks.setdefault(key, asyncio.Lock()))
            yield

    async def _execute_plan(self, plan: _Plan) -> None:
        call = plan.call
        self._turn.host.emit(ToolStarted(call))
        self._began[call.id] = time.monotonic()
        toolbox = Toolbox(self._agent.tools, self._make_invoker(plan))
        result = await self._run_guarded(plan, toolbox, self._make_progress(call))
        self._ran = True
        began = self._began[call.id]
        self._guard.note_result(call, await self._record_result(call, result, began))
        for twin in self._twins.get(call.id, ()):
            self._turn.host.emit(ToolStarted(twin))
            await self._record_result(twin, result, began)

    def _make_invoker(self, outer: _Plan) -> Invoker:
        """For calls that a tool makes itself. They are part of the outer call: shown as its
        progress and not recorded, but approved, locked, stopped and tainted like any other."""
        count = 0

        async def invoke(name: str, arguments: dict[str, Any]) -> ToolResult:
            nonlocal count
            count += 1
            # The tool may have read anything before this call, so it is judged as if it had.
            self._turn.host.absorb_taint(outer.tool.brings)
            call = ToolCall(f"{outer.call.id}.{count}", outer.call.name, "")
            tool, params, inner = self._resolve_forward(call, name, arguments)
            keys = self._write_keys(tool, params)
            plan = _Plan(inner, inner, tool.for_call(params), params, keys)
            toolbox, progress = Toolbox(self._agent.tools), self._make_progress(outer.call)
            async with self._hold_locks(plan.keys):
                return await self._run_guarded(plan, toolbox, progress)

        return invoke

    def _make_progress(self, call: ToolCall) -> Callable[[str], None]:
        """Secrets are removed before the text is cut: part of one would not be recognised."""
        clean = self._agent.redactor.redact

        def show(text: str) -> None:
            self._turn.host.emit(ToolProgress(call.id, clean(text)[-_LONGEST_PROGRESS:]))

        return show

    async def _run_guarded(
        self, plan: _Plan, toolbox: Toolbox, progress: Callable[[str], None]
    ) -> ToolResult:
        """Run a plan and turn every failure into a result: a tool never ends the turn."""
        if (hooks := self._turn.host.hooks) is None:
            return self._prepare_result(plan, await self._attempt_plan(plan, toolbox, progress))
        hooked = HookedCall(hooks, plan.inner)
        try:
            result = await self._attempt_hooked(plan, hooked, toolbox, progress)
        except (ToolError, HookFailure) as error:
            result = ToolResult(str(error), error=True)
        prepared = self._prepare_result(plan, result)
        began = self._began.get(plan.call.id, time.monotonic())
        await hooked.report_result(prepared, began=began)
        return prepared

    async def _attempt_hooked(
        self,
        plan: _Plan,
        hooked: HookedCall,
        toolbox: Toolbox,
        progress: Callable[[str], None],
    ) -> ToolResult | str:
        """Run a plan unless a hook or the person it asks forbids it."""
        if why := await hooked.check_call():
            return _refuse(_DENIAL.format(why=why))
        self._began[plan.call.id] = time.monotonic()
        result = await self._attempt_plan(plan, toolbox, progress)
        return await hooked.transform_result(result, began=self._began[plan.call.id])

    def _prepare_result(self, plan: _Plan, result: Any) -> ToolResult:
        host = self._turn.host
        whole = output_path(host.workspace.outputs, host.session_id, plan.inner.id)
        return prepare_result(result, self._agent.limits.result_chars, self._agent.redactor, whole)

    async def _attempt_plan(
        self, plan: _Plan, toolbox: Toolbox, progress: Callable[[str], None]
    ) -> ToolResult | str:
        tool, host = plan.tool, self._turn.host
        try:
            verdict = await host.approve(plan.inner, tool, plan.params, plan.keys)
            self._began[plan.call.id] = time.monotonic()  # a person's thinking is not the tool's
            if not verdict.allowed:
                why = verdict.reason or "it was not approved"
                return _refuse(_DENIAL.format(why=why.rstrip(".")))
            context = host.tool_context(plan.inner, verdict, toolbox, progress)
            result = _add_note(await self._run_tool(plan, context), verdict.reason)
            return _add_note(result, plan.note)
        except ToolError as error:
            return _add_note(ToolResult(str(error), error=True), plan.note)
        except TimeoutError:
            return ToolResult(f"Timed out after {tool.timeout:g} s and was stopped.", error=True)
        except Exception as error:
            log.exception("tool %s crashed", tool.name)
            text = f"The tool failed unexpectedly: {type(error).__name__}: {error}"
            return ToolResult(text, error=True)

    async def _run_tool(self, plan: _Plan, context: ToolContext) -> ToolResult | str:
        async with asyncio.timeout(plan.tool.timeout):
            self._started.add(plan.call.id)  # a call that awaits approval has not begun
            self._turn.effects |= not plan.tool.is_repeatable
            mark_call = self._turn.host.mark_call
            if mark_call is not None and not plan.tool.is_repeatable:
                await mark_call(plan.inner)
            try:
                with mark_job(TOOL_JOB):
                    return await plan.tool.run(plan.params, context)
            finally:
                self._turn.host.absorb_taint(plan.tool.brings)

    async def _record_result(
        self, call: ToolCall, outcome: ToolResult, began: float | None
    ) -> ToolReturn:
        assert isinstance(outcome.content, tuple)
        unquoted = outcome.unquoted and not outcome.error
        result = ToolReturn(call.id, call.name, outcome.content, outcome.error, unquoted)
        self._open.pop(call.id, None)
        await self._turn.append(Message("tool", (result,)))
        duration = time.monotonic() - began if began is not None else 0.0
        self._turn.host.emit(ToolDone(result, duration, outcome.data))
        return result

    async def _close_interrupted(self) -> None:
        """Record a result for every call that was running or waiting when the user interrupted."""
        for call in list(self._open.values()):
            text = INTERRUPTED if call.id in self._started else SKIPPED
            began = self._began.get(call.id)
            await self._record_result(call, _refuse(text), began)


def _refuse(text: str) -> ToolResult:
    return ToolResult((Text(text),), error=True)


def _add_note(result: ToolResult | str, note: str) -> ToolResult | str:
    """Append what the model should know about how the call was run."""
    if not note or not isinstance(result, ToolResult) or not isinstance(result.content, str):
        return result
    return structs.replace(result, content=f"{result.content}\n[{note}]")


def _group_plans(plans: Sequence[_Plan]) -> list[list[_Plan]]:
    """Neighbouring calls that may run together share a group; exclusive ones run alone."""
    groups: list[list[_Plan]] = []
    for plan in plans:
        if groups and not plan.tool.exclusive and not groups[-1][-1].tool.exclusive:
            groups[-1].append(plan)
        else:
            groups.append([plan])
    return groups
