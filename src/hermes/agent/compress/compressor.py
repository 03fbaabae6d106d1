"""Keeps a conversation inside the model's window: when to compress, how hard, and into what."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

from msgspec import Struct, structs

from hermes.agent.compress import handoff
from hermes.agent.compress.cutting import Cut, choose, summary_of
from hermes.agent.compress.eliding import cut as cut_text
from hermes.agent.compress.eliding import elide, place, squeeze
from hermes.agent.compress.handoff import Facts
from hermes.agent.compress.summarising import Ask, Middle, files_of, summarise
from hermes.agent.compress.weighing import Gauge, overhead, weight
from hermes.agent.deps import Agent, Turn, through, window_of
from hermes.core.errors import Failure, Kind
from hermes.core.events import Notice
from hermes.core.history import History
from hermes.core.message import Message, Text

log = logging.getLogger(__name__)

PASSES = 3
_KEEP = (0.3, 0.15, 0.0)
"""Share of the threshold that the latest messages may take, by level."""
_FIRST = 0.15
_GOAL = 0.6
"""Share of the threshold to get below: there must be room before the next time."""
_SHRUNK = 0.95
_ANSWER = 4096
_MIN_LIMIT = 1024
"""A stated limit below this is a slip of the endpoint's."""
_MIN_MIDDLE = 300
"""Less than this is not worth a summary."""

Switch = Callable[[Sequence[Message]], Awaitable[History]]
Level = Literal[1, 2, 3]


class Plan(Struct, frozen=True):
    """What was decided when the agent was built."""

    enabled: bool = True
    threshold: float = 0.5
    summariser: int | None = None
    """Window of the model that summarises, as far as it is known."""
    warning: str = ""
    """Told to the user once."""


class Aim(Struct, frozen=True):
    """How small the prompt should get, in tokens; `must`: more than this is no use."""

    level: Level
    threshold: int
    goal: int
    must: int


