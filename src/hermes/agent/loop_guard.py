"""Detects loops: the same call with the same result, again and again."""

from hermes.core.errors import ToolError
from hermes.core.message import ToolCall, ToolReturn

WARN_AT = 3
STOP_AT = 5
MAX_BAD_STEPS = 3


class LoopGuard:
    """Counts, per turn, how often a call returned the same result, and how many steps in a row had
    only calls that could not be run."""

    __slots__ = ("_counts", "bad_steps", "looping", "unknown_steps")

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], tuple[int, int]] = {}
        self.looping = ""
        """The tool whose repetition ends the turn; empty: none."""
        self.unknown_steps = 0
        self.bad_steps = 0

    def refuse_repetition(self, call: ToolCall) -> None:
        """Raise ToolError if this call has returned the same result too often."""
        key = (call.name, call.args)
        count, seen = self._counts.get(key, (0, 0))
        if count < WARN_AT:
            return
        self._counts[key] = (count + 1, seen)
        if count + 1 >= STOP_AT:
            self.looping = call.name
        raise ToolError(
            f"Refused: this exact call gave the same result {WARN_AT} times. Repeating it cannot "
            "help. Change strategy: other arguments, another tool, or tell the user what blocks "
            "you."
        )

    def note_result(self, call: ToolCall, result: ToolReturn) -> None:
        key = (call.name, call.args)
        count, seen = self._counts.get(key, (0, 0))
        mark = hash((result.content, result.error))
        self._counts[key] = (count + 1 if mark == seen or not count else 1, mark)

    def end_step(self, *, ran: bool, unknown: bool, bad: bool) -> None:
        """Note what kind of calls a step had."""
        self.unknown_steps = self.unknown_steps + 1 if unknown and not ran else 0
        self.bad_steps = self.bad_steps + 1 if bad and not ran else 0
