"""Ends the talk of two programs, where a platform does not tell programs from people."""

import time
from collections import deque
from collections.abc import Callable
from typing import Literal, TypeAlias

LoopVerdict: TypeAlias = Literal["answer", "tell", "ignore"]
MAX_REPEATS = 5
LOOP_SECONDS = 60.0
REACTION_SECONDS = 5.0
"""A message that comes so soon after an answer is a reaction to it."""


LONG_AGO = float("-inf")


class LastAnswer:
    """What a conversation was answered last, and when."""

    def __init__(self) -> None:
        self.time = LONG_AGO
        """Long ago while a message is not answered."""
        self.digest = 0

    @property
    def is_recent(self) -> bool:
        return time.monotonic() - self.time < REACTION_SECONDS

    def says(self, text: str) -> bool:
        return self.digest == hash(text)


class _Repeats:
    """The message that a conversation repeats, and when it came."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.times: deque[float] = deque(maxlen=MAX_REPEATS + 1)
        self.is_broken = False


class LoopBreaker:
    """People may write what they like. A program is known by repeating itself, or what it was
    answered, right after each answer; more than five times in a minute is a loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._repeats: dict[str, _Repeats] = {}

    def judge_message(
        self, key: str, text: str, *, is_reaction: bool, is_echo: bool
    ) -> LoopVerdict:
        """What to do with a new message of a conversation. `is_echo`: it says what the last answer
        said."""
        now = self._clock()
        self._forget_old(now)
        found = self._repeats.pop(key, None)
        is_repeat = found is not None and (is_echo or text == found.text)
        if found is None or not is_repeat or not (is_reaction or found.is_broken):
            found = _Repeats(text)
        self._repeats[key] = found  # the most recent is the last
        found.text = text
        found.times.append(now)
        if len(found.times) <= MAX_REPEATS or now - found.times[0] > LOOP_SECONDS:
            return "answer"
        was_broken, found.is_broken = found.is_broken, True
        return "ignore" if was_broken else "tell"

    def _forget_old(self, now: float) -> None:
        """Conversations that were silent for a minute begin anew."""
        while self._repeats:
            key, oldest = next(iter(self._repeats.items()))
            if now - oldest.times[-1] <= LOOP_SECONDS:
                break
            del self._repeats[key]
