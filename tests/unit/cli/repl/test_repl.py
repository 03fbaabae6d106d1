"""The parts of the interactive terminal: Markdown by lines, wrapping, pasting, results, status."""

from __future__ import annotations

import re
import time
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.key_binding.key_processor import KeyPress
from prompt_toolkit.keys import Keys
from prompt_toolkit.styles import Style, default_ui_style, merge_styles

from hermes.agent import recovery
from hermes.cli.repl.completer import Completing, Files
from hermes.cli.repl.event_view import View
from hermes.cli.repl.live_region import above, status
from hermes.cli.repl.markdown.blocks import Markdown
from hermes.cli.repl.markdown.highlight import Highlighter
from hermes.cli.repl.markdown.inline import pieces
from hermes.cli.repl.markdown.styled_text import cells, fit, painted, wrap
from hermes.cli.repl.markdown.table import shared
from hermes.cli.repl.message_input import Chips, compose, dropped, references
from hermes.cli.repl.paste_detection import pasted
from hermes.cli.repl.question import Asking
from hermes.cli.repl.screen import STYLE
from hermes.cli.repl.state import State
from hermes.cli.repl.status_facts import Facts
from hermes.cli.repl.tool_results import changes, outcome
from hermes.cli.terminal.text import recovering
from hermes.core.events import TextDelta, ToolDone, ToolStarted, TurnEnd, TurnResult
from hermes.core.message import Message, Text, ToolCall, ToolReturn, Usage

ANSI = re.compile(r"\x1b\[[0-9;]*m")
SOURCE = """\
# Title
Some **bold** words.

- one
  - two
1. three
- [x] done

| a | b |
|---|--:|
| 1 | two **bold** |
| 中文 | 3 |

> said
---
```python
def f():
    '''over
    lines'''
    return 1
```
| no table
last
"""


def rendered(*chunks: str, width: int = 40) -> list[str]:
    markdown = Markdown(lambda: width, colour=True)
    lines = [line for chunk in chunks for line in markdown.feed(chunk)]
    return lines + markdown.close()


def plain(lines: list[str]) -> list[str]:
    return [ANSI.sub("", line).rstrip() for line in lines]


def test_blocks() -> None:
    assert plain(rendered(SOURCE)) == [
        "Title", "Some bold words.", "", "• one", "  • two", "1. three", "☑ done", "",
        "a    │        b", "─────┼─────────", "1    │ two bold", "中文 │        3", "",
        "▎ said", "─" * 40, "```python", "def f():", "    '''over", "    lines'''",
        "    return 1", "```", "| no table", "last",
    ]  # fmt: skip


WIDE = "| Name | What it is good for | Price |\n|---|:-:|--:|\n| a | b<br>long words | 1 |\n"


@pytest.mark.parametrize(
    ("source", "width", "shown"),
    [
        ("a | b\n--|--\n1 | 2\n\nx | y\nz\n", 40,
         ["a │ b", "──┼──", "1 │ 2", "", "x | y", "z"]),
        ("one | two\na | b\n--|--\n", 40, ["one | two", "a │ b", "──┼──"]),
        ("- a:\n  ```sh\n  ls\n  ```\n- b | c\n", 40,
         ["• a:", "  ```sh", "  ls", "  ```", "• b | c"]),
        ("Title\n=====\ntext", 40, ["Title", "─" * 40, "text"]),
        (WIDE, 40, ["Name │ What it is good for │ Price", "─────┼─────────────────────┼──────",
                    "a    │          b          │     1", "     │     long words      │"]),
        (WIDE, 20, ["Name: a", "What it i…: b long", "  words", "Price: 1", "─" * 10]),
    ],
)  # fmt: skip
def test_tables_and_fences(source: str, width: int, shown: list[str]) -> None:
    assert plain(rendered(source, width=width)) == shown


def test_a_string_over_lines_keeps_its_colour() -> None:
    colours = Highlighter("python")
    colours.line("x = '''over")
    assert [style for style, text in colours.line("two lines") if text] == ["32"]


