"""The agent loop: sample, execute, steer, repeat."""

import asyncio
from collections.abc import Collection, Sequence
from typing import Literal, NoReturn

from msgspec import Struct, structs

from hermes.agent.error_messages import FailureText, limit_length
from hermes.agent.loop_guard import MAX_BAD_STEPS, STOP_AT, LoopGuard
from hermes.agent.recovery import Attempt
from hermes.agent.step import TurnStopped, append_steer, normalize_calls, sample_message
from hermes.agent.tool_executor import ToolBatch
from hermes.agent.turn import Agent, Turn
from hermes.core.errors import StoreError
from hermes.core.events import StepStart, TurnEnd, TurnResult, TurnStatus
from hermes.core.lifecycle import run_shielded
from hermes.core.message import Message, Text, ToolCall, ToolReturn, user_message
from hermes.llm.http.tape import note_step

LAST_CALL = (
    "[The limit of {n} model calls for this turn is reached; no tool will be run any more. Say "
    "what was done, what is left and how to go on.]"
)
OUTCOME_UNKNOWN = (
    "Hermes was restarted while this ran; its outcome is unknown. Check before repeating it."
)
NODE_DIED = (
    "The node that ran this died while it ran; whether it took effect is not known. It was not "
    "repeated."
)
HANDED_OVER = "handed_over"
"""The code of a turn that stopped after a step so that another process continues it."""
TRY_AGAIN = "Everything so far is kept. Try again or another model."
PARTIAL = frozenset({"output_truncated", "max_turns", "tool_loop", "unknown_tools"})
"""Codes of endings that count as partial even when there is no text."""


class CutTurn(Struct, frozen=True):
    """What is known of a turn that the end of a process cut off."""

    lost: str = OUTCOME_UNKNOWN
    """What the model is told of calls whose outcome is not known."""
    started: frozenset[str] | None = None
    """The calls that had begun; None: it was not noted."""
    shown: str = ""
    """Text of the unfinished answer that people have seen: the model goes on after it."""


async def run_turn(
    agent: Agent,
    turn: Turn,
    prompt: Message | None,
    *,
    recorded: bool = False,
    cut: CutTurn | None = None,
) -> TurnResult:
    """Drive one user prompt to its end; None: the prompt that ends the history, whose turn was cut
    off. Cancel the task to interrupt: it still returns. `recorded`: the history already ends with
    the prompt, which an earlier turn failed to answer. `cut`: what is known of a turn that was cut
    off."""
    try:
        try:
            result = await _answer_prompt(agent, turn, prompt, recorded=recorded, cut=cut)
        except TurnStopped as stop:
            result, _ = await run_shielded(_end_early(turn, stop))
        except _HandOver:
            await run_shielded(turn.record_state("interrupted"))
            result = _build_result(turn, "interrupted", "Handed over.", HANDED_OVER)
    except StoreError as error:
        code = "unavailable" if error.code == "away" else "internal"
        result = _build_result(turn, "failed", limit_length(str(error)), code)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None:
            task.uncancel()
        await run_shielded(turn.record_state("interrupted"))
        result = _build_result(turn, "interrupted", "Interrupted.", "interrupted")
    turn.host.emit(TurnEnd(result))
    return result


async def _answer_prompt(
    agent: Agent, turn: Turn, prompt: Message | None, *, recorded: bool, cut: CutTurn | None
) -> TurnResult:
    shown = ""
    if prompt is None:
        cut = cut or CutTurn()
        shown = cut.shown
        await turn.record_state("running")
        await _close_cut_calls(agent, turn, cut)
    elif recorded:
        turn.added.append(prompt)
        await turn.record_state("running")
    else:
        await turn.append(prompt, "running")
    return await _run_steps(agent, turn, shown)


async def _close_cut_calls(agent: Agent, turn: Turn, cut: CutTurn) -> None:
    """Record a result for each call that a dead process left without one. A call that may have
    begun and changes something does not run again: nobody knows how far it came."""
    lost = find_lost_calls(agent, turn.history.messages, cut.started)
    again = [call for call in find_open_calls(turn.history.messages) if call not in lost]
    for call in lost:
        result = ToolReturn(call.id, call.name, (Text(cut.lost),), error=True)
        await turn.append(Message("tool", (result,)))
    if again:
        await ToolBatch(agent, turn, LoopGuard()).run_calls(again)


def find_lost_calls(
    agent: Agent, messages: Sequence[Message], started: Collection[str] | None
) -> list[ToolCall]:
    """The calls without a result whose outcome is not known. `started`: those that had begun;
    None: it was not noted, so any may have."""
    calls = find_open_calls(messages)
    if started is None:
        return calls
    return [call for call in calls if call.id in started and not _is_repeatable(agent, call)]


def _is_repeatable(agent: Agent, call: ToolCall) -> bool:
    tool = agent.tools.get(call.name)
    return tool is not None and tool.is_repeatable and tool.forward is None


