"""Questions on the terminal, line by line: approvals of tool calls and questions of the model."""

import asyncio
import os
import select
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from hermes.app.live.interactions import Interactions
from hermes.cli.terminal.output import ReaderGone
from hermes.cli.terminal.progress import ProgressLine
from hermes.cli.terminal.text import make_visible, one_line
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
_SHOW_ALL = frozenset({"v", "view", "view all"})
_TYPED_EARLY = "! what you typed before the question does not answer it: "


class ApprovalPrompt:
    """Asks one question at a time; what was typed before it was shown is no answer. For an
    approval, Enter, end of input and anything but a yes mean no; for a question of the model, Enter
    and end of input mean that there is no answer."""

    def __init__(self, progress: ProgressLine) -> None:
        self.attended = os.isatty(0) and progress.out.tty
        """Whether somebody is at the terminal to answer."""
        self._progress = progress
        self._pending: list[tuple[Approval | Question, Callable[[Any], object]]] = []
        self._asking: asyncio.Task[None] | None = None

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
        self._pending.clear()
        if self._asking is not None:
            self._asking.cancel()
            self._stop_reading()

    def _add_question(self, question: Approval | Question, reply: Callable[[Any], object]) -> None:
        self._pending.append((question, reply))
        if len(self._pending) == 1:
            self._show_question()

    def _show_question(self, *, complete: bool = False) -> None:
        question, _ = self._pending[0]
        lines = _format_question(question, complete=complete)
        if typed := " ".join(_read_typed_lines().split()):
            lines.insert(0, _TYPED_EARLY + one_line(typed))
        self._progress.clear()
        text = "".join(f"{self._progress.paint_line(line)}\n" for line in lines)
        writing = self._write_and_read(text + _format_prompt(question, complete=complete))
        self._asking = asyncio.get_running_loop().create_task(writing)

    async def _write_and_read(self, text: str) -> None:
        """Waits for a slow terminal: a question is never dropped."""
        with suppress(ReaderGone, OSError):
            await self._progress.out.write(text)
        asyncio.get_running_loop().add_reader(0, self._read_answer)

    def _stop_reading(self) -> None:
        self._asking = None
        asyncio.get_running_loop().remove_reader(0)

    def _read_answer(self) -> None:
        try:
            line = os.read(0, _LINE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            line = b""
        self._stop_reading()
        question, reply = self._pending[0]
        typed = line.decode("utf-8", "replace").strip()
        if typed.lower() in _SHOW_ALL and _is_cut(question):
            self._show_question(complete=True)
            return
        del self._pending[0]
        if isinstance(question, Approval):
            reply(_parse_decision(typed, question))
        else:
            reply(parse_choice(typed, question.choices))
        if self._pending:
            self._show_question()


def _read_typed_lines() -> str:
    """The lines that were typed before a question; the terminal keeps one that is not finished."""
    typed = b""
    with suppress(OSError):
        while select.select((0,), (), (), 0)[0] and (line := os.read(0, _LINE_BYTES)):
            typed += line
    return typed.decode("utf-8", "replace")


def _format_question(question: Approval | Question, *, complete: bool) -> list[str]:
    if isinstance(question, Question):
        numbered = [f"  {n}. {make_visible(text)}" for n, text in enumerate(question.choices, 1)]
        return [f"? {make_visible(question.text)}", *numbered]
    lines = [f"? {question.call.name} {describe_request(question)}:"]
    shown = make_visible(_requested_text(question))
    lines.append(_cut_middle(shown) if _is_cut(question) and not complete else shown)
    if question.summary:
        lines.append(f"  reason: {make_visible(question.summary)}")
    if "always" in question.choices:
        # In full, whatever the length: nobody saves a rule without having seen it.
        lines += [f"  {describe_rule(one_line(rule, 10**6))}" for rule in question.rules]
    return lines


def _requested_text(approval: Approval) -> str:
    return approval.command or approval.diff or approval.call.args


def _is_cut(question: Approval | Question) -> bool:
    """Whether the middle is left out at first; of a diff it never is."""
    if isinstance(question, Question) or (question.diff and not question.command):
        return False
    return len(make_visible(_requested_text(question))) > _SHOWN_CHARS


def _format_prompt(question: Approval | Question, *, complete: bool) -> str:
    if isinstance(question, Approval):
        keys = [_KEYS[choice][1] for choice in question.choices]
        if _is_cut(question) and not complete:
            keys.insert(0, "[v]iew all of it")
        return f"Allow it? {', '.join(keys)} "
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
    half = _SHOWN_CHARS // 2
    hidden = f"... {len(text) - 2 * half:,} characters hidden: v shows them ..."
    return f"{text[:half]}\n{hidden}\n{text[-half:]}"


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
