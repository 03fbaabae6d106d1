"""A question on the screen: who asks, which keys answer it, and what a plain Enter means."""

from __future__ import annotations

from collections.abc import Callable

from hermes.cli.repl.markdown.highlight import Highlighter
from hermes.cli.repl.markdown.styled_text import BOLD, DIM, MARK, WARNING, Piece, painted, wrap
from hermes.cli.terminal.text import printable
from hermes.core.events import Answer, Approval, Question
from hermes.core.untrusted_text import reveal

_LINES = 60
_KEYS: dict[Answer, tuple[str, str]] = {
    "once": ("y", "yes"),
    "session": ("s", "for this session"),
    "always": ("a", "always"),
    "deny": ("n", "no"),
}
_TOLD: dict[Answer, str] = {
    "once": "allowed",
    "session": "allowed for this session",
    "always": "allowed for good",
    "deny": "not allowed",
}


class Asking:
    """One question. `keys` are letters and what they mean; without any, a text answers it."""

    def __init__(
        self,
        body: list[list[Piece]],
        keys: dict[str, str],
        answer: Callable[[str | None], None],
        *,
        prompt: str = "",
        question_id: str = "",
    ) -> None:
        self.body = body
        """For the scrollback, once."""
        self.keys = keys
        self.answer = answer
        """Called once, with a key or a text; None is the default: no."""
        self.prompt = prompt
        self.id = question_id

    @property
    def wants_text(self) -> bool:
        return not self.keys

    def shown(self, columns: int, *, colour: bool) -> list[str]:
        if self.wants_text:
            line: list[Piece] = [(WARNING, self.prompt)]
            return [painted(row, colour=colour) for row in wrap(line, columns - 1)]
        line = [(WARNING, f"{self.prompt} ")]
        for key, meaning in self.keys.items():
            line += [(BOLD, key), (DIM, f" {meaning}  ")]
        line.append((DIM, "(Enter: no)"))
        return [painted(row, colour=colour) for row in wrap(line, columns - 1)]


def approval(
    question: Approval, decide: Callable[[Answer], None], edit: Callable[[str], None]
) -> Asking:
    """The command in full and in colours, why it is asked, and what `always` would save."""
    body: list[list[Piece]] = [
        [(WARNING, "? "), (BOLD, question.call.name), ("", " wants to run:")]
    ]
    body += highlighted(
        question.command or question.call.args, "bash" if question.command else "json"
    )
    if question.summary:
        body.append([(DIM, f"  because: {_inert(question.summary)}")])
    if "always" in question.choices:
        body += [[(DIM, f"  always saves: {_inert(rule)}")] for rule in question.rules]
    keys = {_KEYS[choice][0]: _KEYS[choice][1] for choice in question.choices}
    if question.command and "deny" in question.choices:
        keys["e"] = "edit"

    def answer(key: str | None) -> None:
        if key == "e":
            edit(question.command)
            return
        by_key = {_KEYS[choice][0]: choice for choice in question.choices}
        decide(by_key.get(key or "", "deny"))

    return Asking(body, keys, answer, prompt="Allow it?", question_id=question.id)


def told(answer: Answer) -> str:
    return _TOLD[answer]


def question(asked: Question, reply: Callable[[str | None], None]) -> Asking:
    body: list[list[Piece]] = [[(WARNING, "? "), (BOLD, _inert(asked.text))]]
    for number, choice in enumerate(asked.choices, 1):
        body.append([(MARK, f"  {number}. "), ("", _inert(choice))])
    hint = "A number, or your own words" if asked.choices else "Your answer"

    def answer(text: str | None) -> None:
        said = (text or "").strip()
        if said.isdecimal() and 1 <= int(said) <= len(asked.choices):
            said = asked.choices[int(said) - 1]
        reply(said or None)

    return Asking(body, {}, answer, prompt=f"{hint} (Esc: no answer)", question_id=asked.id)


def confirmation(text: str, reply: Callable[[bool], None]) -> Asking:
    keys = {"y": "yes", "n": "no"}
    return Asking([], keys, lambda key: reply(key == "y"), prompt=printable(text))


def highlighted(source: str, language: str) -> list[list[Piece]]:
    """Never without its end: that is where surprises hide."""
    rows = reveal(source).replace("\t", "    ").split("\n")
    rows = [printable(row) for row in rows]
    colours = Highlighter(language)
    lines: list[list[Piece]] = []
    half = _LINES // 2
    for number, row in enumerate(rows):
        if len(rows) > _LINES and half <= number < len(rows) - half:
            if number == half:
                lines.append([(DIM, f"    … {len(rows) - _LINES} lines not shown …")])
            continue
        lines.append([("", "    "), *((style or BOLD, t) for style, t in colours.line(row))])
    return lines


def _inert(text: str) -> str:
    return " ".join(printable(reveal(text)).split())
