"""One step of a turn: a model call with its retries and continuations, to one usable message."""

import asyncio
import logging
import re
import time
from collections.abc import Collection, Sequence
from contextlib import aclosing

from msgspec import structs, to_builtins

from hermes.agent.continuation import OverlapFilter, strip_overlap
from hermes.agent.endpoint_lessons import learn_calling, probe_own_server
from hermes.agent.error_messages import (
    THINKING_EXHAUSTED,
    TRUNCATED,
    FailureText,
    describe_failure,
    find_similar_models,
)
from hermes.agent.json_repair import is_truncated
from hermes.agent.recovery import Attempt, Fault, try_recovery
from hermes.agent.tool_names import resolve_name
from hermes.agent.turn import Agent, CallTicket, ModelClient, Turn
from hermes.core.errors import CODES, Failure, Kind, ProviderError
from hermes.core.events import StreamEvent, TextDelta
from hermes.core.hooks import SessionHooks
from hermes.core.ledger import OverBudget
from hermes.core.lifecycle import run_shielded
from hermes.core.message import Message, Part, Stop, Text, Thinking, ToolCall, Usage, user_message
from hermes.core.provider import Request
from hermes.llm.http.tape import note_choice
from hermes.llm.response_builder import ResponseBuilder

log = logging.getLogger(__name__)

CONTINUE = (
    "[Your answer was cut off. Continue exactly where it stopped, without repeating anything "
    "and without comment.]"
)
REWRITE_CALL = (
    "[Your tool call was cut off by the output limit and was not run. Write the complete call "
    "again; split large content into several smaller calls.]"
)
CALL_LOST = "[The connection broke while you wrote a tool call; it was not run. Go on from there.]"
_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]|^(?=[0-9-])")
"""Characters that some wire rejects in the name of a tool, and a digit or dash in front."""


class TurnStopped(Exception):
    """Ends the turn without a complete answer. `message` is the part of it that is kept; `partial`:
    an earlier part is recorded already; `detail`: the provider's complete message; `retry_after`:
    the seconds the provider wants to wait."""

    def __init__(
        self,
        code: str,
        error: str | FailureText,
        message: Message | None = None,
        *,
        partial: bool = False,
        detail: str = "",
        retry_after: float | None = None,
    ) -> None:
        self.text = error if isinstance(error, FailureText) else FailureText(error)
        super().__init__(self.text.error)
        self.code = code
        self.message = message
        self.partial = partial
        self.detail = detail
        self.retry_after = retry_after