def find_open_calls(messages: Sequence[Message]) -> list[ToolCall]:
    """The calls of the last assistant message that have no result."""
    closed: set[str] = set()
    for message in reversed(messages):
        if message.role == "tool":
            closed |= {part.call_id for part in message.parts if isinstance(part, ToolReturn)}
        elif message.role == "assistant":
            return [call for call in message.calls if call.id not in closed]
        elif message.kind == "normal":
            break
    return []


class _HandOver(Exception):
    """Another process continues the turn."""


async def _run_steps(agent: Agent, turn: Turn, shown: str) -> TurnResult:
    guard = LoopGuard()
    names = [*agent.tools, *agent.client_tools] if agent.client_tools else agent.tools
    n = 0
    while turn.calls < agent.limits.max_calls:
        if n and turn.host.hands_over:
            raise _HandOver
        n += 1
        note_step()
        turn.host.emit(StepStart(n))
        message = await sample_message(agent, turn, Attempt(agent.settings), shown)
        shown = ""
        if message.stop == "paused" and not message.calls:
            await turn.append(message)
            continue
        calls = message.calls
        if calls:
            message = normalize_calls(message, names, turn.history.call_ids, len(turn.history))
        own = [call for call in message.calls if call.name not in agent.client_tools]
        await turn.append(message, None if own else "idle")
        if not own:
            return _build_result(turn, "completed")
        await ToolBatch(agent, turn, guard).run_calls(own)
        if len(own) < len(message.calls):
            await turn.record_state("idle")
            return _build_result(turn, "completed")
        _raise_if_looping(guard, calls)
        await append_steer(turn)
    await _make_last_call(agent, turn)


def _raise_if_looping(guard: LoopGuard, calls: tuple[ToolCall, ...]) -> None:
    if guard.looping:
        raise TurnStopped(
            "tool_loop",
            f"Stopped: the model repeated the same call to {guard.looping} {STOP_AT} times with "
            "the same result. Everything done so far is kept. Tell it what to do differently.",
        )
    if guard.unknown_steps >= MAX_BAD_STEPS:
        cause = (
            f"Stopped: the model asked {MAX_BAD_STEPS} times in a row for tools that do not exist "
            f"(last: {calls[-1].name})."
        )
        raise TurnStopped("unknown_tools", FailureText(f"{cause} {TRY_AGAIN}", cause))
    if guard.bad_steps >= MAX_BAD_STEPS:
        cause = (
            f"Stopped: the model wrote unusable arguments for {calls[-1].name} {MAX_BAD_STEPS} "
            "times in a row."
        )
        raise TurnStopped("tool_loop", FailureText(f"{cause} {TRY_AGAIN}", cause))


async def _make_last_call(agent: Agent, turn: Turn) -> NoReturn:
    """Make one more call without tools when the limit of calls is reached, then end the turn."""
    limit = agent.limits.max_calls
    attempt = Attempt(structs.replace(agent.settings, tool_choice="none"))
    attempt.tail = (user_message(LAST_CALL.format(n=limit)),)
    error = (
        f"Stopped after {limit} model call{'s' * (limit != 1)} (max_turns). Everything done is "
        "kept. Send 'continue' to resume, or raise agent.max_turns."
    )
    try:
        message = await sample_message(agent, turn, attempt)
    except TurnStopped as stop:
        raise TurnStopped("max_turns", error, stop.message) from stop
    text = tuple(p for p in message.parts if not isinstance(p, ToolCall))
    raise TurnStopped("max_turns", error, structs.replace(message, parts=text, stop="end"))


async def _end_early(turn: Turn, stop: TurnStopped) -> TurnResult:
    text = stop.message.text if stop.message is not None else ""
    partial = stop.partial or stop.code in PARTIAL or bool(text.strip())
    status: Literal["partial", "failed"] = "partial" if partial else "failed"
    error = limit_length(stop.text.error)
    if stop.message is not None and (stop.message.parts or stop.message.stop == "filtered"):
        await turn.append(stop.message, status, error)
    else:
        await turn.record_state(status, error)
    result = _build_result(turn, status, error, stop.code)
    return structs.replace(
        result, cause=stop.text.cause, error_detail=stop.detail, retry_after=stop.retry_after
    )


def _build_result(turn: Turn, status: TurnStatus, error: str = "", code: str = "") -> TurnResult:
    assistant = [m for m in turn.added if m.role == "assistant"]
    text = assistant[-1].text if assistant else ""
    if not text.strip() and status != "completed":
        text = next((m.text for m in reversed(assistant) if m.text.strip()), "")
    pending = "" if status == "interrupted" else turn.host.take_steer()
    return TurnResult(
        status,
        text,
        reasoning="\n".join(m.thinking for m in assistant if m.thinking),
        error=error,
        error_code=code,
        messages=tuple(turn.added),
        model_calls=turn.calls,
        usage=turn.usage,
        pending_steer=pending,
        target=turn.target,
        effects=turn.effects,
    )
