"""Estimates the tokens of a prompt from the provider's last report and the messages since."""

from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from hermes.agent.turn import Agent
from hermes.core.history import History
from hermes.core.message import Media, Message, Native, Part, Text, Thinking, ToolCall, ToolReturn

IMAGE = 1600
"""Tokens of an image, about the same everywhere."""
ENVELOPE = 8
"""Role, ids and brackets of one message."""
_LOWEST, _HIGHEST = 0.5, 4.0
"""How far a reported count may differ from the estimate and still be believed."""
_FLOOR = 0.75
"""Share of the estimate that counts at least: some endpoints do not report cached tokens."""

Level: TypeAlias = Literal[1, 2, 3]
"""1: the usual; 2: little is kept; 3: whatever it takes."""


class Aim(Struct, frozen=True):
    """How small a prompt should become, in tokens; one larger than `must` is no use."""

    level: Level
    threshold: int
    goal: int
    must: int
    refused: bool = False
    """Whether the provider refused the prompt: then even the task may be cut as a last resort."""


def text_weight(text: str) -> int:
    """About four characters of English or code are a token; other scripts take more."""
    if text.isascii():
        return len(text) // 4
    return len(text.encode("utf-8", "replace")) // 3


def part_weight(part: Part) -> int:
    match part:
        case Text(text=text):
            return text_weight(text)
        case ToolCall(name=name, args=args):
            return text_weight(name) + text_weight(args) + ENVELOPE
        case ToolReturn(content=content):
            return sum(part_weight(p) for p in content) + 2 * ENVELOPE
        case Thinking(text=text, extra=extra):
            return text_weight(text) + (len(msgspec.json.encode(extra)) // 4 if extra else 0)
        case Media():
            return IMAGE
        case Native(data=data):
            return len(msgspec.json.encode(data)) // 4


def message_weight(message: Message) -> int:
    return ENVELOPE + sum(part_weight(p) for p in message.parts)


def request_overhead(agent: Agent, system: str) -> int:
    """Tokens of what every request carries besides the messages."""
    return text_weight(system) + len(msgspec.json.encode(agent.specs)) // 4


class TokenGauge:
    """Estimates the prompt of one history; each message is weighed once. `scale` corrects the
    estimate by the provider's last report."""

    __slots__ = ("_at", "_base", "history", "reported", "scale", "sums")

    def __init__(self, history: History, base: int, scale: float = 1.0) -> None:
        self.history = history
        self.scale = scale
        self.reported = 0
        """Prompt tokens of the last call as the provider counted them; 0: it never reported any."""
        self.sums = [0]
        """Estimated weight of all messages before the one of that index."""
        self._base = base
        self._at = 0

    def weigh_new_messages(self) -> None:
        sums = self.sums
        for message in self.history.messages[len(sums) - 1 :]:
            usage = message.usage
            if usage is not None and usage.input > 0 and not usage.estimated:
                self.reported, self._at = usage.input, len(sums) - 1
                ratio = usage.input / max(1, self._base + sums[-1])
                self.scale = min(max(ratio, _LOWEST), _HIGHEST)
            sums.append(sums[-1] + message_weight(message))

    @property
    def last_prompt(self) -> int:
        """Tokens of the last prompt: as reported, else estimated."""
        return self.reported or self.estimate_prompt(self.sums[-1])

    @property
    def next_prompt(self) -> int:
        """Tokens of the next prompt."""
        if not self.reported:
            return self.estimate_prompt(self.sums[-1])
        since = int((self.sums[-1] - self.sums[self._at]) * self.scale)
        return max(self.reported + since, int((self._base + self.sums[-1]) * _FLOOR))

    def estimate_prompt(self, messages: int) -> int:
        """Tokens of a prompt whose messages have this weight."""
        return int((self._base + messages) * self.scale)

    def weight_for(self, tokens: int) -> int:
        """The weight of messages that make a prompt of so many tokens."""
        return max(0, int(tokens / self.scale) - self._base)
