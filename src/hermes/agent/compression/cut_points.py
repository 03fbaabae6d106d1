"""Where a history may be cut, and what of it is kept: its beginning, the task, the latest part."""

from collections import deque
from collections.abc import Sequence

from msgspec import Struct

from hermes.core.message import Message, ToolReturn

_WORDY = 60
"""Characters from which a message is understood on its own."""
_MAX_TASKS = 4


class Cut(Struct, frozen=True):
    """Messages [0, head) and [tail, end) stay; what lies between may be shortened or replaced."""

    head: int
    tail: int
    tasks: tuple[int, ...]
    """Indexes of the messages that state the current task: the user's last one and, if that is
    short, those before it."""

    @property
    def pinned_tasks(self) -> list[int]:
        """Tasks between head and tail, which have to be kept separately."""
        return [i for i in self.tasks if self.head <= i < self.tail]


def find_boundaries(messages: Sequence[Message]) -> list[int]:
    """Indexes before which a history may be cut, including 0 and the end. A cut separates no call
    from its result, no guidance from the result before it, and no answer from its continuation."""
    waiting: dict[str, deque[int]] = {}
    needed = [0] * len(messages)
    """For each message, the last one that must stay with it."""
    for i, message in enumerate(messages):
        for call in message.calls:
            waiting.setdefault(call.id, deque()).append(i)
        for part in message.parts:
            if isinstance(part, ToolReturn) and (made := waiting.get(part.call_id)):
                needed[made.popleft()] = i
    found = [0] if messages else []
    until = 0
    for i in range(1, len(messages)):
        until = max(until, needed[i - 1])
        role, kind = messages[i].role, messages[i].kind
        follows = role == "tool" or kind == "steer" or role == messages[i - 1].role == "assistant"
        if i > until and not follows:
            found.append(i)
    return [*found, len(messages)]


def choose_cut(messages: Sequence[Message], sums: Sequence[int], *, keep: int, first: int) -> Cut:
    """`keep`: weight of the latest messages that stay; `first`: the most that the first exchange
    may weigh, else only its question stays. The latest group of messages always stays."""
    bounds = find_boundaries(messages)
    head = _find_head_end(messages, bounds, sums, first)
    end = len(messages)
    later = [b for b in bounds if head <= b < end]
    tail = next((b for b in later if sums[end] - sums[b] <= keep), later[-1] if later else end)
    return Cut(head, tail, find_tasks(messages))


def find_tasks(messages: Sequence[Message]) -> tuple[int, ...]:
    """Indexes of the user messages that state the task. A short one such as "go on" needs those
    before it."""
    found: list[int] = []
    for i in range(len(messages) - 1, -1, -1):
        if messages[i].role == "user" and messages[i].kind == "normal":
            found.append(i)
            if len(messages[i].text) >= _WORDY or len(found) == _MAX_TASKS:
                break
    return tuple(reversed(found))


def find_summary(messages: Sequence[Message]) -> int:
    """Index of the summary left by an earlier compression; -1: there is none."""
    return next((i for i, message in enumerate(messages) if message.kind == "summary"), -1)


def _find_head_end(
    messages: Sequence[Message], bounds: Sequence[int], sums: Sequence[int], most: int
) -> int:
    """Where the first exchange ends: a question, the first answer and the results of its calls."""
    if (before := find_summary(messages)) >= 0:
        return before
    answer = next((i for i, m in enumerate(messages) if m.role == "assistant"), len(messages))
    end = next((b for b in bounds if b > answer), 0)
    if end and sums[end] <= most:
        return end
    return 1 if len(bounds) > 2 and bounds[1] == 1 and messages[0].role == "user" else 0
