"""The text in the prompt: its buffer, history, completion, pasted chips, and a draft set aside."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import ThreadedCompleter
from prompt_toolkit.document import Document

from hermes.cli.repl.input.completer import PromptCompleter
from hermes.cli.repl.input.history import InputHistory
from hermes.cli.repl.input.message import PasteChips

if TYPE_CHECKING:
    from hermes.app.commands import Command


class PromptEditor:
    """What the user is writing. While something else is edited, the draft is kept and returns."""

    def __init__(self, history_file: Path, commands: "Callable[[], tuple[Command, ...]]") -> None:
        self.cwd = Path()
        self.chips = PasteChips()
        self.completer = PromptCompleter(commands)
        self.buffer = Buffer(
            completer=ThreadedCompleter(self.completer),
            complete_while_typing=True,
            history=InputHistory(history_file),
            tempfile_suffix=".md",
        )
        self._draft: str | None = None

    @property
    def text(self) -> str:
        return self.buffer.text

    def fill(self, text: str) -> None:
        """Replaces what is written, with the cursor behind it."""
        self.buffer.set_document(Document(text), bypass_readonly=True)

    def append_chip(self, chip: str) -> None:
        """Adds a chip behind what is written; Backspace removes it."""
        text = self.buffer.text
        self.fill(f"{text} {chip} " if text and not text[-1].isspace() else f"{text}{chip} ")

    def clear(self) -> None:
        self.buffer.reset()

    def paste(self, data: str) -> str:
        """What appears in the prompt for pasted data."""
        return self.chips.paste(data, self.cwd)

    def remember(self, text: str) -> None:
        """Adds the text to the history, with chips expanded: they mean nothing later."""
        expanded, _ = self.chips.expand(text)
        history = self.buffer.history
        entries = history.get_strings()
        if not entries or entries[-1] != expanded:
            history.append_string(expanded)

    def edit_instead(self, text: str) -> None:
        """Sets the draft aside and edits this text."""
        self._draft = self.buffer.text
        self.fill(text)

    def restore_draft(self) -> None:
        if self._draft is not None:
            draft, self._draft = self._draft, None
            self.fill(draft)
