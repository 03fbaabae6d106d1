"""Looking back from the prompt: tool output in full, and the transcript in the user's pager."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from prompt_toolkit.application.run_in_terminal import in_terminal

from hermes.cli.repl.display.screen import Screen

if TYPE_CHECKING:
    from hermes.cli.repl.conversation import Conversation


class TranscriptViewer:
    """Shows more of the conversation on request; while a pager runs, keys are the pager's."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self.conversation: Conversation | None = None
        self._opening = False
        self._programs = 0

    @property
    def is_paging(self) -> bool:
        """Whether another program has the terminal."""
        return self._programs > 0

    def expand_output(self) -> None:
        if self.conversation is None or not self.conversation.expand_output():
            self._screen.state.hint = "there is no tool output to show"
        self._screen.refresh()

    def open_transcript(self) -> None:
        screen = self._screen
        if self._opening:  # its key was pressed twice at once
            return
        if self.conversation is None or not self.conversation.history:
            screen.state.hint = "there is nothing to show yet"
            screen.refresh()
            return
        from hermes.cli.repl.display.scrollback import Scrollback

        lines: list[str] = []
        paper = Scrollback(lines.extend, lambda: screen.columns, colour=screen.colour)
        paper.show_transcript(self.conversation.history, is_running=screen.state.running)
        self._opening = True
        screen.app.create_background_task(self._page_text("\n".join(lines) + "\n"))

    @asynccontextmanager
    async def hand_over_terminal(self) -> AsyncIterator[None]:
        """Gives the terminal to another program; the prompt returns afterwards."""
        self._programs += 1
        try:
            async with in_terminal():
                self._screen.flush()
                yield
        finally:
            self._programs -= 1

    async def _page_text(self, text: str) -> None:
        from hermes.cli.terminal.pager import run_pager

        try:
            async with self.hand_over_terminal():
                await run_pager(text)
        finally:
            self._opening = False
