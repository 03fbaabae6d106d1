"""Questions on the terminal, line by line: approvals of tool calls and questions of the model."""

import asyncio
import os
from collections.abc import Callable
from functools import partial
from typing import Any

from hermes.app.live.interactions import Interactions
from hermes.cli.terminal.progress import ProgressLine
from hermes.cli.terminal.text import one_line, strip_controls
from hermes.core.events import Answer, Approval, Question

_SHOWN_CHARS = 1500
_LINE_BYTES = 4096
"""The longest line that a terminal delivers."""
_KEYS: dict[Answer, tuple[str, str]] = {
    "once": ("y", "[y]es"),
    "session": ("s", "for this [s]ession"),
    "always": ("a", "[a]lways"),
    "deny": ("n", "[N]o"),
}
"""Answer -> the key that gives it, and how it is offered."""


class ApprovalPrompt:
    """Asks one question at a time. For an approval, Enter, end of input and anything but a yes mean
    no; for a question of the model, Enter and end of input mean that there is no answer."""

    def __init__(self, progress: ProgressLine) -> None:
        self.attended = os.isatty(0) and progress.out.tty
        """Whether somebody is at the terminal to answer."""
        self._progress = progress
        self._pending: list[tuple[Approval | Question, Callable[[Any], object]]] = []

    def ask(self, question: Approval | Question, receiver: Interactions) -> None:
        approval = isinstance(question, Approval)
        reply = receiver.answer_approval if approval else receiver.answer_question
        self._add_question(question, partial(reply, question.id))

    async def confirm(self, text: str) -> bool:
        """Asks yes or no; Enter and end of input mean no."""
        answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._add_question(Question("confirm", f"{text} [y/N]"), answer.set_result)
        return (await answer or "").lower() in ("y", "yes")

    def close(self) -> None:
        if self._pending:
            self._pending.clear()
            asyncio.get_running_loop().remove_reader(0)

    def _add_question(self, question: Approval | Question, reply: Callable[[Any], object]) -> None:
        self._pending.append((question, reply))
        if len(self._pending) == 1:
            self._show_question()
            asyncio.get_running_loop().add_reader(0, self._read_answer)

    def _show_question(self) -> None:
        question, _ = self._pending[0]
        self._progress.clear()
        for line in _format_question(question):
            self._progress.print_line(line)
        self._progress.out.offer(_format_prompt(question))

    def _read_answer(self) -> None:
        try:
            line = os.read(0, _LINE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            line = b""
        question, reply = self._pending.pop(0)
        typed = line.decode("utf-8", "replace").strip()
        if isinstance(question, Approval):
            reply(_parse_decision(typed, question))
        else:
            reply(parse_choice(typed, question.choices))
        if self._pending:
            self._show_question()
        else:
            asyncio.get_running_loop().remove_reader(0)


def _format_question(question: Approval | Question) -> list[str]:
    if isinstance(question, Question):
        numbered = [f"  {n}. {strip_controls(text)}" for n, text in enumerate(question.choices, 1)]
        return [f"? {strip_controls(question.text)}", *numbered]
    lines = [f"? {question.call.name} {describe_request(question)}:"]
    shown = strip_controls(question.command or question.diff or question.call.args)
    lines.append(shown if question.diff else _cut_middle(shown))
    if question.summary:
        lines.append(f"  reason: {strip_controls(question.summary)}")
    if "always" in question.choices:
        # In full, whatever the length: nobody saves a rule without having seen it.
        lines += [f"  {describe_rule(one_line(rule, 10**6))}" for rule in question.rules]
    return lines


def _format_prompt(question: Approval | Question) -> str:
    if isinstance(question, Approval):
        return f"Allow it? {', '.join(_KEYS[choice][1] for choice in question.choices)} "
    return "A number or your own words (Enter: no answer): " if question.choices else "Answer: "


def _parse_decision(typed: str, question: Approval) -> Answer:
    word = typed.lower()
    for choice in question.choices:
        if word and word in (_KEYS[choice][0], choice, "yes" if choice == "once" else ""):
            return choice
    return "deny"


def parse_choice(typed: str, choices: tuple[str, ...]) -> str | None:
    """What was typed, or the choice that has this number; None when nothing was."""
    if typed.isdecimal() and 1 <= int(typed) <= len(choices):
        return choices[int(typed) - 1]
    return typed or None


def _cut_middle(text: str) -> str:
    """A long text without its middle: surprises hide at the end of a command."""
    if len(text) <= _SHOWN_CHARS:
        return text
    half = _SHOWN_CHARS // 2
    return f"{text[:half]}\n... {len(text) - 2 * half} characters not shown ...\n{text[-half:]}"


def describe_request(approval: Approval) -> str:
    """What a call wants, in words: to run, or to change which file by how many lines."""
    rows = approval.diff.split("\n")
    if approval.command or len(rows) < 2 or not rows[0].startswith("--- "):
        return "wants to run"
    names = [row for row in rows if row.startswith("+++ ")]
    old, new = one_line(rows[0][4:]), one_line(rows[1][4:])
    added = sum(row.startswith("+") for row in rows) - len(names)
    removed = sum(row.startswith("-") for row in rows) - len(names)
    count = f"(+{added} -{removed})"
    if len(names) > 1:
        return f"wants to change {len(names)} files {count}"
    verb = "create" if old == "/dev/null" else "delete" if new == "/dev/null" else "change"
    return f"wants to {verb} {old if verb == 'delete' else new} {count}"


def describe_rule(rule: str) -> str:
    """What answering "always" would save, given the rule as it would stand in config.yaml."""
    import shlex

    import msgspec
    import yaml

    from hermes.core.escalation import Access

    try:
        data = yaml.safe_load(rule)
    except yaml.YAMLError:
        data = None
    match data:
        case {"decision": "allow", "prefix": [*words], **other} if {*other} <= {
            "escalate",
            "exact",
        }:
            if all(isinstance(word, str) for word in words):
                access = msgspec.convert(other.get("escalate", {}), Access).describe()
                also = f" to {access}" if access else ""
                every, more = ("exactly", "") if other.get("exact") else ("every", " …")
                return f'"always" will allow {every} `{shlex.join(words)}{more}`{also}'
    return f'"always" will save the rule: {rule}'
