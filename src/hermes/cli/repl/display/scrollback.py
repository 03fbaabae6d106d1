"""The scrollback: final lines above the prompt, kinds of them set apart by an empty line."""

from collections.abc import Callable, Sequence

from hermes.app.transcript import PLAN_NOTE
from hermes.cli.repl.display.tool_results import tool_line
from hermes.cli.repl.markdown.blocks import Markdown
from hermes.cli.repl.markdown.styled_text import Line, Style, paint_line, wrap_line
from hermes.cli.terminal.text import strip_controls
from hermes.cli.terminal.tool_results import (
    LOST_OUTCOME,
    ToolOutcome,
    describe_stored_outcome,
    limit_rows,
)
from hermes.config.terminal_keys import DEFAULT_KEYS, format_key
from hermes.core.message import Message, ToolCall, ToolReturn

_BESIDE_ANSWER = frozenset({"message", "note", "text", "output"})
"""Kinds that may appear while an answer is written. They go above its unfinished line: neither
that line nor a block of code is torn apart."""
_ALWAYS_APART = ("message", "answer", "error", "change")
_REPLAYED_MESSAGES = 4
_REPLAYED_CHARS = 4000


class StoredCalls:
    """The tool calls of a conversation, by id; while a turn runs, those of its last message that
    have no result yet are not lost."""

    def __init__(self, messages: Sequence[Message], *, is_running: bool = False) -> None:
        self.by_id = {call.id: call for message in messages for call in message.calls}
        parts = (part for message in messages for part in message.parts)
        self._answered = {part.call_id for part in parts if isinstance(part, ToolReturn)}
        if is_running:
            last = next((m for m in reversed(messages) if m.calls), None)
            self._answered |= {call.id for call in last.calls} if last else set()

    def list_lost(self, message: Message) -> list[ToolCall]:
        return [call for call in message.calls if call.id not in self._answered]