@pytest.mark.parametrize(
    ("language", "line", "styles"),
    [
        ("json", '  "a": [1, "b"]', {"36", "32", ""}),
        ("yaml", "name: 'x' # why", {"36", "32", "2", ""}),
        ("jsonl", '{"a": "b"', {"36", "32", ""}),
        ("nosuch", "a: 1", {""}),
    ],
)
def test_lines_of_data_have_colours(language: str, line: str, styles: set[str]) -> None:
    found = Highlighter(language).line(line)
    assert "".join(text for _, text in found) == line
    assert {style for style, _ in found} == styles


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, len(SOURCE)), max_size=12), st.integers(20, 90))
def test_any_chunking_gives_the_same_lines(cuts: list[int], width: int) -> None:
    edges = [0, *sorted(cuts), len(SOURCE)]
    chunks = [SOURCE[a:b] for a, b in pairwise(edges)]
    assert rendered(*chunks, width=width) == rendered(SOURCE, width=width)


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet="ab*_`~[]()|#->\\ \t\n你🎉\x1b\x9b\r0.", max_size=120), st.integers(20, 60))
def test_nothing_is_lost_nothing_is_too_wide_nothing_is_a_control(text: str, width: int) -> None:
    markdown = Markdown(lambda: width, colour=False)
    for char in text:
        markdown.feed(char)
        markdown.live()
    lines = rendered(text, width=width)
    assert all("\n" not in line and "\r" not in line for line in lines)
    assert all("\x1b" not in line for line in plain(lines))
    letters = "".join(c for c in text if c in "ab你🎉")
    fenced = re.search(r"^ {0,8}(```|~~~)", text, re.MULTILINE)
    if "|" not in text and not fenced and "<" not in text:
        assert "".join(c for c in "".join(plain(lines)) if c in "ab你🎉") == letters
        assert all(cells(line) <= width for line in plain(lines))


def test_a_line_costs_the_same_whatever_came_before() -> None:
    markdown = Markdown(lambda: 80, colour=True)

    def thousand() -> float:
        start = time.process_time()
        for number in range(1000):
            markdown.feed(f"line {number} with **bold** words and `code`\n")
        return time.process_time() - start

    thousand()
    first = min(thousand() for _ in range(2))
    for _ in range(6):
        thousand()
    assert min(thousand() for _ in range(2)) < 3 * first + 0.02


def test_a_line_without_end_is_shown_by_its_end() -> None:
    markdown = Markdown(lambda: 80, colour=False)
    markdown.feed("x" * 100_000)
    start = time.process_time()
    for _ in range(200):
        markdown.feed("y")
        shown = markdown.live()
    assert sum(map(len, shown)) <= 1600 and time.process_time() - start < 2


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a `b*c*` d", "a b*c* d"),
        ("2 * 3 * 4 and snake_case_name", "2 * 3 * 4 and snake_case_name"),
        ("\\*not\\*", "*not*"),
        ("[label](http://x.y)", "label (http://x.y)"),
        ("[http://x.y](http://x.y)", "http://x.y"),
        ("<https://a.b/c>", "https://a.b/c"),
        ("**open", "**open"),
        ("**a *b* c**", "a b c"),
        ("***both*** and **a**", "both and a"),
        ("[w](https://x.org/a_(b)_c) end", "w (https://x.org/a_(b)_c) end"),
        ("a &lt;b&gt; &amp;&#27;[2J &nosuch; AT&T", "a <b> &[2J &nosuch; AT&T"),
        ("`&lt;` one<br>two", "&lt; one two"),
    ],
)
def test_inline(text: str, shown: str) -> None:
    assert "".join(piece for _, piece in pieces(text)) == shown


def test_inline_takes_its_time_only_once() -> None:
    start = time.process_time()
    pieces("**a " * 4000)
    pieces("[x](" * 4000)
    pieces("`" * 15000)
    assert time.process_time() - start < 3