class _Step:
    """State of one step across its calls."""

    def __init__(self, agent: Agent, turn: Turn, attempt: Attempt) -> None:
        self.agent = agent
        self.turn = turn
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

    @property
    def provider(self) -> ModelClient:
        return self.agent.providers[self.turn.active]

    async def sample_until_usable(self) -> Message:
        agent, turn = self.agent, self.turn
        while True:
            await append_steer(turn)
            await probe_own_server(agent, turn)
            if turn.compressor is not None:
                await turn.compressor.before_call(agent, turn)
            answer = self.answer = ResponseBuilder()
            if turn.host.hooks is None:
                failure = await self._stream_answer(answer)
            else:
                failure = await self._stream_hooked(answer, turn.host.hooks)
            message = self._settle_usage(answer, failure.kind.value if failure else "")
            if failure is None:
                failure = _find_anomaly(message, answer)
                await learn_calling(turn, self.provider, answer.calling)
            if failure is not None and failure.kind is Kind.UNREADABLE_CALL:
                done = await self._handle_unreadable_call(message, answer, failure)
                if done is not None:
                    return done
                continue
            self._emit_events(answer.release_events())
            # With visible text or a tool call it is not simply retried.
            has_content = bool(message.calls or message.text.strip())
            if failure is None or failure.kind is Kind.TRUNCATED_CALL or has_content:
                done = await self._accept_answer(message, failure)
                if done is not None:
                    return done
                continue
            if failure.kind is Kind.EMPTY and message.thinking:
                self.thoughts.append(Thinking(message.thinking))  # unsealed: its answer is not kept
            if not await self._try_recovery(failure):
                raise await self._give_up(failure)

    def _settle_usage(self, answer: ResponseBuilder, outcome: str) -> Message:
        """The response as a message; settles its usage and adds it to the turn's."""
        turn = self.turn
        self.answer = None
        message = answer.build_message(self.provider.target)
        if turn.meter is not None and self.ticket is not None:
            ticket, self.ticket = self.ticket, None
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

    async def _reserve_call(self, request: Request) -> Request:
        """Reserve the budget of a call. At a cap the turn ends with what was received so far."""
        turn = self.turn
        if turn.meter is None:
            return request
        try:
            self.ticket = await turn.meter.reserve_call(self.provider, request)
        except OverBudget as error:
            kept = self._keep_pieces("length") if self.text_so_far else None
            begun = bool(self.pieces or turn.calls)
            raise TurnStopped("budget", str(error), kept, partial=begun) from None
        return self.ticket.request

    async def _stream_hooked(self, answer: ResponseBuilder, hooks: SessionHooks) -> Failure | None:
        target, began = self.provider.target, time.monotonic()
        about = {"model": target.model, "provider": target.provider}
        await hooks.notify("pre_api_request", **about)
        failure = await self._stream_answer(answer)
        usage = to_builtins(answer.usage)
        duration = round((time.monotonic() - began) * 1000)
        await hooks.notify("post_api_request", **about, usage=usage, duration_ms=duration)
        return failure

    async def _stream_answer(self, answer: ResponseBuilder) -> Failure | None:
        """Send one request and emit its events as they arrive, without what a continuation
        repeats."""
        seam = OverlapFilter(self.text_so_far) if self.pieces else None
        emit = self.turn.host.emit

        def emit_all(events: Sequence[StreamEvent]) -> None:
            for event in events if seam is None else _strip_repetition(seam, events):
                emit(event)

        request = await self._reserve_call(self.attempt.build_request(self.agent, self.turn))
        try:
            # aclosing: leaving the block for any reason, cancellation included, closes the socket.
            async with aclosing(self.provider.stream(request, answer)) as batches:
                async for events in batches:
                    emit_all(events)
        except ProviderError as error:
            emit_all(answer.finish_events())
            return error.failure
        except asyncio.CancelledError:
            emit_all(answer.finish_events())
            raise
        finally:
            if seam is not None and (rest := seam.finish()):
                emit(TextDelta(rest))
        return None

    async def keep_partial(self) -> None:
        """Record what was streamed before a cancellation."""
        if self.answer is not None:
            message = self._settle_usage(self.answer, "interrupted")
        else:
            message = Message("assistant", (), origin=self.turn.target)
        kept = self._join_pieces(message, stop="aborted", calls=False)
        if any(isinstance(p, Text | Thinking) and p.text for p in kept.parts):
            await self.turn.append(kept, "interrupted")

    async def _accept_answer(self, message: Message, failure: Failure | None) -> Message | None:
        """Return the step's message if the response completes it; None if the model has to
        continue."""
        if failure is not None:
            if failure.kind is Kind.TRUNCATED_CALL:
                await self._handle_truncated_call(message, failure)
            else:
                await self._handle_broken_stream(message, failure)
            return None
        if message.calls or message.stop not in ("length", "filtered"):
            return self._join_pieces(message)
        if message.stop == "filtered":
            raise TurnStopped(
                "content_policy",
                "The provider cut this answer for its content policy; what arrived is kept. "
                "Word the request differently or use another model.",
                self._join_pieces(message),
            )
        thought = any(isinstance(p, Thinking) for p in message.parts)  # readable or sealed
        if not message.text.strip() and not self.pieces and thought:
            raise TurnStopped("thinking_exhausted", THINKING_EXHAUSTED, message)
        limit = self.agent.limits.continues
        if self.continues >= limit:
            tried = f", also after {limit} continuations" if limit else ""
            raise TurnStopped(
                "output_truncated",
                f"{TRUNCATED}{tried}. What arrived is kept. "
                "Raise model.max_tokens or ask for a shorter answer.",
                self._join_pieces(message),
            )
        self._ask_to_continue(message)
        return None

    async def _handle_broken_stream(self, message: Message, failure: Failure) -> None:
        """Keep what a broken stream delivered, and call the model once more."""
        provider = self.provider
        if message.calls:
            names = ", ".join(c.name or "?" for c in message.calls)
            warning = f"\n\n⚠ Stream stalled mid tool-call ({names}): {names} was not executed."
            self.turn.host.emit(TextDelta(warning))
            kept = self._join_pieces(message, stop="died", calls=False)
            await self.turn.append(structs.replace(kept, parts=(*kept.parts, Text(warning))))
            self.pieces, self.thoughts = [], []
            self.attempt.tail = (user_message(CALL_LOST),)
        else:
            self._ask_to_continue(message)
        self.died += 1
        if self.died > 1 or not await self._try_recovery(failure):
            error = describe_failure(failure, provider)
            rest = Message("assistant", (), origin=message.origin, stop="died")
            part = self._join_pieces(rest) if self.text_so_far else None
            detail = failure.message
            raise TurnStopped(CODES[failure.kind], error, part, partial=True, detail=detail)

    async def _handle_unreadable_call(
        self, message: Message, answer: ResponseBuilder, failure: Failure
    ) -> Message | None:
        """Ask for the call in another form and keep the text before it; if there is no other form,
        what the model wrote is its answer."""
        held = answer.release_events()
        if not await self._try_recovery(failure):
            self._emit_events(held)
            return self._join_pieces(message)
        hidden = sum(len(event.text) for event in held if isinstance(event, TextDelta))
        if text := message.text[: len(message.text) - hidden]:
            self.pieces.append(strip_overlap(self.text_so_far, text))
        return None

    def _emit_events(self, events: Sequence[StreamEvent]) -> None:
        for event in events:
            self.turn.host.emit(event)

    async def _handle_truncated_call(self, message: Message, failure: Failure) -> None:
        if not self.agent.limits.continues or not await self._try_recovery(failure):
            error = describe_failure(failure, self.provider)
            raise TurnStopped("output_truncated", error, self._join_pieces(message, calls=False))
        if message.text:
            self._ask_to_continue(message, REWRITE_CALL)

    async def _try_recovery(self, failure: Failure) -> bool:
        target, status = self.provider.target, f" {failure.status}" if failure.status else ""
        log.warning(
            "%s (%s): %s%s: %s",
            *(target.provider, target.model, failure.kind.value, status, failure.message),
        )
        return await try_recovery(Fault(failure, self.attempt, self.agent, self.turn))

    def continue_text(self, text: str) -> None:
        """Have the model go on after a text that another process streamed."""
        self._ask_to_continue(Message("assistant", (Text(text),), origin=self.turn.target))

    def _ask_to_continue(self, message: Message, ask: str = CONTINUE) -> None:
        """Have the next request ask for the rest. The text so far is sent with it, not recorded."""
        self.continues += 1
        self.thoughts.extend(p for p in message.parts if isinstance(p, Thinking))
        self.pieces.append(strip_overlap(self.text_so_far, message.text))
        so_far: tuple[Message, ...] = ()
        if self.text_so_far:
            so_far = (Message("assistant", (Text(self.text_so_far),), origin=message.origin),)
        self.attempt.tail = (*so_far, user_message(ask))

    def _join_pieces(
        self, message: Message, *, stop: Stop | None = None, calls: bool = True
    ) -> Message:
        """The message with the text of the earlier calls in front, without repeated words."""
        parts = [p for p in message.parts if calls or not isinstance(p, ToolCall)]
        if self.pieces:
            text = "".join(p.text for p in parts if isinstance(p, Text))
            joined = Text(self.text_so_far + strip_overlap(self.text_so_far, text))
            thoughts = [p for p in parts if isinstance(p, Thinking)]
            others = [p for p in parts if not isinstance(p, Text | Thinking)]
            parts = [*thoughts, joined, *others]
        return structs.replace(message, parts=(*self.thoughts, *parts), stop=stop or message.stop)

    def _keep_pieces(self, stop: Stop) -> Message:
        """What earlier calls of this step delivered, as a message."""
        return self._join_pieces(Message("assistant", (), origin=self.turn.target, stop=stop))

    async def _give_up(self, failure: Failure) -> TurnStopped:
        provider, kept = self.provider, None
        near = await find_similar_models(provider) if failure.kind is Kind.MODEL_NOT_FOUND else ()
        if self.pieces:
            kept = self._keep_pieces("died")
        elif failure.kind is Kind.CONTENT_POLICY:  # recorded, so that it is not sent there again
            who = None if self.turn.active and self.attempt.declined else provider.target
            kept = Message("assistant", (), origin=who, stop="filtered")
        elif self.thoughts:
            kept = self._keep_pieces("end")
        return TurnStopped(
            CODES[failure.kind],
            describe_failure(failure, provider, near),
            kept,
            detail=failure.message,
            retry_after=failure.retry_after,
        )


