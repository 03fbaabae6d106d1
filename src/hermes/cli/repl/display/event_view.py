"""Events of a session on the screen: final lines go to the scrollback, the rest is live state."""

import time
from collections.abc import Callable

from msgspec import structs

from hermes.cli.repl.display.scrollback import Scrollback
from hermes.cli.repl.display.tool_results import describe_changes, tool_line
from hermes.cli.repl.markdown.styled_text import Style, wrap_line
from hermes.cli.repl.state import RunningTool, ScreenState
from hermes.cli.terminal.text import format_call, format_recovery, one_line, strip_controls
from hermes.cli.terminal.tool_results import describe_outcome
from hermes.core import events
from hermes.core.events import TurnEvent, TurnResult
from hermes.core.message import ToolCall

_TAIL_CHARS = 400
_VERBOSE_LINES = 40


class EventView:
    """Shows the events of one session at a time."""

    def __init__(self, state: ScreenState, scrollback: Scrollback) -> None:
        self.state = state
        self.scrollback = scrollback
        self._calls: dict[str, ToolCall] = {}
        self._thoughts: list[str] = []
        self._thought_tail = ""
        self._thinking_since = 0.0
        self.verbose: Callable[[], bool] = bool
        self.folder = ""
        """The working folder: names of files in it are shown without it."""
        state.unfinished = scrollback.unfinished_lines

    def reset(self) -> None:
        """Another conversation begins: nothing of the old one stays live."""
        self._end_text()
        self._clear_tools()

    def show_event(self, event: TurnEvent) -> None:
        state = self.state
        match event:
            case events.TextDelta(text=text):
                self._end_thinking()
                state.set_activity("")
                self.scrollback.stream_answer(text)
            case events.ThinkingDelta(text=text):
                self._add_thought(text)
            case events.StepStart():
                self._end_text()
                state.set_activity("waiting for the model")
            case events.Recovering(kind=kind, action=action, wait=wait):
                self.scrollback.show_remark(format_recovery(kind, action, wait))
            case events.Notice(text=text):
                self.scrollback.show_remark(f"! {one_line(text, 400)}")
            case events.Recorded(message=message):
                state.facts.add_message(message)
            case events.TurnEnd(result=result):
                self._finish_turn(result)
            case _:
                self._show_tool_event(event)

    def show_background_result(self, prompt: str, session_id: str, result: TurnResult) -> None:
        """The outcome of a prompt that ran in the background."""
        stopped = result.status == "interrupted"
        outcome = "stopped" if stopped else "failed" if result.error else "done"
        mark = (Style.GOOD, "✓ ") if outcome == "done" else (Style.BAD, "✗ ")
        about = (Style.DIM, f"  {outcome} · {session_id}")
        line = [mark, (Style.SAID, one_line(prompt, 200)), about]
        scrollback = self.scrollback
        scrollback.write_block("message", wrap_line(line, scrollback.width, indent="  "))
        if result.text.strip():
            scrollback.show_answer(result.text)
        if result.error and not stopped:
            scrollback.show_problem(result.error)

    def _show_tool_event(self, event: TurnEvent) -> None:
        state = self.state
        match event:
            case events.CallBegan(name=name):
                self._end_thinking()
                state.set_activity(f"writing a call of {one_line(name, 40)}")
            case events.ToolStarted(call=call):
                self._end_text()
                self._calls[call.id] = call
                label = format_call(call.name, call.args)
                state.tools[call.id] = RunningTool(label, time.monotonic())
            case events.ToolProgress(call_id=call_id, text=text):
                if tool := state.tools.get(call_id):
                    last = strip_controls(text).rstrip().rsplit("\n", 1)[-1]
                    tool.last_line = one_line(last, _TAIL_CHARS)
            case events.ToolDone():
                self._finish_tool(event)

    def _add_thought(self, text: str) -> None:
        if not self._thoughts:
            self._end_text()
            self._thinking_since = time.monotonic()
            self.state.set_activity("thinking")
        self._thoughts.append(text)
        self._thought_tail = (self._thought_tail + text)[-_TAIL_CHARS:]
        last = self._thought_tail.rstrip().rsplit("\n", 1)[-1]
        self.state.thought = one_line(last, _TAIL_CHARS)

    def _end_thinking(self) -> None:
        if not self._thoughts:
            return
        took = time.monotonic() - self._thinking_since
        self._thoughts.clear()
        self.state.thought = self._thought_tail = ""
        self.state.set_activity("")
        length = f"for {took:.0f} s" if took >= 1 else "briefly"
        key = self.scrollback.transcript_key
        self.scrollback.show_remark(f"thought {length} · {key}: transcript")

    def _end_text(self) -> None:
        self._end_thinking()
        self.scrollback.end_answer()

    def _finish_tool(self, event: events.ToolDone) -> None:
        result = event.result
        self.state.tools.pop(result.call_id, None)
        call = self._calls.pop(result.call_id, None)
        outcome = describe_outcome(result, event.duration, event.data)
        if self.folder:
            summary = outcome.summary.replace(f"{self.folder}/", "")
            outcome = structs.replace(outcome, summary=summary)
        lines = [tool_line(call, result.name, outcome, self.scrollback.width)]
        details = describe_changes(call, result, event.data)
        if not details and self.verbose():
            text = strip_controls(result.text).split("\n")
            details = [[(Style.DIM, f"  {line}")] for line in text[:_VERBOSE_LINES]]
            if len(text) > _VERBOSE_LINES:
                details.append([(Style.DIM, f"  … {len(text) - _VERBOSE_LINES} more lines")])
        self.scrollback.write_block("change" if details else "tool", lines + details)
        self.state.set_activity("waiting for the model")

    def _finish_turn(self, result: TurnResult) -> None:
        self._end_text()
        self._clear_tools()
        if result.status == "interrupted":
            self.scrollback.show_remark("! interrupted; the answer so far is kept", Style.WARNING)
        elif result.error:
            self.scrollback.show_error(result.error)
            if result.status == "failed":
                self.scrollback.show_remark("Type /retry to try again.")

    def _clear_tools(self) -> None:
        self.state.tools.clear()
        self._calls.clear()
        self.state.set_activity("")
