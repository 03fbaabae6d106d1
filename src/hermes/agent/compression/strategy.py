"""Shortens a history: elides older results and, if that is not enough, summarises the middle."""

from collections.abc import Sequence
from enum import Enum

from msgspec import Struct, structs

from hermes.agent.compression import summary_message as handoff
from hermes.agent.compression.cut_points import Cut, choose_cut, find_summary
from hermes.agent.compression.elision import cut_middle as cut_text
from hermes.agent.compression.elision import describe_place, elide_message, trim_results
from hermes.agent.compression.summarizer import find_written_files, summarize_middle
from hermes.agent.compression.summary_message import Middle, SummaryFacts
from hermes.agent.compression.token_estimate import Aim, Level, TokenGauge, message_weight
from hermes.agent.turn import Agent, Summarizer, Turn, find_window
from hermes.core.message import Message, Text, Thinking, ToolCall, ToolReturn

_KEEP = (0.3, 0.15, 0.0)
"""Share of the threshold kept for the latest messages, by level."""
_FIRST = 0.15
"""The same for the first exchange."""
_MIN_MIDDLE = 300
"""Less than this is not worth a summary."""
_LONGEST_PLAN = 8000
_LONG = 1500
"""Characters of one text at the levels that cut texts."""


class Means(Enum):
    """How a history was shortened, as logged."""

    ELIDED = "tool results elided"
    SUMMARISED = "summarised"
    ELIDED_UNSUMMARISED = "tool results elided, no summary"
    DIGESTED = "digested, no summary"

    @property
    def lacks_summary(self) -> bool:
        """Whether a summary was wanted but could not be had."""
        return self in (Means.ELIDED_UNSUMMARISED, Means.DIGESTED)


class _Layout(Struct, frozen=True):
    """What happens to the messages of one history."""

    session: str
    cut: Cut
    level: Level
    refused: bool
    room: int
    """The weight that all messages together should have."""


async def shorten_history(
    agent: Agent, turn: Turn, gauge: TokenGauge, aim: Aim, *, name: str, reader: Summarizer | None
) -> tuple[list[Message], Means]:
    """The messages to continue with, and how they were shortened; they may be no shorter. `reader`:
    the model that summarises; None if there is none."""
    history = turn.history.messages
    room = gauge.weight_for(aim.threshold)
    keep = int(room * _KEEP[aim.level - 1])
    cut = choose_cut(history, gauge.sums, keep=keep, first=int(room * _FIRST))
    shape = _Layout(name, cut, aim.level, aim.refused, room)
    short = [_shorten_message(history, i, shape) for i in range(len(history))]
    elided = gauge.estimate_prompt(sum(map(message_weight, short)))
    if elided <= aim.goal or gauge.sums[cut.tail] - gauge.sums[cut.head] < _MIN_MIDDLE:
        return short, Means.ELIDED
    middle = _describe_middle(agent, history, shape)
    window = find_window(agent, turn)
    output = max(300, min(2048, window // 16))
    body = await _ask_for_summary(middle, reader, window, output) if reader is not None else None
    means = Means.SUMMARISED
    if body is None:
        if elided <= min(aim.must, int(aim.threshold * 0.9)):
            return short, Means.ELIDED_UNSUMMARISED
        means = Means.DIGESTED
        body = handoff.build_digest(middle, output * 4)
    known = handoff.read_sources(_find_previous(history, cut))
    new = handoff.build_summary(body, (*known, middle.source))
    plan = _find_lasting_call(agent, history, cut)
    pinned = _pinned_messages(short, cut)
    return [*short[: cut.head], new, *pinned, *plan, *short[cut.tail :]], means


async def _ask_for_summary(
    middle: Middle, reader: Summarizer, window: int, output: int
) -> str | None:
    room = min(reader.window or window, 4 * window)
    answer = min(4 * output, room // 4)
    chars = max(4000, (room - answer - 1500) * 3)
    return await summarize_middle(middle, reader.ask, room=chars, output=output, answer=answer)


def _find_lasting_call(agent: Agent, history: Sequence[Message], cut: Cut) -> list[Message]:
    """The last successful call of a tool with lasting effect (a plan), with its result, if it is in
    the middle."""
    failed: set[str] = set()
    for message in reversed(history[cut.head :]):
        for part in reversed(message.parts):
            if isinstance(part, ToolReturn) and part.error:
                failed.add(part.call_id)
            if not isinstance(part, ToolCall) or part.name not in agent.tools:
                continue
            said = part.args.strip() not in ("", "{}")
            if said and agent.tools[part.name].lasting and part.id not in failed:
                return _pair_with_result(history[cut.head : cut.tail], part)
    return []


def _pair_with_result(middle: Sequence[Message], call: ToolCall) -> list[Message]:
    made = next((m for m in middle if call in m.parts), None)
    result = next(
        (p for m in middle for p in m.parts if isinstance(p, ToolReturn) and p.call_id == call.id),
        None,
    )
    if made is None or result is None or len(call.args) > _LONGEST_PLAN:
        return []
    thought = tuple(p for p in made.parts if isinstance(p, Thinking))
    asked = structs.replace(made, parts=(*thought, call), usage=None)
    return [asked, Message("tool", (result,))]


def _describe_middle(agent: Agent, history: Sequence[Message], shape: _Layout) -> Middle:
    cut = shape.cut
    previous = _find_previous(history, cut)
    first = cut.head + (previous is not None)
    messages = history[first : cut.tail]
    said = [m.text for m in history if m.role == "user" and m.kind in ("normal", "steer")]
    facts = SummaryFacts(
        history[cut.tasks[0]].text if cut.tasks else "",
        said[-1] if said else "",
        find_written_files(messages, agent.tools),
    )
    known = handoff.read_sources(previous)
    source = handoff.next_source(known, shape.session, first, cut.tail - 1)
    return Middle(messages, source, handoff.read_body(previous), facts)


def _find_previous(history: Sequence[Message], cut: Cut) -> Message | None:
    at = find_summary(history)
    return history[at] if at == cut.head and at < cut.tail else None


def _pinned_messages(messages: Sequence[Message], cut: Cut) -> list[Message]:
    """The task in the user's words, and the guidance given since."""
    since = max(cut.head, cut.tasks[0] + 1 if cut.tasks else 0)
    guidance = [i for i in range(since, cut.tail) if messages[i].kind == "steer"]
    return [messages[i] for i in sorted([*cut.pinned_tasks, *guidance])]


def _shorten_message(history: Sequence[Message], i: int, shape: _Layout) -> Message:
    """One message, shortened as its place requires; the stored original stays complete."""
    cut, level, room = shape.cut, shape.level, shape.room
    message, where = history[i], describe_place(shape.session, i)
    if message.kind == "summary":
        return message
    if i in cut.tasks:
        if level < 3 or not shape.refused:
            return message
        parts = tuple(
            Text(cut_text(p.text, max(2000, room), where)) if isinstance(p, Text) else p
            for p in message.parts
        )
        return structs.replace(message, parts=parts)
    if cut.head <= i < cut.tail:
        return elide_message(message, where, None if level == 1 else _LONG)
    if level == 1:
        return structs.replace(message, usage=None)
    if i < cut.head:
        return elide_message(message, where, _LONG)
    if level == 2:
        return trim_results(message, max(2000, room), where)
    if message.role != "tool":
        return elide_message(message, where)
    results = sum(m.role == "tool" for m in history[cut.tail :])
    return trim_results(message, max(200, 2 * room // max(1, results)), where)