def test_wrapping_wide_characters() -> None:
    lines = wrap([("", "你好世界你好 word")], 8)
    assert [painted(line, colour=False) for line in lines] == ["你好世界", "你好", "word"]
    assert fit("你好世界", 5) == "你好…" and cells(fit("你好世界", 5)) == 5


def test_columns_share_the_width() -> None:
    assert shared([3, 5], 40) == [3, 5]
    assert shared([3, 50, 50], 43) == [3, 20, 20]
    assert shared([100] * 3, 5) == [4, 4, 4]


def test_long_pastes_become_chips(tmp_path: Path) -> None:
    chips = Chips()
    long = "\r\n".join("abc" for _ in range(11))
    assert chips.paste("short\rtwo", tmp_path) == "short\ntwo"
    assert chips.paste(long, tmp_path) == "[pasted 11 lines]"
    assert chips.paste(long, tmp_path) == "[pasted 11 lines #2]"
    assert chips.paste("row\n" * 12, tmp_path) == "[pasted 12 lines]"
    assert chips.paste("x" * 2001, tmp_path) == "[pasted 2,001 characters]"
    text, images = chips.expanded("a [pasted 11 lines] b")
    assert text == f"a {long.replace(chr(13), '')} b" and images == []


def test_a_dropped_image(tmp_path: Path) -> None:
    file = tmp_path / "my pic.png"
    file.write_bytes(b"x")
    for name in (
        str(file),
        str(file).replace(" ", "\\ "),
        f"'{file}'",
        file.as_uri(),
        "my pic.png",
    ):
        assert dropped(name, tmp_path) == file
    assert dropped("no.png", tmp_path) is None
    assert dropped("\0.png", tmp_path) is None