async def sample_message(agent: Agent, turn: Turn, attempt: Attempt, shown: str = "") -> Message:
    """Call the model until there is a usable message, and return it unrecorded. Raises TurnStopped
    when there is none; a cancellation records what was streamed first. `shown`: how the message
    begins, as people have seen it."""
    step = _Step(agent, turn, attempt)
    if shown:
        step.continue_text(shown)
    try:
        return await step.sample_until_usable()
    except asyncio.CancelledError:
        await run_shielded(step.keep_partial())
        raise


def _estimate_spent(answer: ResponseBuilder, outcome: str, ticket: CallTicket) -> Usage:
    """The usage, with an estimated input for an abandoned call: its prompt is billed, but no usage
    was reported."""
    usage = answer.usage
    if outcome not in ("interrupted", Kind.STALLED.value) or usage.input or not answer.request_size:
        return usage
    return structs.replace(usage, input=ticket.entry.input, estimated=True)


def _strip_repetition(seam: OverlapFilter, events: Sequence[StreamEvent]) -> list[StreamEvent]:
    out: list[StreamEvent] = []
    for event in events:
        if not isinstance(event, TextDelta):
            out.append(event)
        elif text := seam.feed(event.text):
            out.append(TextDelta(text))
    return out


async def append_steer(turn: Turn) -> None:
    """Append guidance given during the turn behind the last tool result; without one it waits."""
    last = turn.history.messages[-1]
    carried = last.role == "tool" or last.kind == "steer"
    if carried and (text := turn.host.take_steer()):
        note_choice("steer", None)
        await turn.append(user_message(text, kind="steer"))


def _find_anomaly(message: Message, answer: ResponseBuilder) -> Failure | None:
    """The failure behind a response that is no usable answer; recovered like any other."""
    if answer.stop == "died":
        return Failure(Kind.NETWORK, "the stream ended before the answer was complete")
    if any(is_truncated(call.args) for call in message.calls):
        return Failure(Kind.TRUNCATED_CALL, TRUNCATED)
    if answer.has_unread_call and not message.calls:
        return Failure(Kind.UNREADABLE_CALL, "the model wrote a tool call that cannot be read")
    if message.calls or answer.stop == "paused" or message.text.strip():
        return None
    if answer.stop == "filtered":
        return Failure(Kind.CONTENT_POLICY, answer.detail or "the answer was withheld")
    return None if answer.stop == "length" else Failure(Kind.EMPTY, "no text and no tool call")


def normalize_calls(
    message: Message, tools: Collection[str], taken: set[str], position: int
) -> Message:
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
