"""Events of a model's response (StreamEvent) and of a turn (TurnEvent)."""

from typing import Any, Literal, TypeAlias

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
    """Something the user should know; `code` says what it is about."""

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
    data: Any = None
    """What the tool says about it for user interfaces."""


class Recovering(Struct, frozen=True):
    kind: str
    action: str
    wait: float = 0.0


Answer: TypeAlias = Literal["once", "session", "always", "deny"]
"""`session`: until it ends; `always`: for good, as a rule in the configuration."""


class Approval(Struct, frozen=True):
    """A request for approval, answered through `Interactions.answer`."""

    id: str
    call: ToolCall
    """Exactly what runs if it is approved."""
    summary: str
    """Why approval is needed."""
    command: str = ""
    """The exact command for the shell; empty: the call runs no command."""
    choices: tuple[Answer, ...] = ("once", "deny")
    """The possible answers."""
    rules: tuple[str, ...] = ()
    """The rules that `always` would save, as they would appear in the configuration. They must be
    shown before `always` can be chosen."""
    diff: str = ""
    """The change to files that the person must see; empty: the call says it."""


class Question(Struct, frozen=True):
    """A question of the model, answered through `Interactions.reply`."""

    id: str
    text: str
    choices: tuple[str, ...] = ()
    """Suggestions; any other text is accepted too."""


TurnStatus: TypeAlias = Literal["completed", "partial", "failed", "interrupted"]
"""`partial`: something was done or said before the turn had to end."""


class TurnResult(Struct, frozen=True):
    """How a turn ended. `error` is one sentence for a person, at most 300 characters."""

    status: TurnStatus
    text: str = ""
    reasoning: str = ""
    error: str = ""
    error_code: str = ""
    cause: str = ""
    """The beginning of `error`, for surfaces where what it says to do would be wrong; empty where
    it is right everywhere."""
    error_detail: str = ""
    """The provider's complete message, if the turn failed because of one."""
    messages: tuple[Message, ...] = ()
    """What this turn added to the history, the user's message first."""
    model_calls: int = 0
    usage: Usage = Usage()
    pending_steer: str = ""
    """Guidance that came too late; it becomes the next user message."""
    target: Target | None = None
    """Who answered last."""
    effects: bool = False
    """Whether a tool ran that may have changed something."""
    retry_after: float | None = None
    """Seconds the provider asked us to wait."""


class TurnEnd(Struct, frozen=True):
    result: TurnResult


ToolEvent: TypeAlias = ToolStarted | ToolProgress | ToolDone
TurnEvent: TypeAlias = (
    StreamEvent | StepStart | Recorded | ToolEvent | Recovering | Approval | Question | TurnEnd
)
