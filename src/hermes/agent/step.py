"""One step of a turn: a model call with its retries and continuations, to one usable message."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from contextlib import aclosing

from msgspec import structs

from hermes.agent.continuation import OverlapFilter, strip_overlap
from hermes.agent.endpoint_lessons import probe_own_server
from hermes.agent.error_messages import (
    THINKING_EXHAUSTED,
    TRUNCATED,
    describe_failure,
    find_similar_models,
)
from hermes.agent.json_repair import is_truncated
from hermes.agent.recovery import Attempt, Fault, try_recovery
from hermes.agent.tool_names import resolve_name
from hermes.agent.turn import Agent, CallTicket, ModelClient, Turn
from hermes.core.errors import CODES, Failure, Kind, ProviderError
from hermes.core.events import StreamEvent, TextDelta
from hermes.core.ledger import OverBudget
from hermes.core.lifecycle import run_shielded
from hermes.core.message import Message, Part, Stop, Text, Thinking, ToolCall, Usage, user_message
from hermes.core.provider import Request
from hermes.llm.response_builder import ResponseBuilder

CONTINUE = (
    "[Your answer was cut off. Continue exactly where it stopped, without repeating anything "
    "and without comment.]"
)
REWRITE_CALL = (
    "[Your tool call was cut off by the output limit and was not run. Write the complete call "
    "again; split large content into several smaller calls.]"
)
CALL_LOST = "[The connection broke while you wrote a tool call; it was not run. Go on from there.]"
MAX_CONTINUES = 3
_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]|^(?=[0-9-])")
"""Characters that some wire rejects in the name of a tool, and a digit or dash in front."""


class TurnStopped(Exception):
    """Ends the turn without a complete answer. `message` is the part of it that is kept; `partial`:
    an earlier part is recorded already."""

    def __init__(
        self, code: str, error: str, message: Message | None = None, *, partial: bool = False
    ) -> None:
        super().__init__(error)
        self.code = code
        self.error = error
        self.message = message
        self.partial = partial


class _Step:
    """State of one step across its calls."""

    __slots__ = ("answer", "attempt", "continues", "died", "pieces", "thoughts", "ticket")

    def __init__(self, attempt: Attempt) -> None:
        self.attempt = attempt
        self.answer: ResponseBuilder | None = None
        """The response being received."""
        self.pieces: list[str] = []
        """Visible text of earlier calls of this step that were cut off."""
        self.thoughts: list[Part] = []
        self.ticket: CallTicket | None = None
        """The reservation of the running call; None: nothing to settle."""
        self.continues = 0
        self.died = 0

    @property
    def text_so_far(self) -> str:
        return "".join(self.pieces)


async def sample_message(agent: Agent, turn: Turn, attempt: Attempt) -> Message:
    """Call the model until there is a usable message, and return it unrecorded. Raises TurnStopped
    when there is none; a cancellation records what was streamed first."""
    step = _Step(attempt)
    try:
        return await _sample_until_usable(agent, turn, step)
    except asyncio.CancelledError:
        await run_shielded(_keep_partial(agent, turn, step))
        raise


async def _sample_until_usable(agent: Agent, turn: Turn, step: _Step) -> Message:
    while True:
        await append_steer(turn)
        await probe_own_server(agent, turn)
        if turn.compressor is not None:
            await turn.compressor.before_call(agent, turn)
        answer = step.answer = ResponseBuilder()
        failure = await _stream_answer(agent, turn, step, answer)
        message = _settle_usage(agent, turn, step, answer, failure.kind.value if failure else "")
        if failure is None:
            failure = _find_anomaly(message, answer)
        if failure is None or failure.kind is Kind.TRUNCATED_CALL or _has_content(message):
            done = await _accept_answer(agent, turn, step, message, failure)
            if done is not None:
                return done
            continue
        if failure.kind is Kind.EMPTY and message.thinking:
            step.thoughts.append(Thinking(message.thinking))  # unsealed: its answer is not kept
        if not await try_recovery(Fault(failure, step.attempt, agent, turn)):
            raise await _give_up(agent, turn, step, failure)


def _settle_usage(
    agent: Agent, turn: Turn, step: _Step, answer: ResponseBuilder, outcome: str
) -> Message:
    """The response as a message; settles its usage and adds it to the turn's."""
    step.answer = None
    message = answer.build_message(agent.providers[turn.active].target)
    if turn.meter is not None and step.ticket is not None:
        ticket, step.ticket = step.ticket, None
        spent = _estimate_spent(answer, outcome, ticket)
        usage = turn.meter.settle_call(ticket, spent, outcome, [c.name for c in message.calls])
        message = structs.replace(message, usage=usage)
        turn.usage += usage
    else:
        turn.usage += answer.usage
    if answer.stop not in (None, "died") or not answer.is_empty:
        turn.calls += 1
        turn.target = message.origin
    return message


