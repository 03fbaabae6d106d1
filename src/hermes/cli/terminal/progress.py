"""Progress on stderr: short lines for what happens, and a waiting line on a terminal."""

from __future__ import annotations

import asyncio

from hermes.cli.terminal.output import Output
from hermes.cli.terminal.text import call_line, one_line, recovering
from hermes.core.events import (
    Notice,
    Recovering,
    StepStart,
    ToolDone,
    ToolStarted,
    TurnEvent,
)

_TICK = 1.0
_DIM, _RED, _RESET = "\x1b[2m", "\x1b[31m", "\x1b[0m"
_ERASE = "\r\x1b[K"


class Status:
    """Nothing here ever waits: what a slow reader does not take is dropped."""

    def __init__(self, out: Output, *, colour: bool, animate: bool) -> None:
        self.out = out
        self.midline = False
        """The answer stands in the middle of a line of the same terminal."""
        self._colour = colour
        self._animate = animate
        self._doing = ""
        self._since = 0.0
        self._shown = False
        self._timer: asyncio.TimerHandle | None = None

    def event(self, event: TurnEvent) -> None:
        match event:
            case StepStart():
                self._wait_for("waiting for the model")
            case ToolStarted(call=call):
                line = call_line(call.name, call.args)
                self.line(f"* {line}")
                self._wait_for(f"running {line}")
            case ToolDone(result=result, duration=duration):
                if result.error:
                    self.line(f"  failed: {one_line(result.text)}", red=True)
                elif duration >= 1:
                    self.line(f"  done in {duration:.1f} s")
            case Recovering(kind=kind, action=action, wait=wait):
                self.line(recovering(kind, action, wait))
            case Notice(text=text):
                self.line(f"! {one_line(text, 300)}")
            case _:
                return

    def line(self, text: str, *, red: bool = False) -> None:
        self._erase()
        if self._colour:
            text = f"{_RED if red else _DIM}{text}{_RESET}"
        self.out.offer(f"{text}\n")

    def clear(self) -> None:
        """Something visible happens: no waiting line until the next thing begins."""
        self._erase()
        self._doing = ""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait_for(self, doing: str) -> None:
        if not self._animate:
            return
        self.clear()
        loop = asyncio.get_running_loop()
        self._doing, self._since = doing, loop.time()
        self._timer = loop.call_later(_TICK, self._tick)

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        if not self.midline:
            self._shown = True
            seconds = loop.time() - self._since
            self.out.offer(f"{_ERASE}{_DIM}{one_line(self._doing, 70)}, {seconds:.0f} s{_RESET}")
        self._timer = loop.call_later(_TICK, self._tick)

    def _erase(self) -> None:
        if self._shown:
            self._shown = False
            self.out.offer(_ERASE)
