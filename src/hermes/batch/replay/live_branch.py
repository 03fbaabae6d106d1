"""Continues a session from one of its steps: another model, on recorded results or in a copy."""

from __future__ import annotations

import asyncio
import json
import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from hermes.agent.loop_guard import LoopGuard
from hermes.agent.tool_executor import ToolBatch
from hermes.agent.turn import Agent, Turn
from hermes.app.agents import Options
from hermes.app.runtime import Runtime
from hermes.app.session import Session
from hermes.app.session_host import SessionHost
from hermes.app.session_records import find_checkpoint_since, find_turn_starts, store_branch
from hermes.batch.workspace import copy_folder
from hermes.core.events import StepStart, TurnEvent, TurnResult
from hermes.core.history import History
from hermes.core.message import Message, ToolCall, ToolReturn
from hermes.core.store import SessionMeta, SessionState, Store
from hermes.core.tool import RecordedResult, Tool, ToolContext, ToolResult
from hermes.llm.endpoints.endpoint import ModelChoice


class Divergence(Struct, frozen=True):
    """A call of the live model that was not recorded."""

    step: int
    tool: str
    arguments: str


class LiveEnd(Struct, frozen=True):
    """How the live part of a branch ended."""

    status: str
    text: str
    steps: int
    error: str = ""
    diverged: Divergence | None = None
    folder: str = ""
    """The copy in which tools ran; empty: none did."""


async def store_prefix(store: Store, meta: SessionMeta, messages: Sequence[Message]) -> str:
    """Store a branch that begins with these messages of a session; returns its id."""
    title = f"{meta.title} (branch)" if meta.title else ""
    return await store_branch(store, meta, meta.taint, messages, title)


class RecordedResults:
    """Results of the calls that a session made, by tool and arguments."""

    def __init__(self, messages: Sequence[Message]) -> None:
        calls = {call.id: call for message in messages for call in message.calls}
        self._results: dict[tuple[str, str], deque[ToolReturn]] = {}
        for message in messages:
            for part in message.parts:
                if isinstance(part, ToolReturn) and (call := calls.get(part.call_id)) is not None:
                    self._results.setdefault(_describe_call(call), deque()).append(part)

    def take_result(self, call: ToolCall) -> RecordedResult | None:
        """The result of an equal call; the last one is given as often as it is asked for."""
        found = self._results.get(_describe_call(call))
        if not found:
            return None
        result = found.popleft() if len(found) > 1 else found[0]
        return RecordedResult(result.content, error=result.error, unquoted=result.unquoted)


def _describe_call(call: ToolCall) -> tuple[str, str]:
    """Equal for calls that ask for the same: models write the same arguments differently."""
    try:
        return call.name, json.dumps(json.loads(call.args), sort_keys=True)
    except (ValueError, RecursionError):
        return call.name, call.args


class BranchTools(Mapping[str, Tool[Any]]):
    """The tools of a live session: an equal call gets the recorded result, others run in the copy
    of the files or end the session."""

    def __init__(self, branch: LiveBranch, tools: Mapping[str, Tool[Any]]) -> None:
        self._branch = branch
        self._tools = tools

    def __getitem__(self, name: str) -> Tool[Any]:
        tool = self._tools[name]

        async def run(params: Any, ctx: ToolContext) -> ToolResult | str:
            return await self._branch.run_tool(tool, params, ctx)

        return structs.replace(tool, run=run)

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools


class StepCounter:
    """Counts the steps of a branch. An EventSink."""

    is_closed = False

    def __init__(self, branch: LiveBranch) -> None:
        self._branch = branch

    def put(self, event: TurnEvent) -> None:
        self._branch.steps += isinstance(event, StepStart)

    def close(self) -> None:
        return None