def _estimate_spent(answer: ResponseBuilder, outcome: str, ticket: CallTicket) -> Usage:
    """The usage, with an estimated input for an abandoned call: its prompt is billed, but no usage
    was reported."""
    usage = answer.usage
    if outcome not in ("interrupted", Kind.STALLED.value) or usage.input or not answer.request_size:
        return usage
    return structs.replace(usage, input=ticket.entry.input, estimated=True)


async def _reserve_call(
    turn: Turn, step: _Step, provider: ModelClient, request: Request
) -> Request:
    """Reserve the budget of a call. At a cap the turn ends with what was received so far."""
    if turn.meter is None:
        return request
    try:
        step.ticket = await turn.meter.reserve_call(provider, request)
    except OverBudget as error:
        kept = _join_pieces(step, Message("assistant", (), origin=turn.target, stop="length"))
        begun = bool(step.pieces or turn.calls)
        raise TurnStopped(
            "budget", str(error), kept if step.text_so_far else None, partial=begun
        ) from None
    return step.ticket.request


async def _stream_answer(
    agent: Agent, turn: Turn, step: _Step, answer: ResponseBuilder
) -> Failure | None:
    """Send one request and emit its events as they arrive, without what a continuation repeats."""
    seam = OverlapFilter(step.text_so_far) if step.pieces else None
    provider = agent.providers[turn.active]
    request = await _reserve_call(turn, step, provider, step.attempt.build_request(agent, turn))
    emit = turn.host.emit
    try:
        # aclosing: leaving the block for any reason, cancellation included, closes the socket.
        async with aclosing(provider.stream(request, answer)) as batches:
            async for events in batches:
                for event in events if seam is None else _strip_repetition(seam, events):
                    emit(event)
    except ProviderError as error:
        _flush_answer(turn, answer, seam)
        return error.failure
    except asyncio.CancelledError:
        _flush_answer(turn, answer, seam)
        raise
    if seam is not None and (rest := seam.finish()):
        emit(TextDelta(rest))
    return None


def _flush_answer(turn: Turn, answer: ResponseBuilder, seam: OverlapFilter | None) -> None:
    """Emit what had arrived when the stream ended early."""
    for event in (
        answer.finish_events() if seam is None else _strip_repetition(seam, answer.finish_events())
    ):
        turn.host.emit(event)
    if seam is not None and (rest := seam.finish()):
        turn.host.emit(TextDelta(rest))


def _strip_repetition(seam: OverlapFilter, events: Sequence[StreamEvent]) -> list[StreamEvent]:
    out: list[StreamEvent] = []
    for event in events:
        if not isinstance(event, TextDelta):
            out.append(event)
        elif text := seam.feed(event.text):
            out.append(TextDelta(text))
    return out


