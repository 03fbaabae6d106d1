"""Delegation: the subagents of a session, their limits, and what they hand back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from msgspec import Struct, structs

from hermes.agent.tool_output import limit_output, output_path
from hermes.app.agents import Options
from hermes.app.extensions.background_results import describe_failure
from hermes.app.extensions.changed_files import FileWatch
from hermes.app.session_host import save_turn_checkpoint
from hermes.config.schema import DelegationSection
from hermes.core.errors import ConfigError, HermesError
from hermes.core.events import Answer, Approval, Recorded, ToolDone, ToolStarted, TurnResult
from hermes.core.lifecycle import run_shielded
from hermes.core.message import Usage, user_message
from hermes.core.store import SUBAGENT
from hermes.llm.endpoints.endpoint import ModelChoice

if TYPE_CHECKING:
    from hermes.app.background_commands import BackgroundCommands
    from hermes.app.extensions.background_results import BackgroundResults
    from hermes.app.knowledge.titles import SpawnTask
    from hermes.app.session import Session
    from hermes.core.channel import Channel

MAX_TASKS = 12
"""Tasks that one turn may delegate."""
TOO_MANY = f"At most {MAX_TASKS} tasks a turn."
MAX_SUMMARY = 8_000
_TOOL = "delegate_task"
_BANNED = frozenset({"memory", "clarify", "cronjob", "skill_manage", "send_message"})
_FOREGROUND_SOURCES = frozenset({"api", "batch", "cron", "library", SUBAGENT})
"""Sessions that end with their turn: nothing can be handed to them later."""
_STOP_SECONDS = 10.0
_LONGEST_GOAL = 200
ChildStatus: TypeAlias = Literal["completed", "partial", "failed", "timeout", "stopped", "budget"]


class ChildTask(Struct, frozen=True):
    goal: str
    context: str = ""
    toolsets: tuple[str, ...] | None = None
    """None: the parent's tools."""
    model: str = ""


class Child:
    """A subagent, while it works and afterwards."""

    def __init__(self, number: int, task: ChildTask, session: Session, files: FileWatch) -> None:
        self.id = f"d{number}"
        self.task = task
        self.session = session
        self.files = files
        self.started = time.time()
        self.is_stopped = False
        self.calls = 0
        self.usage = Usage()

    @property
    def taint_bits(self) -> int:
        """What it has read."""
        return self.session.transcript.taint.bits

    def stop(self) -> None:
        self.is_stopped = True
        self.session.stop()

    async def follow_events(self, events: Channel, progress: Callable[[str], None]) -> None:
        """Count its model calls and note the files it writes, until it is closed."""
        started = {}
        async for event in events:
            match event:
                case Recorded(message=message) if message.role == "assistant":
                    self.calls += 1
                    self.usage += message.usage or Usage()
                case ToolStarted(call=call):
                    started[call.id] = call
                    progress(f"{self.id} {self.task.goal[:60]}: {call.name}")
                case ToolDone(result=result) if not result.error and result.call_id in started:
                    self.files.note_call(started[result.call_id], self.session.agent.tools)


class ChildOpener(Protocol):
    async def __call__(self, parent: Session, options: Options, absent: frozenset[str]) -> Session:
        """Open a session that works for another one."""
        ...


class DelegationServices(Struct, frozen=True):
    """What the subagents of a process share."""

    settings: DelegationSection
    open_child: ChildOpener
    commands: BackgroundCommands
    results: BackgroundResults
    open_news: Callable[[Session], object]
    """Has a session told the results with its next message."""
    spawn_task: SpawnTask
    forget: Callable[[Session], object]
    """Called when a session that delegated is closed."""


