"""What the user sees: results, the status line, questions, the scrollback."""

from __future__ import annotations

import pytest
from prompt_toolkit.styles import Style, default_ui_style, merge_styles

from hermes.agent import recovery
from hermes.cli.repl.display.event_view import EventView
from hermes.cli.repl.display.live_region import live_lines, status_line
from hermes.cli.repl.display.screen import STYLE
from hermes.cli.repl.display.scrollback import Scrollback
from hermes.cli.repl.display.tool_results import describe_changes
from hermes.cli.repl.markdown.styled_text import cell_width, paint_line
from hermes.cli.repl.questions import PendingQuestion
from hermes.cli.repl.state import EnteredMessage, ScreenState, StatusFacts
from hermes.cli.terminal.text import format_recovery
from hermes.cli.terminal.tool_results import describe_outcome, describe_stored_outcome
from hermes.core.events import TextDelta, ToolDone, ToolStarted, TurnEnd, TurnResult
from hermes.core.message import Message, Text, ToolCall, ToolReturn, Usage


def make_view(written: list[str], columns: int) -> EventView:
    scrollback = Scrollback(written.extend, lambda: columns, colour=False)
    return EventView(ScreenState(), scrollback)


def returned(text: str, name: str = "terminal", *, error: bool = False) -> ToolReturn:
    return ToolReturn("c", name, (Text(text),), error)


def ended(status: int | None, notes: int = 0) -> dict[str, object]:
    return {"exit_status": status, "notes": notes}


@pytest.mark.parametrize(
    ("result", "data", "bad", "code", "said"),
    [
        (returned("hello\nworld\n\n"), ended(0), False, "exit 0", "world"),
        (returned("1|a\n2|b\n[3 more]", "read_file"), None, False, "", "2 lines"),
        (returned("x.py:1: a\nx.py:2: b", "search_files"), None, False, "", "x.py:1: a"),
        (returned("oops\n[exit status 3]"), ended(3, 1), True, "exit 3", "oops"),
        (returned("oops\n[exit status 1]\n[a wall]"), ended(1, 2), True, "exit 1", "oops"),
        (returned("[exit status 3]"), ended(0), False, "exit 0", "[exit status 3]"),
        (returned("[killed by SIGTERM]"), ended(-15, 1), True, "killed by SIGTERM", ""),
        (returned("a\n[timed out]", error=True), ended(None, 1), True, "timed out", "a"),
        (returned("no", error=True), None, True, "", "no"),
        (returned("x\x1b[31m", "read_file"), None, False, "", "x[31m"),
    ],
)
def test_outcomes(result: ToolReturn, data: object, bad: bool, code: str, said: str) -> None:
    found = describe_outcome(result, 1.25, data)
    assert (found.failed, found.code, found.summary, found.took) == (bad, code, said, "1.2 s")


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("fatal: no HEAD\nUse '--' to separate paths:\n'git <command>'", "fatal: no HEAD"),
        ("ValueError: bad\nduring\nKeyError: worse\n\n", "KeyError: worse"),
        ("one error\n" + "row\n" * 30, "row"),
    ],
)
def test_a_failure_is_told_by_the_row_that_names_it(output: str, said: str) -> None:
    found = describe_outcome(returned(f"{output}\n[exit status 1]"), 1.0, ended(1, 1))
    assert found.summary == said
    assert describe_outcome(returned("error\nfine"), 1.0, ended(0)).summary == "fine"


@pytest.mark.parametrize(
    ("result", "bad", "code", "said"),
    [
        (returned("one\ntwo"), False, "exit 0", "two"),
        (returned("oops\n[exit status 3]\n[a wall]"), True, "exit 3", "oops"),
        (returned("[exit status 3]\nprinted"), False, "exit 0", "printed"),
        (returned("a\n[killed by SIGKILL]"), True, "killed by SIGKILL", "a"),
        (returned("a\n[timed out after 3 s (killed)]", error=True), True, "timed out", "a"),
        (returned("Not run: no", error=True), True, "", "Not run: no"),
        (returned("a\n[in the background as p1: process (poll)]"), False, "", "a"),
        (returned("x\ny", "search_files"), False, "", "x"),
    ],
)
def test_stored_outcomes(result: ToolReturn, bad: bool, code: str, said: str) -> None:
    found = describe_stored_outcome(result)
    assert (found.failed, found.code, found.summary, found.took) == (bad, code, said, "")