def test_references(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("A" * 10)
    (tmp_path / "b c.txt").write_text("```\nB")
    (tmp_path / "bin").write_bytes(b"\0\1")
    text = 'see @a.txt, @"b c.txt" and me@a.txt @none @bin @.'
    assert [name for name, _ in references(text, tmp_path)] == ["a.txt", "b c.txt", "bin", "."]
    message, problems = compose(text, [], tmp_path)
    assert message.text.startswith(text) and "AAAAAAAAAA" in message.text
    assert "````\n```\nB\n````" in message.text
    assert len(problems) == 1 and "bin" in problems[0]
    _, problems = compose("@a.txt @gone.txt, @you me@x.org @types/node", [], tmp_path)
    assert problems == ["@gone.txt is not there; nothing was attached for it."]
    message, _ = compose("see @a.txt and pasted: @bin", [], tmp_path, typed="see [pasted]")
    assert message.text == "see @a.txt and pasted: @bin"  # a stranger's text fetches no file


def test_files_anywhere_are_completed(tmp_path: Path) -> None:
    for name in ("work/here.txt", "other/a b.txt", "other/.hidden", "other/sub/x"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    completing = Completing(lambda: ())
    completing.files = Files(tmp_path / "work", tmp_path)

    def offered(text: str) -> list[str]:
        found = completing.get_completions(Document(text), CompleteEvent())
        return [one.text for one in found]

    assert offered("see @he") == ["@here.txt"]
    assert offered("see @../other/") == ['@"../other/a b.txt"', "@../other/sub/"]
    assert offered(f"@{tmp_path}/other/.h") == [f"@{tmp_path}/other/.hidden"]
    assert offered("@/no/such/place/") == [] == offered("me@he")


def test_a_large_file_is_cut(tmp_path: Path) -> None:
    (tmp_path / "big").write_text("x" * 300_000)
    message, _ = compose("@big", [], tmp_path)
    assert len(message.text) < 110_000 and "of 300,000 bytes" in message.text


def returned(text: str, name: str = "terminal", *, error: bool = False) -> ToolReturn:
    return ToolReturn("c", name, (Text(text),), error)


@pytest.mark.parametrize(
    ("result", "bad", "code", "said"),
    [
        (returned("hello\nworld\n\n"), False, "exit 0", "world"),
        (returned("1|a\n2|b\n[3 more]", "read_file"), False, "", "2 lines"),
        (returned("x.py:1: a\nx.py:2: b", "search_files"), False, "", "x.py:1: a"),
        (returned("oops\n[exit status 3]"), True, "exit 3", "oops"),
        (returned("[killed by SIGTERM]"), True, "killed by SIGTERM", ""),
        (returned("no", error=True), True, "", "no"),
        (returned("x\x1b[31m", "read_file"), False, "", "x[31m"),
    ],
)
def test_outcomes(result: ToolReturn, bad: bool, code: str, said: str) -> None:
    found = outcome(result, 1.25)
    assert (found.bad, found.code, found.said, found.took) == (bad, code, said, "1.2 s")


def test_changes() -> None:
    diff = "Edited\n--- a\n+++ b\n@@ -1 +1 @@\n-old\n+new"
    shown = changes(None, returned(diff, "patch"))
    assert [line[0] for line in shown][-2:] == [("31", "  -old"), ("32", "  +new")]
    call = ToolCall("c", "write_file", '{"path": "x", "content": "1\\n2\\n"}')
    created = changes(call, returned("Created x (4 bytes)", "write_file"))
    assert [line[0][1] for line in created] == ["  +1", "  +2"]
    same = changes(None, returned("Patched\n--- a\n+++ a\n@@ -1 +1 @@\n-old\n+new", "patch"))
    assert [line[0][1] for line in same] == ["  @@ -1 +1 @@", "  -old", "  +new"]
    call = ToolCall("c", "todo", '{"todos": [{"content": "a", "status": "completed"}, 3, {}]}')
    steps = changes(call, returned("Noted", "todo"))
    assert [painted(line, colour=False) for line in steps] == ["  ☑ a", "  ☐ "]
    long = changes(None, returned("--- a\n+++ b\n" + "+x\n" * 100, "patch"))
    assert len(long) == 41 and "62 more" in long[-1][0][1]


def test_the_status_line_fits() -> None:
    state = State(ready=True)
    state.facts.model, state.facts.window = "a-model", 1000
    state.facts.count(Message("assistant", (), usage=Usage(400, 100, 100, cost=0.01)))
    assert state.facts.shown() == ["a-model", "context 50%", "cache 25%", "$0.0100"]
    facts = "a-model · context 50% · cache 25% · $0.0100"
    assert status(state, 60) == f"{facts}   Enter sends"
    assert status(state, 120) == f"{facts}   Enter sends · / commands · @ files · Ctrl-D leaves"
    state.running = True
    for columns in (20, 40, 60, 80, 200):
        assert cells(status(state, columns)) < columns
    assert "Enter steers" in status(state, 80)
    state.busy = "queue"
    assert "Enter queues · Esc stops" in status(state, 80)
    state.vi = True
    assert "Enter queues · Ctrl-C stops" in status(state, 80)


def test_a_recovery_is_told_in_words() -> None:
    told = recovering("server_error", "backoff", 2.2)
    assert told == "! the provider failed: trying again in 2 s"
    rungs = [rung.name for rung in vars(recovery).values() if isinstance(rung, recovery.Rung)]
    assert rungs and all(rung not in recovering("empty", rung, 0).split() for rung in rungs)
    for kind in (kind.value for kind, ladder in recovery.POLICY.items() if ladder):
        assert not recovering(kind, "retry", 0).startswith(f"! {kind.replace('_', ' ')}:"), kind
    assert recovering("new_kind", "new_action", 0) == "! new kind: new action"


def test_what_waits_takes_a_line_each() -> None:
    state = State(ready=True, queue=["one\ntwo\x1b[2J", "x" * 90], entered=["first"])
    rows = above(state, 40, 24, colour=False)
    assert rows[:2] == ["next first", "then one two[2J"]
    assert len(rows) == 3 and all(cells(row) < 40 for row in rows)


def test_every_answer_is_seen_on_a_narrow_screen() -> None:
    keys = {"y": "yes", "s": "for this session", "a": "always", "n": "no", "e": "edit"}
    asked = Asking([], keys, lambda _: None, prompt="Allow it?")
    (line,) = asked.shown(80, colour=False)
    rows = asked.shown(20, colour=False)
    assert line.split() == " ".join(rows).split() and line.endswith("e edit  (Enter: no)")
    assert all(cells(row) < 20 for row in rows)


def test_unknown_costs_are_marked() -> None:
    facts = Facts()
    facts.count(Message("assistant", (), usage=Usage(10, 10, cost=0.5)))
    facts.count(Message("assistant", (), usage=Usage(10, 10)))
    assert facts.shown() == ["$0.5000+"]


def test_what_is_offered_is_readable_on_any_background() -> None:
    """prompt_toolkit has classes of its own, and some of their names bring a background along."""
    style = merge_styles([default_ui_style(), Style.from_dict(STYLE)])
    for name in STYLE:
        assert style.get_attrs_for_style_str(f"class:{name}").bgcolor in (None, ""), name


def typed(text: str) -> list[KeyPress]:
    return [KeyPress(Keys.ControlM if char == "\r" else char, char) for char in text]


@pytest.mark.parametrize(
    ("text", "paste"),
    [
        ("one line\rand two\rand a third", True),
        ("a\rbb\rcc\rdd\r", True),
        ("typed ahead, sent\rand the next is queued\t", False),
        ("one\rtwo\rthree\r", False),
        ("hello\r", False),
        ("/model x\rhello there\r", False),  # typed ahead, and sent
        ("hello there\rwh", False),
        ("y\r", False),
    ],
)
def test_lines_that_come_at_once_are_a_paste(text: str, paste: bool) -> None:
    assert pasted(typed(text)) is paste
    assert not pasted([*typed(text), KeyPress(Keys.Up, "\x1b[A")])


def test_a_question_is_broken_between_words_and_goes_on_deeper() -> None:
    written: list[str] = []
    view = View(State(), written.extend, lambda: 32, colour=False)
    view.asked([[("", "    docker push registry.example/team/service")], [("", "    next row")]])
    assert written == ["    docker push", "      registry.example/team/ser", "      vice",
                       "    next row"]  # fmt: skip


def test_what_is_said_meanwhile_tears_no_line_and_no_code_apart() -> None:
    written: list[str] = []
    view = View(State(), written.extend, lambda: 60, colour=False)
    view.event(TextDelta("So:\n```python\nx = 1\n# half a "))
    view.said("mind the gap", "↳")
    view.event(TextDelta("comment\n```\nend"))
    view.event(TurnEnd(TurnResult("completed")))
    assert written == ["So:", "```python", "x = 1", "", "↳ mind the gap", "",
                       "# half a comment", "```", "end"]  # fmt: skip


def test_a_tool_leaves_room_for_what_came_of_it() -> None:
    written: list[str] = []
    view = View(State(), written.extend, lambda: 60, colour=False)
    view.folder = "/w"
    for text in ("1 failed\n6 passed", "wrote /w/a.py"):
        call = ToolCall("c", "terminal", '{"command": "' + "long words " * 20 + '"}')
        view.event(ToolStarted(call))
        view.event(ToolDone(ToolReturn("c", "terminal", (Text(text),)), 2.2))
    assert written[0].endswith("…  2.2 s · exit 0 · 6 passed") and cells(written[0]) < 60
    assert written[1].endswith("exit 0 · wrote a.py")


def test_what_came_of_a_prompt_in_the_background() -> None:
    written: list[str] = []
    view = View(State(), written.extend, lambda: 60, colour=False)
    view.brought("add\nthem", "s1", TurnResult("completed", text="It is **4**."))
    view.brought("more", "s2", TurnResult("failed", error="No answer came."))
    view.brought("wait", "s3", TurnResult("interrupted", error="Interrupted."))
    assert written == ["✓ add them  done · s1", "", "It is 4.", "", "✗ more  failed · s2", "",
                       "No answer came.", "", "✗ wait  stopped · s3"]  # fmt: skip
