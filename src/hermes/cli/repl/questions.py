"""Questions on the screen: approvals, questions of the model and confirmations, one at a time."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from hermes.app.session import Session
from hermes.cli.repl.display.event_view import EventView
from hermes.cli.repl.markdown.highlight import Highlighter
from hermes.cli.repl.markdown.styled_text import (
    Line,
    Style,
    cell_width,
    fit_text,
    paint_line,
    wrap_line,
)
from hermes.cli.terminal.approval_prompt import describe_request, describe_rule, parse_choice
from hermes.cli.terminal.text import make_visible, strip_controls
from hermes.core.events import Answer, Approval, Question
from hermes.core.message import Message, ToolCall, user_message

_SHOWN_LINES = 60
_KEYS: dict[Answer, tuple[str, str, str]] = {
    "once": ("y", "yes", "allowed"),
    "session": ("s", "for this session", "allowed for this session"),
    "always": ("a", "always", "always allowed"),
    "deny": ("n", "no", "not allowed"),
}
"""Answer -> the key that gives it, how it is offered, and how it is confirmed."""
_EDITED = "The user did not allow that command. Run this one instead, exactly as it stands:\n"


@dataclass(frozen=True)
class PendingQuestion:
    """One question. `keys` maps letters to what they mean; without keys, a text answers it."""

    body: list[Line]
    """Written to the scrollback, once."""
    keys: dict[str, str]
    answer: Callable[[str | None], None]
    """Called once, with a key or a text; None means no."""
    prompt: str
    confirmed_keys: frozenset[str] = frozenset()
    """Keys that count only with Enter after them."""
    subject: str = ""
    """What it is about in one line, for a screen too low for the body."""
    edits_text: bool = False
    """Whether the prompt holds a proposed answer when it is asked."""

    @property
    def wants_text(self) -> bool:
        return not self.keys

    def find_key(self, text: str) -> str | None:
        """The key that a text gives as an answer: the letter or its meaning, and nothing else."""
        word = text.strip().lower()
        return next((k for k, meaning in self.keys.items() if word in (k, meaning)), None)

    def describe_enter(self, text: str) -> str:
        """What Enter does while this text is in the prompt."""
        if not text.strip():
            return "Enter: no"
        if key := self.find_key(text):
            return f"Enter: {self.keys[key]}"
        return "Enter sends your text; empty the prompt to answer"

    def render(self, columns: int, room: int, note: str, *, low: bool, colour: bool) -> list[str]:
        """The lines above the prompt, at most `room`; on a low screen with what the question is
        about, and in short where the whole of it does not fit."""
        lines: list[Line] = [[(Style.BOLD, fit_text(self.subject, columns - 1))]]
        lines = lines if low and self.subject else []
        if self.wants_text:
            lines.append([(Style.WARNING, note or self.prompt)])
        else:
            asked: Line = [(Style.WARNING, f"{self.prompt} ")]
            for key, meaning in self.keys.items():
                asked += [(Style.BOLD, key), (Style.DIM, f" {meaning}  ")]
            hint: Line = [(Style.DIM, f"({note})")]
            is_wide = sum(cell_width(text) for _, text in [*asked, *hint]) > columns - 1
            lines += [asked, hint] if is_wide else [asked + hint]
        rows = [row for line in lines for row in wrap_line(line, columns - 1)]
        if len(rows) > room:
            rows = self._render_short(columns - 1, note)[-room:]
        return [paint_line(row, colour=colour) for row in rows]

    def _render_short(self, width: int, note: str) -> list[Line]:
        """Two lines: what the question is about, and the keys that answer it."""
        subject: Line = [(Style.BOLD, fit_text(self.subject or self.prompt, width))]
        if self.wants_text:
            prompt: Line = [(Style.WARNING, fit_text(note or self.prompt, width))]
            return [subject, prompt] if self.subject else [prompt]
        keys = "/".join(self.keys)
        asked = f"{self.prompt} {keys}" if self.subject else keys
        if cell_width(asked) + cell_width(note) + 3 > width:
            asked = keys
        room = width - cell_width(asked) - 3
        return [subject, [(Style.WARNING, asked), (Style.DIM, f" ({fit_text(note, room)})")]]


class QuestionQueue:
    """Shows the questions of a session in order and passes the answers on to it."""

    def __init__(
        self,
        session: Session,
        view: EventView,
        *,
        refresh: Callable[[], None],
        steer: Callable[[str, Message], None],
        edit_text: Callable[[str], None],
    ) -> None:
        self.session = session
        self._state = view.state
        self._scrollback = view.scrollback
        self._refresh = refresh
        self._steer = steer
        self._edit_text = edit_text
        self._pending: deque[PendingQuestion] = deque()
        self._edited_run: dict[str, Any] | None = None
        """The command a user wrote in place of another, and the conditions of the other: it needs
        no approval of its own."""

    def ask_approval(self, approval: Approval) -> None:
        if self._edited_run and self._edited_run == _describe_run(approval.call):
            self._edited_run = None
            self.session.interactions.answer_approval(approval.id, "once")
            return
        self.ask(self._approval_question(approval))

    def ask_user(self, question: Question) -> None:
        """A question of the model."""

        def reply(text: str | None) -> None:
            self._scrollback.show_reply(text or "no answer")
            self.session.interactions.answer_question(question.id, text)

        self.ask(model_question(question, reply))

    def ask(self, question: PendingQuestion) -> None:
        self._pending.append(question)
        if len(self._pending) == 1:
            self._show_next()

    def answer(self, text: str | None) -> None:
        """Answers the question that is shown; None means no."""
        if not self._pending:
            return
        question = self._pending.popleft()
        self._state.question = None
        question.answer(text)
        if self._pending:
            self._show_next()
        self._refresh()

    def reset(self) -> None:
        """Forgets every question: the turn that asked has ended."""
        self._pending.clear()
        self._state.question = None
        self._edited_run = None

    def _show_next(self) -> None:
        question = self._pending[0]
        self._state.question = question
        draft = self._state.prompt_text().strip()
        self._state.has_draft = bool(draft) and not question.edits_text
        if question.body:
            self._scrollback.show_question(question.body)
        self._refresh()

    def _approval_question(self, approval: Approval, *, complete: bool = False) -> PendingQuestion:
        by_key = {_KEYS[choice][0]: choice for choice in approval.choices}
        keys = {key: _KEYS[choice][1] for key, choice in by_key.items()}
        if approval.command and "deny" in approval.choices:
            keys["e"] = "edit"
        if not complete and count_hidden_lines(approval):
            keys["v"] = "view all of it"

        def answer(key: str | None) -> None:
            if key == "e":
                self._edit_command(approval)
                return
            if key == "v":
                self._pending.appendleft(self._approval_question(approval, complete=True))
                return
            self._decide_approval(approval, by_key.get(key or "", "deny"))

        body = describe_approval(approval, complete=complete)
        subject = (
            _inert_line(approval.command) or f"{approval.call.name} {describe_request(approval)}"
        )
        confirmed = frozenset(_KEYS["always"][0])
        return PendingQuestion(body, keys, answer, "Allow it?", confirmed, subject)

    def _decide_approval(self, approval: Approval, answer: Answer) -> None:
        taken = self.session.interactions.answer_approval(approval.id, answer)
        if tool := self._state.tools.get(approval.call.id):
            tool.since = time.monotonic()  # the time the user took is not the tool's
        text = _KEYS[answer][2] if taken else "too late: the request is no longer pending"
        self._scrollback.show_reply(text)

    def _edit_command(self, approval: Approval) -> None:
        """Lets the user rewrite the command; the approval is then denied, with the new command as
        guidance."""

        def submit(text: str | None) -> None:
            if not text or not text.strip() or text == approval.command:
                self._decide_approval(approval, "deny")
                return
            run = _describe_run(approval.call)
            self._edited_run = run and {**run, "command": text}
            self._steer(text, user_message(_EDITED + text))
            self.session.interactions.answer_approval(approval.id, "deny")

        prompt = "Your command instead (Esc: no)"
        question = PendingQuestion([], {}, submit, prompt, edits_text=True)
        self._pending.appendleft(question)
        self._edit_text(approval.command)


def _describe_run(call: ToolCall) -> dict[str, Any] | None:
    """What a call runs and under which conditions: everything but its time-out and its reasons."""
    try:
        args = msgspec.json.decode(call.args, type=dict[str, Any])
    except msgspec.DecodeError:
        return None
    if isinstance(escalate := args.get("escalate"), dict):
        args["escalate"] = {key: value for key, value in escalate.items() if key != "why"}
    args["timeout"] = None
    return {"tool": call.name} | {k: value for k, value in args.items() if value is not None}


def describe_approval(approval: Approval, *, complete: bool = False) -> list[Line]:
    """The command in colours, why it needs approval, and what `always` would save. A long command
    is shown without its middle unless `complete` is set; a diff is always shown in full."""
    request = f" {describe_request(approval)}:"
    lines: list[Line] = [[(Style.WARNING, "? "), (Style.BOLD, approval.call.name), ("", request)]]
    source, language = _requested_source(approval)
    source_lines = highlight_source(source, language)
    if (hidden := count_hidden_lines(approval)) and not complete:
        half = _SHOWN_LINES // 2
        note = f"    … {hidden:,} lines hidden: v shows them …"
        source_lines[half:-half] = [[(Style.DIM, note)]]
    lines += source_lines
    if approval.summary:
        lines.append([(Style.DIM, f"  reason: {_inert_line(approval.summary)}")])
    if "always" in approval.choices:
        for rule in approval.rules:
            lines.append([(Style.DIM, f"  {describe_rule(_inert_line(rule))}")])
    return lines


def model_question(question: Question, reply: Callable[[str | None], None]) -> PendingQuestion:
    body: list[Line] = [[(Style.WARNING, "? "), (Style.BOLD, _inert_line(question.text))]]
    for number, choice in enumerate(question.choices, 1):
        body.append([(Style.MARK, f"  {number}. "), ("", _inert_line(choice))])
    hint = "A number, or your own words" if question.choices else "Your answer"

    def answer(text: str | None) -> None:
        reply(parse_choice((text or "").strip(), question.choices))

    subject = _inert_line(question.text)
    prompt = f"{hint} (Esc: no answer)"
    return PendingQuestion(body, {}, answer, prompt, subject=subject)


def choice_question(
    text: str, choices: Sequence[str], reply: Callable[[str], None]
) -> PendingQuestion:
    """A question answered by the first letter of a choice; no is always possible, and empty."""
    by_key = {choice[0]: choice for choice in choices}
    keys = {**by_key, "n": "no"}
    return PendingQuestion(
        [], keys, lambda key: reply(by_key.get(key or "", "")), prompt=strip_controls(text)
    )


def _requested_source(approval: Approval) -> tuple[str, str]:
    """What a call runs or changes, and the language it is in."""
    if approval.command:
        return approval.command, "bash"
    return (approval.diff, "diff") if approval.diff else (approval.call.args, "json")


def count_hidden_lines(approval: Approval) -> int:
    """The lines in the middle of a long command, never at its end, where surprises hide."""
    source, language = _requested_source(approval)
    return 0 if language == "diff" else max(0, source.count("\n") + 1 - _SHOWN_LINES)


def highlight_source(source: str, language: str) -> list[Line]:
    """Source code in colours, a line each."""
    rows = make_visible(source).replace("\t", "    ").split("\n")
    highlighter = Highlighter(language)
    lines: list[Line] = []
    for row in rows:
        styled = highlighter.highlight_line(row)
        lines.append([("", "    "), *((style or Style.BOLD, text) for style, text in styled)])
    return lines


def _inert_line(text: str) -> str:
    return " ".join(make_visible(text).split())