def test_changes() -> None:
    diff = "Edited\n--- a\n+++ b\n@@ -1 +1 @@\n-old\n+new"
    shown = describe_changes(None, returned(diff, "patch"))
    assert [line[0] for line in shown][-2:] == [("31", "  -old"), ("32", "  +new")]
    call = ToolCall("c", "write_file", '{"path": "x", "content": "1\\n2\\n"}')
    created = describe_changes(call, returned("Created x (4 bytes)", "write_file"))
    assert [line[0][1] for line in created] == ["  +1", "  +2"]
    same = describe_changes(
        None, returned("Patched\n--- a\n+++ a\n@@ -1 +1 @@\n-old\n+new", "patch")
    )
    assert [line[0][1] for line in same] == ["  @@ -1 +1 @@", "  -old", "  +new"]
    call = ToolCall("c", "todo", '{"todos": [{"content": "a", "status": "completed"}, 3, {}]}')
    steps = describe_changes(call, returned("Noted", "todo"))
    assert [paint_line(line, colour=False) for line in steps] == ["  ☑ a", "  ☐ "]
    long = describe_changes(None, returned("--- a\n+++ b\n" + "+x\n" * 100, "patch"))
    assert len(long) == 41 and "62 more" in long[-1][0][1]


def test_the_status_line_fits() -> None:
    state = ScreenState(ready=True)
    state.facts.model, state.facts.window = "a-model", 1000
    state.facts.add_message(Message("assistant", (), usage=Usage(400, 100, 100, cost=0.01)))
    assert state.facts.format_parts() == ["a-model", "context 50%", "cache 25%", "$0.0100"]
    facts = "a-model · context 50% · cache 25% · $0.0100"
    assert status_line(state, 60) == f"{facts}   Enter: send"
    assert (
        status_line(state, 120) == f"{facts}   Enter: send · /: commands · @: files · Ctrl-D: quit"
    )
    state.running = True
    for columns in (20, 40, 60, 80, 200):
        assert cell_width(status_line(state, columns)) < columns
    assert "Enter: steer" in status_line(state, 80)
    state.busy = "queue"
    assert "Enter: queue · Esc: stop" in status_line(state, 80)
    state.vi = True
    assert "Enter: queue · Ctrl-C: stop" in status_line(state, 80)


def test_a_recovery_is_told_in_words() -> None:
    told = format_recovery("server_error", "backoff", 2.2)
    assert told == "! the provider failed: retrying in 2 s"
    rungs = [rung.name for rung in vars(recovery).values() if isinstance(rung, recovery.Rung)]
    assert rungs and all(rung not in format_recovery("empty", rung, 0).split() for rung in rungs)
    for kind in (kind.value for kind, ladder in recovery.POLICY.items() if ladder):
        assert not format_recovery(kind, "retry", 0).startswith(f"! {kind.replace('_', ' ')}:"), (
            kind
        )
    assert format_recovery("new_kind", "new_action", 0) == "! new kind: new action"


def test_what_waits_takes_a_line_each() -> None:
    last = EnteredMessage("last", queued=True)
    state = ScreenState(ready=True, queue=["one\ntwo\x1b[2J", "x" * 90], entered=[last])
    rows = live_lines(state, 40, 24, colour=False)
    assert rows[0] == "queued: one two[2J" and rows[2] == "queued: last"
    assert len(rows) == 3 and all(cell_width(row) < 40 for row in rows)


def test_the_key_of_an_offer_is_never_cut() -> None:
    state = ScreenState(ready=True, offered_title="fix the build of the whole project")
    for columns, rows in ((120, 1), (80, 2), (40, 2)):
        lines = live_lines(state, columns, 24, colour=False)
        assert len(lines) == rows and lines[-1].endswith("press Tab to continue it")
        assert all(cell_width(line) < columns for line in lines)


def test_every_answer_is_seen_on_a_narrow_screen() -> None:
    keys = {"y": "yes", "s": "for this session", "a": "always", "n": "no", "e": "edit"}
    asked = PendingQuestion(
        [], keys, lambda _: None, prompt="Allow it?", subject="rm -r everything"
    )
    (line,) = asked.render(80, 9, "Enter: no", low=False, colour=False)
    rows = asked.render(20, 9, "Enter: no", low=False, colour=False)
    assert line.split() == " ".join(rows).split() and line.endswith("e edit  (Enter: no)")
    assert all(cell_width(row) < 20 for row in rows) and rows[-1] == "(Enter: no)"
    assert asked.render(12, 9, "Enter: no", low=True, colour=False)[0] == "rm -r ever…"


