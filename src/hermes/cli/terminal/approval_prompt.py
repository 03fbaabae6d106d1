"""Asking the person at the terminal: whether a tool may do something, or what the model wants."""

from __future__ import annotations

import asyncio
import os
from typing import Protocol

from hermes.cli.terminal.progress import Status
from hermes.cli.terminal.text import one_line, printable
from hermes.core.events import Answer, Approval, Question

_SHOWN = 1500
_LONGEST = 4096
"""Bytes of one line; the terminal itself gives no more."""
_KEYS: dict[Answer, tuple[str, str]] = {
    "once": ("y", "[y]es"),
    "session": ("s", "for this [s]ession"),
    "always": ("a", "[a]lways"),
    "deny": ("n", "[N]o"),
}
"""What is typed for an answer, and how it is offered."""


class Answered(Protocol):
    """Where the answers go: a session."""

    def answer(self, approval_id: str, answer: Answer) -> object: ...
    def reply(self, question_id: str, text: str | None) -> object: ...


class Asker:
    """One question at a time. For an approval Enter, end of input and anything but a yes mean no;
    for a question of the model they mean that there is no answer."""

    def __init__(self, status: Status) -> None:
        self.possible = os.isatty(0) and status.out.tty
        """Somebody is there to answer."""
        self._status = status
        self._waiting: list[tuple[Approval | Question, Answered]] = []

    def ask(self, question: Approval | Question, session: Answered) -> None:
        self._waiting.append((question, session))
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
        for line in _lines(question):
            self._status.line(line)
        self._status.out.offer(_prompt(question))

    def _read(self) -> None:
        try:
            line = os.read(0, _LONGEST)
        except BlockingIOError:
            return
        except OSError:
            line = b""
        question, session = self._waiting.pop(0)
        said = line.decode("utf-8", "replace").strip()
        if isinstance(question, Approval):
            session.answer(question.id, _decision(said, question))
        else:
            session.reply(question.id, _chosen(said, question.choices))
        if self._waiting:
            self._show()
        else:
            asyncio.get_running_loop().remove_reader(0)


def _lines(question: Approval | Question) -> list[str]:
    if isinstance(question, Question):
        numbered = [f"  {n}. {printable(text)}" for n, text in enumerate(question.choices, 1)]
        return [f"? {printable(question.text)}", *numbered]
    lines = [f"? {question.call.name} wants to run:"]
    lines.append(_both_ends(printable(question.command or question.call.args)))
    if question.summary:
        lines.append(f"  because: {printable(question.summary)}")
    if "always" in question.choices:
        # Whole, whatever its length: nobody saves what he was not shown.
        lines += [f"  always saves the rule: {one_line(rule, 10**6)}" for rule in question.rules]
    return lines


def _prompt(question: Approval | Question) -> str:
    if isinstance(question, Approval):
        return f"allow it? {', '.join(_KEYS[choice][1] for choice in question.choices)} "
    return "a number or your own words (Enter: no answer): " if question.choices else "answer: "


def _decision(said: str, question: Approval) -> Answer:
    word = said.lower()
    for choice in question.choices:
        if word and word in (_KEYS[choice][0], choice, "yes" if choice == "once" else ""):
            return choice
    return "deny"


def _chosen(said: str, choices: tuple[str, ...]) -> str | None:
    if said.isdecimal() and 1 <= int(said) <= len(choices):
        return choices[int(said) - 1]
    return said or None


def _both_ends(text: str) -> str:
    """A long command is never shown without its end: that is where surprises hide."""
    if len(text) <= _SHOWN:
        return text
    half = _SHOWN // 2
    return f"{text[:half]}\n... {len(text) - 2 * half} characters not shown ...\n{text[-half:]}"