class Compressor:
    """One session's. `switch` makes the messages a child session, durably, and returns its
    history; until then nothing has changed."""

    def __init__(self, plan: Plan, ask: Ask, switch: Switch, name: Callable[[], str]) -> None:
        self._plan = plan
        self._ask = ask
        self._switch = switch
        self._name = name
        self._gauge: Gauge | None = None
        self._floor = 0
        """Below this size the trigger is not looked at: it could not get further down."""
        self._told = False

    # -- when ------------------------------------------------------------------------------

    async def before(self, agent: Agent, turn: Turn) -> None:
        """Before each call: past the threshold, or when it would not fit."""
        plan = self._plan
        if not plan.enabled:
            return
        if plan.warning and not self._told:
            self._told = True
            turn.emit(Notice("compression", plan.warning))
        gauge = self._weighed(agent, turn)
        window = window_of(agent, turn)
        threshold = int(plan.threshold * window)
        room = window - _reserve(agent, window)
        levels: tuple[Level, ...] = (1, 2, 3)
        if gauge.prompt >= threshold and gauge.size > self._floor:
            await self._compress(agent, turn, _aim(1, threshold, min(threshold, room)))
            levels = (2, 3)
        for level in levels:
            if self._weighed(agent, turn).size <= room:
                return
            await self._compress(agent, turn, _aim(level, threshold, room))

    async def after(self, agent: Agent, turn: Turn, failure: Failure, tries: int) -> bool:
        """The provider said that the prompt is too long; whether it is shorter now."""
        if not self._plan.enabled:
            return False
        gauge = self._weighed(agent, turn)
        size = gauge.size
        if failure.kind is Kind.CONTEXT_OVERFLOW:
            learn(agent, turn, failure.limit, size)
        window = window_of(agent, turn)
        if failure.limit and window >= _MIN_LIMIT and size < window:
            gauge.scale = min(4.0, gauge.scale * 1.05 * window / max(1, size))
        threshold = int(self._plan.threshold * min(window, max(size, _MIN_LIMIT)))
        must = min(window - _reserve(agent, window), int(size * 0.85))
        levels: tuple[Level, ...] = (1, 2, 3)
        for level in levels[min(tries, PASSES) - 1 :]:
            if await self._compress(agent, turn, _aim(level, threshold, must)):
                return True
        return False

    async def now(self, agent: Agent, turn: Turn) -> bool:
        """Because the user asked for it: everything but the latest part is summarised."""
        gauge = self._weighed(agent, turn)
        threshold = int(self._plan.threshold * min(window_of(agent, turn), gauge.size))
        return await self._compress(agent, turn, Aim(1, threshold, 0, gauge.size))

    def _weighed(self, agent: Agent, turn: Turn) -> Gauge:
        gauge = self._gauge
        if gauge is None or gauge.history is not turn.history:
            scale = gauge.scale if gauge is not None else 1.0
            gauge = self._gauge = Gauge(turn.history, overhead(agent, turn.system), scale)
        gauge.advance()
        return gauge

    # -- how -------------------------------------------------------------------------------

    async def _compress(self, agent: Agent, turn: Turn, aim: Aim) -> bool:
        """Whether the history is shorter now."""
        gauge = self._weighed(agent, turn)
        size = gauge.estimate(gauge.sums[-1])
        messages, how = await self._shorter(agent, turn, aim)
        now = gauge.estimate(sum(map(weight, messages)))
        if now > size * _SHRUNK:
            self._floor = int(gauge.size * 1.15)
            return False
        old, count = self._name(), len(turn.history)
        turn.history, interrupted = await through(self._switch(messages))
        log.info(
            "session %s goes on as %s (%s): %d messages, about %d tokens, became %d, about %d",
            *(old, self._name(), how, count, size, len(messages), now),
        )
        self._floor = int(now * 1.15) if now > aim.threshold * 0.9 else 0
        if interrupted is not None:
            raise interrupted
        return True

    async def _shorter(self, agent: Agent, turn: Turn, aim: Aim) -> tuple[list[Message], str]:
        gauge = self._weighed(agent, turn)
        history = turn.history.messages
        room = gauge.room(aim.threshold)
        keep = int(room * _KEEP[aim.level - 1])
        cut = choose(history, gauge.sums, keep=keep, first=int(room * _FIRST))
        short = [self._shortened(history, i, cut, aim.level, room) for i in range(len(history))]
        elided = gauge.estimate(sum(map(weight, short)))
        if elided <= aim.goal or gauge.sums[cut.tail] - gauge.sums[cut.head] < _MIN_MIDDLE:
            return short, "tool results elided"
        middle = self._middle(agent, history, cut)
        window = window_of(agent, turn)
        output = max(300, min(2048, window // 16))
        body = await self._summary(middle, window, output)
        how = "summarised"
        if body is None:
            if elided <= min(aim.must, int(aim.threshold * 0.9)):
                return short, "tool results elided, no summary"
            how = "digested, no summary"
            body = handoff.digest(
                middle.messages, middle.source, middle.facts, middle.before, output * 4
            )
        known = handoff.sources_of(_previous(history, cut))
        new = handoff.handoff(body, (*known, middle.source))
        return [*short[: cut.head], new, *_pinned(short, cut), *short[cut.tail :]], how

    async def _summary(self, middle: Middle, window: int, output: int) -> str | None:
        reader = self._plan.summariser or window
        answer = min(4 * output, reader // 4)
        room = max(4000, (reader - answer - 1500) * 3)
        return await summarise(middle, self._ask, room=room, output=output, answer=answer)

    def _middle(self, agent: Agent, history: Sequence[Message], cut: Cut) -> Middle:
        previous = _previous(history, cut)
        first = cut.head + (previous is not None)
        messages = history[first : cut.tail]
        known = handoff.sources_of(previous)
        said = [m.text for m in history if m.role == "user" and m.kind in ("normal", "steer")]
        facts = Facts(
            history[cut.task].text if cut.task >= 0 else "",
            said[-1] if said else "",
            files_of(messages, agent.tools),
        )
        source = handoff.next_source(known, self._name(), first, cut.tail - 1)
        return Middle(messages, source, handoff.body_of(previous), facts)

    def _shortened(
        self, history: Sequence[Message], i: int, cut: Cut, level: Level, room: int
    ) -> Message:
        """One message as it goes on; what of it is taken out stays where it was."""
        message, where = history[i], place(self._name(), i)
        if message.kind == "summary":
            return message
        if i == cut.task:
            return _cut_task(message, max(2000, room), where) if level == PASSES else message
        if cut.head <= i < cut.tail:
            return elide(message, where, None if level == 1 else 1500)
        if level == 1:
            return structs.replace(message, usage=None)
        if i < cut.head:
            return elide(message, where, 2000)
        if level == 2:
            return squeeze(message, max(2000, room), where)
        results = sum(m.role == "tool" for m in history[cut.tail :])
        share = max(200, 2 * room // max(1, results))
        return squeeze(message, share, where) if message.role == "tool" else elide(message, where)


def _aim(level: Level, threshold: int, must: int) -> Aim:
    return Aim(level, threshold, int(threshold * _GOAL), must)


def _reserve(agent: Agent, window: int) -> int:
    """What is left for the answer."""
    return min(agent.settings.max_output or _ANSWER, window // 4)


def _previous(history: Sequence[Message], cut: Cut) -> Message | None:
    at = summary_of(history)
    return history[at] if at == cut.head and at < cut.tail else None


def _pinned(messages: Sequence[Message], cut: Cut) -> list[Message]:
    """The task as the user wrote it, and what the user said since."""
    since = max(cut.head, cut.task + 1)
    task = [messages[cut.task]] if cut.pinned else []
    return [*task, *(m for m in messages[since : cut.tail] if m.kind == "steer")]


def _cut_task(message: Message, limit: int, where: str) -> Message:
    parts = tuple(
        Text(cut_text(p.text, limit, where)) if isinstance(p, Text) else p for p in message.parts
    )
    return structs.replace(message, parts=parts)


def learn(agent: Agent, turn: Turn, limit: int | None, size: int) -> None:
    """An error that states the real window teaches it; otherwise it is known to be smaller than
    what was sent."""
    lessons = turn.lessons(agent.providers[turn.active].target)
    if limit is not None and limit >= _MIN_LIMIT:
        lessons.context = limit
    elif limit is None and size < window_of(agent, turn):
        lessons.context = max(2 * _ANSWER, int(size * 0.95))
