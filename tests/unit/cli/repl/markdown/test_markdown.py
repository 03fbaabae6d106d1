"""Markdown on the terminal: blocks, tables, inline styles, highlighting, wrapping."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes.cli.repl.markdown.blocks import Markdown
from hermes.cli.repl.markdown.highlight import Highlighter
from hermes.cli.repl.markdown.inline import parse_inline
from hermes.cli.repl.markdown.styled_text import Style, cell_width, fit_text, paint_line, wrap_line
from hermes.cli.repl.markdown.table import share_width

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


def count_calls(work: Callable[[], object]) -> int:
    """How many functions were called: a measure of work that is the same on every machine."""
    count = 0

    def profile(frame: object, event: str, arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


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
    colours.highlight_line("x = '''over")
    assert [style for style, text in colours.highlight_line("two lines") if text] == ["32"]


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
    found = Highlighter(language).highlight_line(line)
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
        markdown.unfinished_lines()
    lines = rendered(text, width=width)
    assert all("\n" not in line and "\r" not in line for line in lines)
    assert all("\x1b" not in line for line in plain(lines))
    letters = "".join(c for c in text if c in "ab你🎉")
    fenced = re.search(r"^ {0,8}(```|~~~)", text, re.MULTILINE)
    if "|" not in text and not fenced and "<" not in text:
        assert "".join(c for c in "".join(plain(lines)) if c in "ab你🎉") == letters
        assert all(cell_width(line) <= width for line in plain(lines))


def test_a_line_costs_the_same_whatever_came_before() -> None:
    markdown = Markdown(lambda: 80, colour=True)

    def feed_lines() -> None:
        for number in range(1000):
            markdown.feed(f"line {number} with **bold** words and `code`\n")

    feed_lines()
    first = count_calls(feed_lines)
    for _ in range(6):
        feed_lines()
    assert count_calls(feed_lines) == first


def test_a_line_without_end_is_shown_by_its_end() -> None:
    def count_redraw(length: int) -> int:
        markdown = Markdown(lambda: 80, colour=False)
        markdown.feed("x" * length)
        markdown.unfinished_lines()
        markdown.feed("y")
        calls = count_calls(markdown.unfinished_lines)
        assert sum(map(len, markdown.unfinished_lines())) <= 1600
        return calls

    assert count_redraw(100_000) == count_redraw(10_000)


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
    assert "".join(piece for _, piece in parse_inline(text)) == shown


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("see https://a.b/c.", "https://a.b/c"),
        ("(see https://a.b/c_(d)_e)", "https://a.b/c_(d)_e"),
        ("**https://a.b/c?d=e&f**, then", "https://a.b/c?d=e&f"),
        ("`https://a.b/c`", None),
        ("xhttps://a.b/c", None),
        ("[https://a.b/c](https://d.e)", "https://a.b/c"),
        ('"https://a.b/c">', "https://a.b/c"),
    ],
)
def test_an_address_in_the_text_is_a_link(text: str, address: str | None) -> None:
    links = [piece for style, piece in parse_inline(text) if Style.LINK in style]
    assert links == ([address] if address else [])


@pytest.mark.parametrize(
    "text", ["**a " * 4000, "[x](" * 4000, "`" * 15000, "https://a" + ")" * 15000]
)
def test_marks_without_end_do_not_hold_it_up(text: str) -> None:
    """That it comes back before the suite's time is over is the test."""
    assert "".join(piece for _, piece in parse_inline(text)) == text


def test_spaces_of_neighbouring_pieces_add_up() -> None:
    pieces = [("", "    "), ("1", " "), ("1", "x = 1")]
    assert ["".join(text for _, text in line) for line in wrap_line(pieces, 40)] == ["     x = 1"]


def test_wrapping_wide_characters() -> None:
    lines = wrap_line([("", "你好世界你好 word")], 8)
    assert [paint_line(line, colour=False) for line in lines] == ["你好世界", "你好", "word"]
    assert fit_text("你好世界", 5) == "你好…" and cell_width(fit_text("你好世界", 5)) == 5


def test_columns_share_the_width() -> None:
    assert share_width([3, 5], 40) == [3, 5]
    assert share_width([3, 50, 50], 43) == [3, 20, 20]
    assert share_width([100] * 3, 5) == [4, 4, 4]