def test_a_question_is_asked_in_short_where_its_lines_do_not_fit() -> None:
    keys = {"y": "yes", "s": "for this session", "a": "always", "n": "no", "e": "edit"}
    asked = PendingQuestion([], keys, lambda _: None, prompt="Allow it?", subject="rm -r all")
    for columns, room, rows in (
        (40, 2, ["rm -r all", "Allow it? y/s/a/n/e (Enter: no)"]),
        (40, 1, ["Allow it? y/s/a/n/e (Enter: no)"]),
        (24, 2, ["rm -r all", "y/s/a/n/e (Enter: no)"]),
    ):
        assert asked.render(columns, room, "Enter: no", low=True, colour=False) == rows
    chosen = PendingQuestion([], {"t": "there", "n": "no"}, lambda _: None, prompt="word " * 20)
    rows = chosen.render(40, 2, "Enter: no", low=True, colour=False)
    assert rows[0].endswith("…") and rows[1] == "t/n (Enter: no)"
    text = PendingQuestion([], {}, lambda _: None, prompt="word " * 20, subject="Which?")
    rows = text.render(40, 2, "", low=True, colour=False)
    assert rows[0] == "Which?" and rows[1].endswith("…")


def test_a_question_takes_answers_when_it_has_been_seen() -> None:
    now = 100.0
    keys = {"y": "yes", "n": "no", "a": "always"}
    asked = PendingQuestion([], keys, lambda _: None, prompt="Allow it?")
    text = ""
    state = ScreenState(clock=lambda: now, prompt_text=lambda: text, question=asked)

    def draw() -> str:
        state.note_drawing()
        return live_lines(state, 100, 24, colour=False)[-1]

    assert not state.takes_answer and draw().endswith("(one moment)")
    now += 0.9
    assert not state.takes_answer
    now += 0.2
    assert state.takes_answer and draw().endswith("(Enter: no)")
    notes = {"a": "Enter: always", "Yes ": "Enter: yes", "yes, but": "Enter sends your text"}
    for text in notes:
        assert f"({notes[text]}" in draw()
    state.question = PendingQuestion([], keys, lambda _: None, prompt="Allow that?")
    assert not state.takes_answer and draw().endswith("(one moment)")


def test_unknown_costs_are_marked() -> None:
    facts = StatusFacts()
    facts.add_message(Message("assistant", (), usage=Usage(10, 10, cost=0.5)))
    facts.add_message(Message("assistant", (), usage=Usage(10, 10)))
    assert facts.format_parts() == ["$0.5000+"]


def test_what_is_offered_is_readable_on_any_background() -> None:
    """prompt_toolkit has classes of its own, and some of their names bring a background along."""
    style = merge_styles([default_ui_style(), Style.from_dict(STYLE)])
    for name in STYLE:
        assert style.get_attrs_for_style_str(f"class:{name}").bgcolor in (None, ""), name


def test_a_question_is_broken_between_words_and_goes_on_deeper() -> None:
    written: list[str] = []
    view = make_view(written, 32)
    view.scrollback.show_question(
        [[("", "    docker push registry.example/team/service")], [("", "    next row")]]
    )
    assert written == ["    docker push", "      registry.example/team/ser", "      vice",
                       "    next row"]  # fmt: skip


def test_what_is_said_meanwhile_tears_no_line_and_no_code_apart() -> None:
    written: list[str] = []
    view = make_view(written, 60)
    view.show_event(TextDelta("So:\n```python\nx = 1\n# half a "))
    view.scrollback.show_message("mind the gap", "↳")
    view.show_event(TextDelta("comment\n```\nend"))
    view.show_event(TurnEnd(TurnResult("completed")))
    assert written == ["So:", "```python", "x = 1", "", "↳ mind the gap", "",
                       "# half a comment", "```", "end"]  # fmt: skip


def test_a_tool_leaves_room_for_what_came_of_it() -> None:
    written: list[str] = []
    view = make_view(written, 60)
    view.folder = "/w"
    for text in ("1 failed\n6 passed", "wrote /w/a.py"):
        call = ToolCall("c", "terminal", '{"command": "' + "long words " * 20 + '"}')
        view.show_event(ToolStarted(call))
        view.show_event(ToolDone(ToolReturn("c", "terminal", (Text(text),)), 2.2, ended(0)))
    assert written[0].endswith("…  2.2 s · exit 0 · 6 passed") and cell_width(written[0]) < 60
    assert written[1].endswith("exit 0 · wrote a.py")


def test_what_came_of_a_prompt_in_the_background() -> None:
    written: list[str] = []
    view = make_view(written, 60)
    view.show_background_result("add\nthem", "s1", TurnResult("completed", text="It is **4**."))
    view.show_background_result("more", "s2", TurnResult("failed", error="No answer came."))
    view.show_background_result("wait", "s3", TurnResult("interrupted", error="Interrupted."))
    assert written == ["✓ add them  done · s1", "", "It is 4.", "", "✗ more  failed · s2", "",
                       "No answer came.", "", "✗ wait  stopped · s3"]  # fmt: skip