async def _keep_partial(agent: Agent, turn: Turn, step: _Step) -> None:
    if step.answer is not None:
        message = _settle_usage(agent, turn, step, step.answer, "interrupted")
    else:
        message = Message("assistant", (), origin=turn.target)
    kept = _join_pieces(step, message, stop="aborted", calls=False)
    if any(isinstance(p, Text | Thinking) and p.text for p in kept.parts):
        await turn.append(kept, "interrupted")


async def append_steer(turn: Turn) -> None:
    """Append guidance given during the turn behind the last tool result; without one it waits."""
    last = turn.history.messages[-1]
    carried = last.role == "tool" or last.kind == "steer"
    if carried and (text := turn.host.take_steer()):
        await turn.append(user_message(text, kind="steer"))


def _has_content(message: Message) -> bool:
    """Whether the message has visible text or a tool call; if so, it is not simply retried."""
    return bool(message.calls or message.text.strip())


def _find_anomaly(message: Message, answer: ResponseBuilder) -> Failure | None:
    """The failure behind a response that is no usable answer; recovered like any other."""
    if answer.stop == "died":
        return Failure(Kind.NETWORK, "the stream ended before the answer was complete")
    calls = message.calls
    if calls:
        if any(is_truncated(c.args) for c in calls):
            return Failure(Kind.TRUNCATED_CALL, TRUNCATED)
        return None
    if answer.stop == "paused" or message.text.strip():
        return None
    if answer.stop == "filtered":
        return Failure(Kind.CONTENT_POLICY, answer.detail or "the answer was withheld")
    if answer.stop == "length":
        return None
    return Failure(Kind.EMPTY, "no text and no tool call")


async def _accept_answer(
    agent: Agent, turn: Turn, step: _Step, message: Message, failure: Failure | None
) -> Message | None:
    """Return the step's message if the response completes it; None if the model has to continue."""
    if failure is not None and failure.kind is Kind.TRUNCATED_CALL:
        return await _handle_truncated_call(agent, turn, step, message, failure)
    if failure is not None:
        return await _handle_broken_stream(agent, turn, step, message, failure)
    if message.calls or message.stop not in ("length", "filtered"):
        return _join_pieces(step, message)
    if message.stop == "filtered":
        raise TurnStopped(
            "content_policy",
            "The provider cut this answer for its content policy; what arrived is kept. "
            "Word the request differently or use another model.",
            _join_pieces(step, message),
        )
    thought = any(isinstance(p, Thinking) for p in message.parts)  # readable or sealed
    if not message.text.strip() and not step.pieces and thought:
        raise TurnStopped("thinking_exhausted", THINKING_EXHAUSTED, message)
    if step.continues >= MAX_CONTINUES:
        raise TurnStopped(
            "output_truncated",
            f"{TRUNCATED}, also after {MAX_CONTINUES} continuations. What arrived is kept. "
            "Raise model.max_tokens or ask for a shorter answer.",
            _join_pieces(step, message),
        )
    _ask_to_continue(step, message)
    return None


async def _handle_broken_stream(
    agent: Agent, turn: Turn, step: _Step, message: Message, failure: Failure
) -> Message | None:
    """Keep what a broken stream delivered, and call the model once more."""
    provider = agent.providers[turn.active]
    begun = [c.name or "?" for c in message.calls]
    if begun:
        warning = _describe_lost_calls(begun)
        turn.host.emit(TextDelta(warning))
        await turn.append(_add_text(_join_pieces(step, message, stop="died", calls=False), warning))
        step.pieces, step.thoughts = [], []
        step.attempt.tail = (user_message(CALL_LOST),)
    else:
        _ask_to_continue(step, message)
    step.died += 1
    if step.died > 1 or not await try_recovery(Fault(failure, step.attempt, agent, turn)):
        kept = _join_pieces(step, Message("assistant", (), origin=message.origin, stop="died"))
        error = describe_failure(failure, provider)
        raise TurnStopped(
            CODES[failure.kind], error, kept if step.text_so_far else None, partial=True
        )
    return None