class Scrollback:
    """Writes each final line exactly once."""

    def __init__(
        self, write: Callable[[list[str]], None], columns: Callable[[], int], *, colour: bool
    ) -> None:
        self._write = write
        self._columns = columns
        self._colour = colour
        self._markdown = Markdown(columns, colour=colour)
        self._answering = False
        self._last_kind = ""
        self.transcript_key = format_key(DEFAULT_KEYS["transcript"])

    @property
    def width(self) -> int:
        return self._columns() - 1

    def unfinished_lines(self) -> list[str]:
        """The end of the answer that is not final yet."""
        return self._markdown.unfinished_lines()

    def show_message(self, text: str, mark: str = "❯") -> None:
        """A message of the user."""
        lines = []
        for number, line in enumerate(strip_controls(text).split("\n")):
            head: Line = [(Style.MARK, f"{mark} " if not number else "  ")]
            lines += wrap_line([(Style.SAID, line)], self.width, head, "  ")
        self.write_block("message", lines)

    def show_note(self, text: str, style: str = Style.DIM) -> None:
        """Something about the conversation that is not part of it."""
        lines: list[Line] = []
        for line in strip_controls(text).split("\n"):
            lines += wrap_line([(style, line)], self.width) if line else [[]]
        self.write_block("note", lines)

    def show_problem(self, text: str) -> None:
        self.show_note(text, Style.BAD)

    def show_remark(self, text: str, style: str = Style.DIM) -> None:
        """A short line about the running turn; remarks stand together."""
        self.write_block("remark", wrap_line([(style, text)], self.width))

    def show_error(self, text: str) -> None:
        """Why a turn failed."""
        self.write_block("error", wrap_line([(Style.BAD, strip_controls(text))], self.width))

    def show_question(self, lines: list[Line]) -> None:
        """What a question is about; a wrapped line continues deeper than the next one begins."""
        wrapped = []
        for line in lines:
            text = "".join(piece for _, piece in line)
            indent = " " * (len(text) - len(text.lstrip()) + 2)
            wrapped += wrap_line(line, self.width, indent=indent)
        self.write_block("text", wrapped)

    def show_reply(self, text: str) -> None:
        """How a question was answered."""
        line = [(Style.SAID, strip_controls(text))]
        self.write_block("text", wrap_line(line, self.width, [("", "  ")]))

    def show_answer(self, text: str) -> None:
        """A complete answer of the model."""
        self._begin_block("answer")
        self._write(self._markdown.feed(text) + self._markdown.close())

    def show_history(self, messages: Sequence[Message], *, is_running: bool = False) -> None:
        """The end of a conversation that is resumed, or that runs elsewhere: what was said, and a
        line per tool call."""
        spoken = [n for n, m in enumerate(messages) if m.role != "tool" and m.text.strip()]
        first = spoken[-_REPLAYED_MESSAGES:][0] if spoken else 0
        if first:
            self.show_note(f"… {first} earlier messages · {self.transcript_key}: transcript")
        calls = StoredCalls(messages, is_running=is_running)
        for message in messages[first:]:
            if message.role == "user":
                self.show_message(message.text.removesuffix(PLAN_NOTE)[:_REPLAYED_CHARS])
            elif message.text.strip():
                self.show_answer(message.text[-_REPLAYED_CHARS:])
            self._show_calls(message, calls)

    def show_transcript(self, messages: Sequence[Message], *, is_running: bool) -> None:
        """A whole conversation, with its reasoning and all tool output."""
        calls = StoredCalls(messages, is_running=is_running)
        for message in messages:
            if message.thinking:
                self.show_note(message.thinking.strip())
            if message.role == "user":
                self.show_message(message.text.removesuffix(PLAN_NOTE))
            elif message.text.strip():
                self.show_answer(message.text)
            self._show_calls(message, calls, complete=True)

    def _show_calls(
        self, message: Message, calls: "StoredCalls", *, complete: bool = False
    ) -> None:
        """The calls of this message that have no result, and the results that stand in it."""
        for call in calls.list_lost(message):
            self._show_call(call, call.name, LOST_OUTCOME)
        for part in message.parts:
            if isinstance(part, ToolReturn):
                self.show_stored_call(calls.by_id.get(part.call_id), part)
                if complete:
                    self.show_output(part.text)

    def show_stored_call(self, call: ToolCall | None, result: ToolReturn) -> None:
        """A tool call of an earlier conversation, on one line."""
        self._show_call(call, result.name, describe_stored_outcome(result))

    def _show_call(self, call: ToolCall | None, name: str, outcome: ToolOutcome) -> None:
        self.write_block("tool", [tool_line(call, name, outcome, self.width)])

    def show_output(self, text: str, most: int = 0) -> None:
        """The output of a tool, indented; at most this many lines of it."""
        rows = strip_controls(text).rstrip("\n").split("\n")
        lines: list[Line] = []
        for row in limit_rows(rows, most) if most else rows:
            lines += wrap_line([(Style.DIM, row)], self.width, [("", "  ")], "  ")
        self.write_block("output", lines)

    def stream_answer(self, text: str) -> None:
        """The next piece of the answer; lines that it completes are final."""
        if not self._answering:
            text = text.lstrip("\n")
            if not text:
                return
            self._answering = True
            self._begin_block("answer")
        self._continue_answer(self._markdown.feed(text))

    def end_answer(self) -> None:
        if self._answering:
            self._answering = False
            self._continue_answer(self._markdown.close())

    def write_block(self, kind: str, lines: list[Line]) -> None:
        """Lines of one kind, set apart from other kinds before them."""
        if self._answering and kind not in _BESIDE_ANSWER:
            self._continue_answer(self._markdown.close())
        self._begin_block(kind)
        self._write([paint_line(line, colour=self._colour) for line in lines])

    def _continue_answer(self, lines: list[str]) -> None:
        if lines:
            if self._last_kind != "answer":
                self._begin_block("answer")
            self._write(lines)

    def _begin_block(self, kind: str) -> None:
        if self._last_kind and (self._last_kind != kind or kind in _ALWAYS_APART):
            self._write([""])
        self._last_kind = kind