class SessionDelegation:
    """The subagents of one session. Each goal is worked on once a turn."""

    def __init__(
        self, services: DelegationServices, parent: Session, *, is_single: bool = False
    ) -> None:
        source = parent.transcript.meta.source
        self.allows_background = not is_single and source not in _FOREGROUND_SOURCES
        """Whether the conversation lasts long enough to be told a result later."""
        self.children: dict[str, Child] = {}
        """Those at work, by their ids."""
        self._services = services
        self._parent = parent
        self._slots = asyncio.Semaphore(services.settings.max_concurrent_children)
        self._turn = -1
        self._count = 0
        self._number = 0
        self._results: dict[str, asyncio.Future[dict[str, Any]]] = {}

    async def run_tasks(
        self, tasks: Sequence[ChildTask], progress: Callable[[str], None]
    ) -> list[dict[str, Any]]:
        """The results of all tasks, in order. Cancelling it stops them."""
        fresh = self._list_new_tasks(tasks)
        await save_turn_checkpoint(self._parent.host)
        async with asyncio.TaskGroup() as group:
            for task in fresh:
                work = self._run_new_child(task, progress)
                self._results[task.goal] = group.create_task(work)
            futures = [self._results[task.goal] for task in tasks]
            return [await asyncio.shield(future) for future in futures]

    async def start_background(self, task: ChildTask) -> Child | dict[str, Any]:
        """The subagent that works on while the conversation goes on; what an equal task returned
        earlier in this turn."""
        if not self._list_new_tasks([task]):
            return await asyncio.shield(self._results[task.goal])
        await save_turn_checkpoint(self._parent.host)
        child = await self._open_child(task, attended=False)
        results = self._services.results
        await results.begin_task(self._parent.id, child.id, child.session.id, task.goal)
        done: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._results[task.goal] = done
        done.set_result({"task": task.goal, "session_id": child.session.id, "status": "running"})
        self._services.open_news(self._parent)
        self._services.spawn_task(self._finish_background(child, results), f"subagent {child.id}")
        return child

    async def _finish_background(self, child: Child, results: BackgroundResults) -> None:
        try:
            row = await self._run_child(child, lambda text: None)
        except asyncio.CancelledError:
            row = self._build_row(child, None, "stopped")
            await run_shielded(results.finish_task(child.session.id, row, child.taint_bits))
            raise
        await results.finish_task(child.session.id, row, child.taint_bits)
        self._parent.host.emit_notice(
            "delegation", f"Subagent {child.id} ended ({row['status']}): {child.task.goal}"
        )

    def require_room(self, tasks: Sequence[ChildTask]) -> list[ChildTask]:
        """The tasks that this turn has not had yet; ConfigError when they are too many."""
        if self._turn != self._parent.host.turn_count:
            self._turn, self._count, self._results = self._parent.host.turn_count, 0, {}
        fresh = {task.goal: task for task in tasks if task.goal not in self._results}
        if self._count + len(fresh) > MAX_TASKS:
            raise ConfigError(TOO_MANY)
        return list(fresh.values())

    def _list_new_tasks(self, tasks: Sequence[ChildTask]) -> list[ChildTask]:
        """The same, and count them."""
        fresh = self.require_room(tasks)
        self._count += len(fresh)
        return fresh

    async def _run_new_child(
        self, task: ChildTask, progress: Callable[[str], None]
    ) -> dict[str, Any]:
        attended = self._parent.interactions.user_present
        try:
            child = await self._open_child(task, attended=attended)
            return await self._run_child(child, progress)
        except HermesError as error:
            return describe_failure(task.goal[:_LONGEST_GOAL], "failed", str(error))

    async def _open_child(self, task: ChildTask, *, attended: bool) -> Child:
        parent, settings = self._parent, self._services.settings
        options = structs.replace(
            parent.options,
            choice=self._choose_model(task),
            toolsets=parent.options.toolsets if task.toolsets is None else task.toolsets,
            max_turns=settings.max_iterations,
        )
        depth = parent.host.depth + 1
        absent = _BANNED if depth < settings.max_spawn_depth else _BANNED | {_TOOL}
        session = await self._services.open_child(parent, options, absent)
        session.host.depth = depth
        session.host.parent_has_seen = parent.host.has_seen
        if attended:
            self._connect_person(session, task.goal)
        self._number += 1
        files = FileWatch(session.host.workspace.cwd)
        child = Child(self._number, task, session, files)
        self.children[child.id] = child
        return child

    def _choose_model(self, task: ChildTask) -> ModelChoice:
        choice, settings = self._parent.options.choice, self._services.settings
        model = task.model or settings.model
        if not model:
            return choice
        provider = "" if task.model else settings.provider
        if provider or ":" in model:
            return ModelChoice(model=model, provider=provider)
        return structs.replace(choice, model=model)

    def _connect_person(self, session: Session, goal: str) -> None:
        """Let a subagent ask the person of the session it works for."""
        mine = self._parent.interactions

        async def ask_person(approval: Approval) -> Answer:
            summary = f'{approval.summary} (asked by the subagent for "{goal[:_LONGEST_GOAL]}")'
            answer = await mine.request_approval(structs.replace(approval, summary=summary))
            return answer or "deny"

        session.interactions.user_present = True
        session.interactions.on_approval = ask_person
        session.interactions.on_question = lambda q: mine.ask_question(q.text, q.choices)

    async def _run_child(self, child: Child, progress: Callable[[str], None]) -> dict[str, Any]:
        session, hooks = child.session, self._parent.host.hooks
        about = {"child_session_id": session.id, "child_goal": child.task.goal}
        try:
            async with self._slots, asyncio.TaskGroup() as group:
                if hooks is not None:
                    await hooks.notify("subagent_start", **about)
                group.create_task(child.follow_events(session.subscribe_events(), progress))
                try:
                    result, status = await self._answer_task(child)
                finally:
                    await run_shielded(self._close_child(child))
        finally:
            self.children.pop(child.id, None)
            await run_shielded(self._close_child(child))
        await asyncio.to_thread(child.files.scan_folder)
        self._parent.host.absorb_taint(session.transcript.taint.sources)
        row = self._build_row(child, result, status)
        if hooks is not None:
            ending = {"child_status": row["status"], "child_summary": row["summary"]}
            await hooks.notify("subagent_stop", **about, **ending)
        return row

    async def _answer_task(self, child: Child) -> tuple[TurnResult | None, ChildStatus]:
        """How the subagent's turn ended; it is stopped when it takes too long."""
        if child.is_stopped:
            return None, "stopped"
        task, session = child.task, child.session
        text = f"{task.goal}\n\n{task.context}" if task.context else task.goal
        answer = session.submit(user_message(text))
        seconds = self._services.settings.child_timeout_seconds
        finished, _ = await asyncio.wait({answer}, timeout=seconds)
        if not finished:
            session.interrupt()
            await asyncio.wait({answer}, timeout=_STOP_SECONDS)
        result = answer.result() if answer.done() and not answer.cancelled() else None
        return result, _judge_result(result, timed_out=not finished)

    async def _close_child(self, child: Child) -> None:
        await child.session.close()
        await self._services.commands.stop_running(child.session.transcript.meta)

    def _build_row(
        self, child: Child, result: TurnResult | None, status: ChildStatus
    ) -> dict[str, Any]:
        host, session = self._parent.host, child.session
        usage = result.usage if result is not None else child.usage
        whole = output_path(host.workspace.outputs, host.session_id, f"summary-{session.id}")
        row: dict[str, Any] = {
            "task": child.task.goal[:_LONGEST_GOAL],
            "session_id": session.id,
            "status": status,
            "summary": limit_output(result.text if result else "", MAX_SUMMARY, whole),
            "files_changed": child.files.list_names(),
            "model_calls": result.model_calls if result is not None else child.calls,
            "tokens": usage.input + usage.output,
            "cost_usd": usage.cost,
            "seconds": round(time.time() - child.started, 1),
        }
        if status == "timeout":
            limit = self._services.settings.child_timeout_seconds
            row["error"] = f"Stopped after {limit:g} s; what it did so far is kept."
        elif result is not None and result.error:
            row["error"] = result.error
        return row

    async def aclose(self) -> None:
        """Stop those that still work."""
        for child in list(self.children.values()):
            child.stop()
            with suppress(HermesError):
                await self._close_child(child)
        self._services.forget(self._parent)


def _judge_result(result: TurnResult | None, *, timed_out: bool) -> ChildStatus:
    if timed_out:
        return "timeout"
    if result is None or result.status == "interrupted":
        return "stopped"
    if result.error_code == "budget":
        return "budget"
    return result.status
