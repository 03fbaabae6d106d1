"""What flows out: provider-level StreamEvents and turn-level TurnEvents."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from hermes.core.message import Message, Target, ToolCall, ToolReturn, Usage


class TextDelta(Struct, frozen=True):
    """Visible text, in order. All text that arrived in one network read is one delta."""

    text: str


class ThinkingDelta(Struct, frozen=True):
    text: str


class CallBegan(Struct, frozen=True):
    """The model has started to write a tool call."""

    name: str


class Notice(Struct, frozen=True):
    """Something a person should know; `code` says what kind of thing."""

    code: str
    text: str


StreamEvent: TypeAlias = TextDelta | ThinkingDelta | CallBegan | Notice


class StepStart(Struct, frozen=True):
    n: int


class Recorded(Struct, frozen=True):
    """A message became part of the durable history."""

    message: Message


class ToolStarted(Struct, frozen=True):
    call: ToolCall


class ToolProgress(Struct, frozen=True):
    call_id: str
    text: str


class ToolDone(Struct, frozen=True):
    result: ToolReturn
    duration: float


class Recovering(Struct, frozen=True):
    kind: str
    action: str
    wait: float = 0.0


Answer: TypeAlias = Literal["once", "session", "always", "deny"]
"""`session`: until it ends; `always`: for good, as a rule in the configuration."""


class Approval(Struct, frozen=True):
    """A question only a person may answer, through `Interactions.answer`."""

    id: str
    call: ToolCall
    """Exactly what runs if the answer is yes."""
    summary: str
    """Why it is asked."""
    command: str = ""
    """The exact text a shell would be given; empty: the call runs no command."""
    choices: tuple[Answer, ...] = ("once", "deny")
    """The answers that are understood."""
    rules: tuple[str, ...] = ()
    """What `always` would save, each as it would stand in the configuration; nobody chooses
    `always` without having been shown them."""


class Question(Struct, frozen=True):
    """The model wants to know something of the user, who answers through `Interactions.reply`."""

    id: str
    text: str
    choices: tuple[str, ...] = ()
    """Suggestions: any other text is an answer too."""


TurnStatus: TypeAlias = Literal["completed", "partial", "failed", "interrupted"]
"""`partial`: something was done or said before the turn had to end."""


class TurnResult(Struct, frozen=True):
    """How a turn ended. `error` is one sentence for a person, at most 300 characters."""

    status: TurnStatus
    text: str = ""
    reasoning: str = ""
    error: str = ""
    error_code: str = ""
    messages: tuple[Message, ...] = ()
    """What this turn added to the history, the user's message first."""
    model_calls: int = 0
    usage: Usage = Usage()
    pending_steer: str = ""
    """Guidance nobody consumed; the next user message."""
    target: Target | None = None
    """Who answered last."""


class TurnEnd(Struct, frozen=True):
    result: TurnResult


TurnEvent: TypeAlias = (
    StepStart
    | TextDelta
    | ThinkingDelta
    | CallBegan
    | Recorded
    | ToolStarted
    | ToolProgress
    | ToolDone
    | Recovering
    | Notice
    | Approval
    | Question
    | TurnEnd
)
