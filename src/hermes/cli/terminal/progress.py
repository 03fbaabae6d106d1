"""Progress of a turn on stderr: a line per event and, on a terminal, a line that counts seconds."""

import asyncio

from hermes.cli.terminal.output import Output
from hermes.cli.terminal.text import format_call, format_recovery, one_line
from hermes.cli.terminal.tool_results import describe_outcome, list_changes
from hermes.core.events import Notice, Recovering, StepStart, ToolDone, ToolStarted, TurnEvent
from hermes.core.message import ToolCall

_TICK = 1.0
_DIM, _RED, _GREEN, _RESET = "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[0m"
_ROW_COLOURS = {"+": _GREEN, "-": _RED}
_ERASE = "\r\x1b[K"


class ProgressLine:
    """Never waits: text that a slow reader does not take is dropped."""

    def __init__(self, out: Output, *, colour: bool, animate: bool) -> None:
        self.out = out
        self.midline = False
        """The answer has left the cursor in the middle of a line of this terminal."""
        self._colour = colour
        self._animate = animate
        self._activity = ""
        self._since = 0.0
        self._shown = False
        self._timer: asyncio.TimerHandle | None = None
        self._calls: dict[str, ToolCall] = {}

    def show_event(self, event: TurnEvent) -> None:
        match event:
            case StepStart():
                self._start_waiting("waiting for the model")
            case ToolStarted(call=call):
                line = format_call(call.name, call.args)
                self._calls[call.id] = call
                self.print_line(f"* {line}")
                self._start_waiting(f"running {line}")
            case ToolDone():
                self._show_outcome(event)
            case Recovering(kind=kind, action=action, wait=wait):
                self.print_line(format_recovery(kind, action, wait))
            case Notice(text=text):
                self.print_line(f"! {one_line(text, 300)}")
            case _:
                return

    def _show_outcome(self, event: ToolDone) -> None:
        """How a call ended, and what it changed in files."""
        outcome = describe_outcome(event.result, event.duration, event.data)
        if outcome.failed:
            facts = ", ".join(filter(None, (outcome.code, outcome.summary)))
            self.print_line(f"  failed: {facts}", colour=_RED)
        elif event.duration >= 1:
            self.print_line(f"  done in {outcome.took}")
        call = self._calls.pop(event.result.call_id, None)
        for row in list_changes(call, event.result, event.data):
            self.print_line(f"  {row}", colour=_ROW_COLOURS.get(row[:1], _DIM))

    def print_line(self, text: str, *, colour: str = _DIM) -> None:
        self._erase_waiting()
        self.out.offer(f"{self.paint_line(text, colour)}\n")

    def paint_line(self, text: str, colour: str = _DIM) -> str:
        return f"{colour}{text}{_RESET}" if self._colour else text

    def clear(self) -> None:
        """Removes the waiting line until the next wait begins."""
        self._erase_waiting()
        self._activity = ""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start_waiting(self, activity: str) -> None:
        if not self._animate:
            return
        self.clear()
        loop = asyncio.get_running_loop()
        self._activity, self._since = activity, loop.time()
        self._timer = loop.call_later(_TICK, self._draw_waiting)

    def _draw_waiting(self) -> None:
        loop = asyncio.get_running_loop()
        if not self.midline:
            self._shown = True
            seconds = loop.time() - self._since
            self.out.offer(f"{_ERASE}{_DIM}{one_line(self._activity, 70)}, {seconds:.0f} s{_RESET}")
        self._timer = loop.call_later(_TICK, self._draw_waiting)

    def _erase_waiting(self) -> None:
        if self._shown:
            self._shown = False
            self.out.offer(_ERASE)
