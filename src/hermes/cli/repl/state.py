"""What the live part of the screen shows: everything that is not final yet."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hermes.cli.repl.status_facts import Facts

if TYPE_CHECKING:
    from hermes.cli.repl.question import Asking
    from hermes.cli.repl.session_picker import Picking

FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


@dataclass
class RunningTool:
    label: str
    since: float
    tail: str = ""
    """The last line it printed."""


@dataclass
class State:
    """Changed by the controller and the view only; drawn at most thirty times a second."""

    ready: bool = False
    running: bool = False
    since: float = 0.0
    doing: str = ""
    """What is waited for; empty while text arrives."""
    doing_since: float = 0.0
    thought: str = ""
    """The end of the reasoning so far."""
    tools: dict[str, RunningTool] = field(default_factory=dict)
    tail: Callable[[], list[str]] = list
    """The unfinished end of the answer."""
    command: str = ""
    """The slash command that takes its time."""
    command_since: float = 0.0
    entered: list[str] = field(default_factory=list)
    """What was sent while nothing takes it: at the start, and during a command."""
    queue: list[str] = field(default_factory=list)
    """What waits to be sent, as it is shown."""
    asking: Asking | None = None
    picking: Picking | None = None
    hint: str = ""
    """Said once, until the next key."""
    offer: str = ""
    busy: str = "steer"
    vi: bool = False
    """Then Esc leaves the insert mode, and Ctrl-C stops what runs."""
    mode: str = ""
    """Of the vi keys."""
    facts: Facts = field(default_factory=Facts)

    @property
    def spinning(self) -> bool:
        if self.asking is not None:
            return False
        return bool(self.command) or (self.running and bool(self.doing or self.tools))

    def do(self, what: str) -> None:
        if what != self.doing:
            self.doing, self.doing_since = what, time.monotonic()