class LiveBranch:
    """A branch of a stored session that a live model continues."""

    def __init__(self, runtime: Runtime, results: RecordedResults, *, steps: int) -> None:
        self._runtime = runtime
        self._results = results
        self.steps = steps
        self._diverged: Divergence | None = None
        self._session: Session | None = None
        self._folder: Path | None = None

    async def run(
        self, branch: str, model: str, prompts: Sequence[Message], folder: Path | None
    ) -> LiveEnd:
        """Continue the branch with this model, then put the later prompts to it. `folder`: where
        tools run; None: they do not."""
        self._folder = folder
        session = self._session = await self._runtime.open_session(
            resume=branch, cwd=folder, options=Options(ModelChoice(model))
        )
        session.attach_sink(StepCounter(self))
        agent = session.agent
        session.host.agent = structs.replace(agent, tools=BranchTools(self, agent.tools))
        try:
            result = await self._answer_prompts(session, prompts)
        finally:
            await session.close()
        return LiveEnd(
            "diverged" if self._diverged else result.status,
            result.text,
            self.steps,
            "" if self._diverged else result.error,
            self._diverged,
            str(folder or ""),
        )

    async def _answer_prompts(self, session: Session, prompts: Sequence[Message]) -> TurnResult:
        result = TurnResult("completed")
        messages = session.transcript.history.messages
        if messages and (messages[-1].role != "assistant" or messages[-1].calls):
            result = await session.continue_turn()
        for prompt in prompts:
            if result.status != "completed":
                break
            result = await session.submit(prompt)
        return result

    async def run_tool(self, tool: Tool[Any], params: Any, ctx: ToolContext) -> ToolResult | str:
        recorded = self._results.take_result(ctx.call)
        if recorded is not None:
            if self._folder is not None and tool.has_effects:
                await tool.run(params, ctx)  # later calls must find what it did
            return recorded
        if self._folder is not None:
            return await tool.run(params, ctx)
        if self._diverged is None and self._session is not None:
            self._diverged = Divergence(self.steps, ctx.call.name, ctx.call.args)
            self._session.stop()
        return "This call was not recorded."


class RepeatHost(SessionHost):
    """Repeats calls for what they do to files; nothing of it is recorded or shown."""

    def __init__(self, host: SessionHost) -> None:
        self.__dict__.update(host.__dict__)

    async def record(
        self, message: Message | None, state: SessionState | None, error: str = ""
    ) -> None:
        return None

    def emit_nothing(self, event: TurnEvent) -> None:
        return None


async def restore_files(
    runtime: Runtime, meta: SessionMeta, messages: Sequence[Message], target: Path
) -> None:
    """Fill the folder with the files as they were after these messages: the checkpoint before the
    last turn's first change, and then what its calls changed."""
    from hermes.exec.snapshots.checkpoints import copy_checkpoint

    home, starts = runtime.setup.home, find_turn_starts(messages)
    first = starts[-1] if starts else 0
    length = max(meta.messages, len(messages))
    found = await find_checkpoint_since(runtime.store, home, meta, index=first, length=length)
    if found is None:
        if (source := Path(meta.cwd)).is_dir():
            await asyncio.to_thread(copy_folder, source, target, home)
        return
    await copy_checkpoint(Path(meta.cwd), home, found.id, target)
    if f"[{meta.id} {first}]" in found.label:
        await _repeat_calls(runtime, meta, messages[first:], target)


async def _repeat_calls(
    runtime: Runtime, meta: SessionMeta, messages: Sequence[Message], folder: Path
) -> None:
    """Make the calls of a turn again that change files, in the copy."""
    session = await runtime.open_session(source="batch", cwd=folder, needs_model=False)
    failed = {
        part.call_id
        for message in messages
        for part in message.parts
        if isinstance(part, ToolReturn) and part.error
    }
    host = RepeatHost(session.host)
    host.emit = host.emit_nothing
    agent: Agent = session.agent
    turn = Turn(system="", history=History(), host=host, learned={})
    try:
        for message in messages:
            calls = [
                structs.replace(call, args=_move_paths(call.args, meta.cwd, folder))
                for call in message.calls
                if call.id not in failed
                and call.name in agent.tools
                and agent.tools[call.name].has_effects
            ]
            if calls:
                await ToolBatch(agent, turn, LoopGuard()).run_calls(calls)
    finally:
        await session.close()


def _move_paths(args: str, old: str, new: Path) -> str:
    return args.replace(f"{old}{os.sep}", f"{new}{os.sep}")
