"""Keeps a conversation inside the model's window: decides when it is compressed, and how hard."""

import logging
from collections.abc import Awaitable, Callable, Sequence

from hermes.agent.compression import token_estimate
from hermes.agent.compression.token_estimate import Aim, Level, TokenGauge
from hermes.agent.turn import Agent, Summarizer, Turn, find_window, is_window_known
from hermes.core.errors import Failure, Kind
from hermes.core.events import Notice
from hermes.core.history import History
from hermes.core.lifecycle import run_shielded
from hermes.core.message import Message

log = logging.getLogger(__name__)

LEVELS: tuple[Level, ...] = (1, 2, 3)
_GOAL = 0.6
"""Share of the threshold to get below, so that the next compression is some way off."""
_SHRUNK = 0.95
_GREW = 1.15
_ANSWER = 4096
_MIN_LIMIT = 1024
"""A smaller stated limit is taken for a mistake of the endpoint."""
_MAX_SCALE = 4.0
_REST = 3

Switch = Callable[[Sequence[Message]], Awaitable[History]]


class Compressor:
    """Compresses one session. `switch` durably continues it in a child session with the given
    messages and returns the new history; nothing changes before that. `name` returns the current
    session id, `once` a text unless this process has shown it. With `lazy`, only a prompt that
    would not fit is compressed."""

    def __init__(
        self,
        reader: Callable[[], Summarizer],
        switch: Switch,
        name: Callable[[], str],
        once: Callable[[str], str],
    ) -> None:
        self.lazy = False
        self._reader = reader
        self._switch = switch
        self._name = name
        self._once = once
        self._gauge: TokenGauge | None = None
        self._rest = 0
        """How many more compressions do without a summary, since asking for one failed."""
        self._floor = 0
        """Below this size the threshold is ignored: the last compression got no further down."""

    async def before_call(self, agent: Agent, turn: Turn) -> None:
        """Compress when the prompt is past the threshold or would not fit."""
        if not agent.compression.enabled:
            return
        if agent.compression.warning and (text := self._once(agent.compression.warning)):
            turn.host.emit(Notice("compression", text))
        gauge = self._update_gauge(agent, turn)
        window = find_window(agent, turn)
        threshold = int(agent.compression.threshold * window)
        room = window - _answer_reserve(agent, window)
        levels = LEVELS
        if gauge.last_prompt >= threshold and gauge.next_prompt > self._floor and not self.lazy:
            await self._compress_history(agent, turn, _make_aim(1, threshold, min(threshold, room)))
            levels = LEVELS[1:]
        for level in levels if is_window_known(agent, turn) else ():
            if self._update_gauge(agent, turn).next_prompt <= room:
                return
            await self._compress_history(agent, turn, _make_aim(level, threshold, room))

    async def after_refusal(self, agent: Agent, turn: Turn, failure: Failure, tries: int) -> bool:
        """Compress because the provider refused the prompt as too long; True if it is shorter
        now."""
        if not agent.compression.enabled:
            return False
        gauge = self._update_gauge(agent, turn)
        size = gauge.next_prompt
        if failure.kind is Kind.CONTEXT_OVERFLOW:
            _learn_window(agent, turn, failure.limit, size)
        window = find_window(agent, turn)
        if failure.limit and failure.limit >= _MIN_LIMIT:  # also where another is configured
            window = min(window, failure.limit)
        if failure.limit and window >= _MIN_LIMIT and size < window:
            # It was expected to fit, so the estimate counts too few tokens.
            gauge.scale = min(_MAX_SCALE, gauge.scale * 1.05 * window / max(1, size))
        threshold = int(agent.compression.threshold * min(window, max(size, _MIN_LIMIT)))
        must = min(window - _answer_reserve(agent, window), int(size * 0.85))
        for level in LEVELS[min(tries, len(LEVELS)) - 1 :]:
            aim = Aim(level, threshold, int(threshold * _GOAL), must, refused=True)
            if await self._compress_history(agent, turn, aim):
                return True
        return False

    async def compress_now(self, agent: Agent, turn: Turn) -> bool:
        """Summarise everything but the latest part, because the user asked for it."""
        size = self._update_gauge(agent, turn).next_prompt
        threshold = int(agent.compression.threshold * min(find_window(agent, turn), size))
        return await self._compress_history(agent, turn, Aim(1, threshold, 0, size))

    def _update_gauge(self, agent: Agent, turn: Turn) -> TokenGauge:
        gauge = self._gauge
        if gauge is None or gauge.history is not turn.history:
            scale = gauge.scale if gauge is not None else 1.0
            overhead = token_estimate.request_overhead(agent, turn.system)
            gauge = self._gauge = TokenGauge(turn.history, overhead, scale)
        gauge.weigh_new_messages()
        return gauge

    async def _compress_history(self, agent: Agent, turn: Turn, aim: Aim) -> bool:
        """True if the history is shorter now."""
        from hermes.agent.compression.strategy import shorten_history

        gauge = self._update_gauge(agent, turn)
        size = gauge.estimate_prompt(gauge.sums[-1])
        asks = self._rest == 0
        reader = self._reader() if asks else None
        messages, means = await shorten_history(
            agent, turn, gauge, aim, name=self._name(), reader=reader
        )
        self._rest = _REST if asks and means.lacks_summary else max(0, self._rest - 1)
        now = gauge.estimate_prompt(sum(map(token_estimate.message_weight, messages)))
        if now > size * _SHRUNK:
            self._floor = int(gauge.next_prompt * _GREW)
            return False
        old, count = self._name(), len(turn.history)
        turn.history, interrupted = await run_shielded(self._switch(messages))
        log.info(
            "session %s goes on as %s (%s): %d messages, about %d tokens, became %d, about %d",
            *(old, self._name(), means.value, count, size, len(messages), now),
        )
        self._floor = int(now * _GREW) if now > aim.threshold * 0.9 else 0
        if interrupted is not None:
            raise interrupted
        return True


def _make_aim(level: Level, threshold: int, must: int) -> Aim:
    return Aim(level, threshold, int(threshold * _GOAL), must)


def _answer_reserve(agent: Agent, window: int) -> int:
    """Tokens left free for the answer."""
    return min(agent.settings.max_output or _ANSWER, window // 4)


def _learn_window(agent: Agent, turn: Turn, limit: int | None, size: int) -> None:
    """Learn the context window from an error: the limit it states, else less than what was sent."""
    provider = agent.providers[turn.active]
    lessons = turn.lessons_for(provider.target)
    if limit is not None and limit >= _MIN_LIMIT:
        lessons.context = limit
    elif limit is None and size < find_window(agent, turn):
        lessons.context = max(2 * _ANSWER, int(size * 0.95))
        if not provider.endpoint.has_configured_context:
            log.info(
                "sessions with %s get a context of %d tokens from now on: %d were refused",
                *(provider.target.model, lessons.context, size),
            )