async def _handle_truncated_call(
    agent: Agent, turn: Turn, step: _Step, message: Message, failure: Failure
) -> Message | None:
    if not await try_recovery(Fault(failure, step.attempt, agent, turn)):
        error = describe_failure(failure, agent.providers[turn.active])
        raise TurnStopped("output_truncated", error, _join_pieces(step, message, calls=False))
    if message.text:
        _ask_to_continue(step, message, REWRITE_CALL)
    return None


def _ask_to_continue(step: _Step, message: Message, ask: str = CONTINUE) -> None:
    """Have the next request ask for the rest. The text so far is sent with it, not recorded."""
    step.continues += 1
    step.thoughts.extend(p for p in message.parts if isinstance(p, Thinking))
    step.pieces.append(strip_overlap(step.text_so_far, message.text))
    so_far: tuple[Message, ...] = ()
    if step.text_so_far:
        so_far = (Message("assistant", (Text(step.text_so_far),), origin=message.origin),)
    step.attempt.tail = (*so_far, user_message(ask))


def _join_pieces(
    step: _Step, message: Message, *, stop: Stop | None = None, calls: bool = True
) -> Message:
    """The message with the text of the earlier calls in front, without repeated words."""
    parts = [p for p in message.parts if calls or not isinstance(p, ToolCall)]
    if step.pieces:
        texts = strip_overlap(
            step.text_so_far, "".join(p.text for p in parts if isinstance(p, Text))
        )
        rest = [p for p in parts if not isinstance(p, Text)]
        thoughts = [p for p in rest if isinstance(p, Thinking)]
        others = [p for p in rest if not isinstance(p, Thinking)]
        parts = [*step.thoughts, *thoughts, Text(step.text_so_far + texts), *others]
    elif step.thoughts:
        parts = [*step.thoughts, *parts]
    return structs.replace(message, parts=tuple(parts), stop=stop or message.stop)


def _add_text(message: Message, text: str) -> Message:
    return structs.replace(message, parts=(*message.parts, Text(text)))


def _describe_lost_calls(names: list[str]) -> str:
    listed = ", ".join(names)
    return f"\n\n⚠ Stream stalled mid tool-call ({listed}): {listed} was not executed."


async def _give_up(agent: Agent, turn: Turn, step: _Step, failure: Failure) -> TurnStopped:
    provider = agent.providers[turn.active]
    near = await find_similar_models(provider) if failure.kind is Kind.MODEL_NOT_FOUND else ()
    kept = None
    if step.pieces:
        empty = Message("assistant", (), origin=turn.target, stop="died")
        kept = _join_pieces(step, empty)
    elif failure.kind is Kind.CONTENT_POLICY:  # recorded, so that it is not sent there again
        who = None if turn.active and step.attempt.declined else provider.target
        kept = Message("assistant", (), origin=who, stop="filtered")
    elif step.thoughts:
        kept = _join_pieces(step, Message("assistant", (), origin=turn.target, stop="end"))
    return TurnStopped(CODES[failure.kind], describe_failure(failure, provider, near), kept)


def normalize_calls(message: Message, tools: list[str], taken: set[str], position: int) -> Message:
    """The message with unique call ids, and tool names corrected where their meaning is clear."""
    seen: set[str] = set()
    parts: list[Part] = []
    for i, part in enumerate(message.parts):
        if isinstance(part, ToolCall):
            id = part.id
            if not id or id in taken or id in seen:
                id = f"{part.id or 'call'}_{position}_{i}"
            seen.add(id)
            name = part.name if part.name in tools else resolve_name(part.name, tools)
            name = name or _ILLEGAL.sub("_", part.name)[:64] or "unknown"
            if (id, name) != (part.id, part.name):
                part = structs.replace(part, id=id, name=name)
        parts.append(part)
    return structs.replace(message, parts=tuple(parts))
