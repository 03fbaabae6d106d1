"""The live state of the screen: what is not final yet, and the figures of the status line."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hermes.config.terminal_keys import DEFAULT_KEYS, KeyAction

if TYPE_CHECKING:
    from hermes.cli.repl.display.session_picker import SessionPicker
    from hermes.cli.repl.questions import PendingQuestion
    from hermes.core.message import Message

ANSWER_SECONDS = 1.0
"""How long a question must have been on the screen before a key answers it."""
TWICE_SECONDS = 1.5
"""Within which a second Ctrl-C, or a second Ctrl-D while the agent works, quits."""
FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


class StatusFacts:
    """Model, context, cache and cost of a conversation, counted message by message."""

    def __init__(self) -> None:
        self.model = ""
        self.window: int | None = None
        self.mode = ""
        self.folder = ""
        """The working folder and its git branch."""
        self.background = 0
        self.restart(())

    def restart(self, messages: Iterable[Message]) -> None:
        self._used = self._input = self._cached = 0
        self._cost, self._all_priced = 0.0, True
        for message in messages:
            self.add_message(message)

    def add_message(self, message: Message) -> None:
        if (usage := message.usage) is None:
            return
        self._used = usage.input + usage.output
        self._input += usage.input
        self._cached += usage.cache_read
        if usage.cost is None:
            self._all_priced = False
        else:
            self._cost += usage.cost

    def format_parts(self) -> list[str]:
        parts = [word for word in (self.model, self.mode) if word]
        if self.window and self._used:
            parts.append(f"context {100 * self._used / self.window:.0f}%")
        if self._input and self._cached:
            parts.append(f"cache {100 * self._cached / self._input:.0f}%")
        if self._cost:
            cost = f"${self._cost:.4f}" if self._cost < 1 else f"${self._cost:.2f}"
            parts.append(cost + "+" * (not self._all_priced))
        if self.background:
            parts.append(f"{self.background} in the background")
        if self.folder:
            parts.append(self.folder)
        return parts


@dataclass(eq=False)
class EnteredMessage:
    """A message that was entered and is not yet sent, queued or run."""

    text: str
    queued: bool
    withdrawn: bool = False
    """Taken back by the user: it is not to be sent."""


@dataclass
class RunningTool:
    label: str
    since: float
    last_line: str = ""
    """The last line it printed."""


@dataclass
class ScreenState:
    """Changed by the controller and the views only; drawn at most thirty times a second."""

    ready: bool = False
    running: bool = False
    since: float = 0.0
    activity: str = ""
    """What the turn waits for; empty while text arrives."""
    activity_since: float = 0.0
    thought: str = ""
    """The end of the reasoning so far."""
    tools: dict[str, RunningTool] = field(default_factory=dict)
    unfinished: Callable[[], list[str]] = list
    """The unfinished end of the answer."""
    command: str = ""
    """A slash command that takes a while."""
    command_since: float = 0.0
    command_detail: str = ""
    """The last line it printed."""
    entered: list[EnteredMessage] = field(default_factory=list)
    """Messages sent while nothing takes them: at the start, and during a command."""
    queue: list[str] = field(default_factory=list)
    """Messages waiting to be sent, as they are shown."""
    question: PendingQuestion | None = None
    visible_question: PendingQuestion | None = None
    """The question that was drawn last."""
    visible_since: float = 0.0
    has_draft: bool = False
    """Whether the prompt has held a message since before the question: it is no answer to it."""
    prompt_text: Callable[[], str] = str
    keys: Mapping[KeyAction, str] = field(default_factory=lambda: DEFAULT_KEYS)
    """Action -> the name of its key."""
    clock: Callable[[], float] = time.monotonic
    picker: SessionPicker | None = None
    hint: str = ""
    """Shown until the next key."""
    offered_title: str = ""
    """Of the interrupted session that Tab continues."""
    busy: str = "steer"
    vi: bool = False
    """With vi keys Esc leaves insert mode, and Ctrl-C interrupts."""
    vi_mode: str = ""
    facts: StatusFacts = field(default_factory=StatusFacts)

    @property
    def is_spinning(self) -> bool:
        if self.question is not None:
            return False
        return bool(self.command) or (self.running and bool(self.activity or self.tools))

    @property
    def takes_text(self) -> bool:
        """Whether the text in the prompt answers the question."""
        return self.question is not None and self.question.wants_text and not self.has_draft

    @property
    def takes_answer(self) -> bool:
        """Whether the user has had the time to see the question."""
        shown = self.question is not None and self.question is self.visible_question
        return shown and self.clock() - self.visible_since >= ANSWER_SECONDS

    def note_drawing(self) -> bool:
        """Notes which question is being drawn; True when it was not on the screen before."""
        question = self.question if self.picker is None else None
        if question is self.visible_question:
            return False
        self.visible_question, self.visible_since = question, self.clock()
        return question is not None

    def set_activity(self, activity: str) -> None:
        if activity != self.activity:
            self.activity, self.activity_since = activity, time.monotonic()
