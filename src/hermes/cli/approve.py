"""Asking the person at the terminal whether a tool may do what it wants."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from hermes.app.approvals import Answer
from hermes.cli.display import printable
from hermes.cli.status import Status
from hermes.core.events import Approval

_SHOWN = 1500
_ANSWERS: dict[bytes, Answer] = {
    b"y": "once",
    b"yes": "once",
    b"s": "session",
    b"session": "session",
}


class Asker:
    """One question at a time. Enter, end of input and anything but yes mean no."""

    def __init__(self, status: Status) -> None:
        self.possible = os.isatty(0) and status.out.tty
        """Somebody is there to answer."""
        self._status = status
        self._waiting: list[tuple[Approval, Callable[[str, Answer], object]]] = []

    def ask(self, question: Approval, answer: Callable[[str, Answer], object]) -> None:
        self._waiting.append((question, answer))
        if len(self._waiting) == 1:
            self._show()
            asyncio.get_running_loop().add_reader(0, self._read)

    def close(self) -> None:
        if self._waiting:
            self._waiting.clear()
            asyncio.get_running_loop().remove_reader(0)

    def _show(self) -> None:
        question, _ = self._waiting[0]
        self._status.clear()
        self._status.line(f"? {question.call.name} wants to run:")
        self._status.line(_both_ends(printable(question.call.args)))
        if question.summary:
            self._status.line(f"  because: {printable(question.summary)}")
        self._status.out.offer("allow it? [y]es, for this [s]ession, [N]o ")

    def _read(self) -> None:
        try:
            line = os.read(0, 4096)
        except BlockingIOError:
            return
        except OSError:
            line = b""
        question, answer = self._waiting.pop(0)
        answer(question.id, _ANSWERS.get(line.strip().lower(), "deny"))
        if self._waiting:
            self._show()
        else:
            asyncio.get_running_loop().remove_reader(0)


def _both_ends(text: str) -> str:
    """A long command is never shown without its end: that is where surprises hide."""
    if len(text) <= _SHOWN:
        return text
    half = _SHOWN // 2
    return f"{text[:half]}\n... {len(text) - 2 * half} characters not shown ...\n{text[-half:]}"
