"""Events of a session to the screen: final lines for the scrollback, the rest as live state."""

from __future__ import annotations

import time
from collections.abc import Callable

from hermes.cli.repl.markdown.blocks import Markdown
from hermes.cli.repl.markdown.styled_text import (
    BAD,
    DIM,
    GOOD,
    MARK,
    SAID,
    WARNING,
    Piece,
    cells,
    fit,
    painted,
    wrap,
)
from hermes.cli.repl.state import RunningTool, State
from hermes.cli.repl.tool_results import changes, outcome
from hermes.cli.terminal.text import call_line, one_line, printable, recovering
from hermes.core.events import (
    CallBegan,
    Notice,
    Recorded,
    Recovering,
    StepStart,
    TextDelta,
    ThinkingDelta,
    ToolDone,
    ToolProgress,
    ToolStarted,
    TurnEnd,
    TurnEvent,
    TurnResult,
)
from hermes.core.message import ToolCall

_TAIL = 400
_THOUGHT = 200_000
_VERBOSE = 40
_BESIDE = frozenset({"said", "note", "text"})
"""What comes while an answer is written, and stands above the line that has no end yet: neither
that line nor a block of code is torn apart by it."""
_FACTS = 45
"""Columns that what came of a call has before its name is cut."""


class View:
    """Each final line is written exactly once."""

    def __init__(
        self,
        state: State,
        write: Callable[[list[str]], None],
        columns: Callable[[], int],
        *,
        colour: bool,
    ) -> None:
        self._state = state
        self._write = write
        self._columns = columns
        self._colour = colour
        self._markdown = Markdown(columns, colour=colour)
        self._calls: dict[str, ToolCall] = {}
        self._thoughts: list[str] = []
        self._thought_tail = ""
        self._thinking_since = 0.0
        self._spoken = False
        self._last = ""
        """What kind of thing was written last: kinds are set apart by an empty line."""
        self.reasoning = ""
        """Of the last time it thought."""
        self.verbose: Callable[[], bool] = bool
        self.folder = ""
        """Where it works: names of what is in there are shown without it."""
        state.tail = self._markdown.live

    # -- what others say through it ----------------------------------------------------------

    def said(self, text: str, mark: str = "❯") -> None:
        """The user's own words."""
        lines = []
        for number, line in enumerate(printable(text).split("\n")):
            head: list[Piece] = [(MARK, f"{mark} " if not number else "  ")]
            lines += wrap([(SAID, line)], self._columns() - 1, head, "  ")
        self._paragraph("said", lines)

    def note(self, text: str, style: str = DIM) -> None:
        """Something about the conversation, not of it."""
        lines: list[list[Piece]] = []
        for line in printable(text).split("\n"):
            lines += wrap([(style, line)], self._columns() - 1) if line else [[]]
        self._paragraph("note", lines)

    def trouble(self, text: str) -> None:
        self.note(text, BAD)

    def text(self, lines: list[list[Piece]]) -> None:
        """Lines that are painted but not to be wrapped again."""
        self._paragraph("text", lines)

    def asked(self, lines: list[list[Piece]]) -> None:
        """What a question is about. A line that is broken goes on deeper than the next begins."""
        found = []
        for line in lines:
            text = "".join(piece for _, piece in line)
            indent = " " * (len(text) - len(text.lstrip()) + 2)
            found += wrap(line, self._columns() - 1, indent=indent)
        self._paragraph("text", found)

    def answered(self, text: str) -> None:
        """What a question was answered with."""
        self._paragraph("text", wrap([(SAID, printable(text))], self._columns() - 1, [("", "  ")]))

    def answer(self, text: str) -> None:
        """A whole answer, as one that was streamed."""
        self._begin("answer")
        self._write(self._markdown.feed(text) + self._markdown.close())

    def brought(self, prompt: str, session_id: str, result: TurnResult) -> None:
        """What came of a prompt in the background."""
        ended = (
            "stopped" if result.status == "interrupted" else "failed" if result.error else "done"
        )
        mark = (GOOD, "✓ ") if ended == "done" else (BAD, "✗ ")
        told = [mark, (SAID, one_line(prompt, 200)), (DIM, f"  {ended} · {session_id}")]
        self._paragraph("said", wrap(told, self._columns() - 1, indent="  "))
        if result.text.strip():
            self.answer(result.text)
        if result.error and result.status != "interrupted":
            self.trouble(result.error)

    def reset(self) -> None:
        """Another conversation begins: nothing of the old one is live any more."""
        self._end_text()
        self._state.tools.clear()
        self._calls.clear()
        self._state.do("")

    # -- events ------------------------------------------------------------------------------

    def event(self, event: TurnEvent) -> None:
        state = self._state
        match event:
            case TextDelta(text=text):
                self._speak(text)
            case ThinkingDelta(text=text):
                self._think(text)
            case StepStart():
                self._end_text()
                state.do("waiting for the model")
            case CallBegan() | ToolStarted() | ToolProgress() | ToolDone():
                self._tool(event)
            case Recovering(kind=kind, action=action, wait=wait):
                self._small(recovering(kind, action, wait))
            case Notice(text=text):
                self._small(f"! {one_line(text, 400)}")
            case Recorded(message=message):
                state.facts.count(message)
            case TurnEnd(result=result):
                self._end(result)
            case _:
                return

    def _tool(self, event: CallBegan | ToolStarted | ToolProgress | ToolDone) -> None:
        state = self._state
        match event:
            case CallBegan(name=name):
                self._end_thinking()
                state.do(f"writing a call of {one_line(name, 40)}")
            case ToolStarted(call=call):
                self._end_text()
                label = call_line(call.name, call.args)
                self._calls[call.id] = call
                state.tools[call.id] = RunningTool(label, time.monotonic())
            case ToolProgress(call_id=call_id, text=text):
                if tool := state.tools.get(call_id):
                    last = printable(text).rstrip().rsplit("\n", 1)[-1]
                    tool.tail = one_line(last, _TAIL)
            case ToolDone():
                self._done(event)

    def _speak(self, text: str) -> None:
        self._end_thinking()
        state = self._state
        if state.doing:
            state.do("")
        if not self._spoken:
            text = text.lstrip("\n")
            if not text:
                return
            self._spoken = True
            self._begin("answer")
        self._go_on(self._markdown.feed(text))

    def _go_on(self, lines: list[str]) -> None:
        """More of the answer; what was said beside it meanwhile is set apart."""
        if lines:
            if self._last != "answer":
                self._begin("answer")
            self._write(lines)

    def _end_text(self) -> None:
        self._end_thinking()
        if self._spoken:
            self._spoken = False
            self._go_on(self._markdown.close())

    def _think(self, text: str) -> None:
        if not self._thoughts:
            self._end_text()
            self._thinking_since = time.monotonic()
            self._state.do("thinking")
        self._thoughts.append(text)
        self._thought_tail = (self._thought_tail + text)[-_TAIL:]
        self._state.thought = one_line(self._thought_tail.rstrip().rsplit("\n", 1)[-1], _TAIL)

    def _end_thinking(self) -> None:
        if not self._thoughts:
            return
        took = time.monotonic() - self._thinking_since
        self.reasoning = "".join(self._thoughts)[-_THOUGHT:]
        self._thoughts.clear()
        self._state.thought = self._thought_tail = ""
        self._state.do("")
        length = f"for {took:.0f} s" if took >= 1 else "briefly"
        self._small(f"thought {length} · Ctrl-T shows it")

    def show_reasoning(self) -> None:
        if self.reasoning:
            self.note(self.reasoning.strip())
        else:
            self._state.hint = "there is no reasoning to show"

    def _done(self, event: ToolDone) -> None:
        result = event.result
        self._state.tools.pop(result.call_id, None)
        call = self._calls.pop(result.call_id, None)
        ending = outcome(result, event.duration)
        label = call_line(call.name, call.args) if call else result.name
        columns = self._columns() - 1
        mark = (BAD, "✗ ") if ending.bad else (GOOD, "✓ ")
        said = ending.said.replace(f"{self.folder}/", "") if self.folder else ending.said
        facts = " · ".join(filter(None, (ending.took, ending.code, said)))
        label = fit(label, max(20, columns - 4 - min(_FACTS, columns // 2, cells(facts))))
        room = max(12, columns - 4 - cells(label))
        lines: list[list[Piece]] = [[mark, ("", label), (DIM, f"  {fit(facts, room)}")]]
        shown = changes(call, result)
        if not shown and self.verbose():
            text = printable(result.text).split("\n")
            shown = [[(DIM, f"  {line}")] for line in text[:_VERBOSE]]
            if len(text) > _VERBOSE:
                shown.append([(DIM, f"  … {len(text) - _VERBOSE} more lines")])
        if shown:  # a block of its own; calls without one stand together
            self._last = self._last and "change"
        self._paragraph("tool", lines + shown)
        if shown:
            self._last = "change"
        self._state.do("waiting for the model")

    def _end(self, result: TurnResult) -> None:
        self._end_text()
        state = self._state
        state.tools.clear()
        self._calls.clear()
        state.do("")
        if result.status == "interrupted":
            self._small("! interrupted; what was said is kept", WARNING)
        elif result.error:
            self._paragraph("error", wrap([(BAD, printable(result.error))], self._columns() - 1))

    # -- writing -----------------------------------------------------------------------------

    def _small(self, text: str, style: str = DIM) -> None:
        self._paragraph("small", wrap([(style, text)], self._columns() - 1))

    def _begin(self, kind: str) -> None:
        if self._last and (self._last != kind or kind in ("said", "answer", "error")):
            self._write([""])
        self._last = kind

    def _paragraph(self, kind: str, lines: list[list[Piece]]) -> None:
        if self._spoken and kind not in _BESIDE:
            self._go_on(self._markdown.close())
        self._begin(kind)
        self._write([painted(line, colour=self._colour) for line in lines])
