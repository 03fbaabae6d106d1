"""patch with `old` and `new`: what it finds, and what it does not take for it."""

from __future__ import annotations

import itertools
import stat
from types import SimpleNamespace
from typing import Any

import pytest

from hermes.core.errors import ToolError
from hermes.core.tool import ToolContext
from hermes.tools._edit import locate
from hermes.tools._edit.replace import replace_text
from hermes.tools.patch import patch
from tests.unit.tools.edits import refused, run, v4a


async def test_a_piece_is_replaced_and_the_diff_is_shown(ctx: ToolContext) -> None:
    (ctx.workspace.cwd / "f.txt").write_text("".join(f"line {n}\n" for n in range(1, 21)))
    result = await run(ctx, path="f.txt", old="line 10\n", new="LINE TEN\nand more\n")
    shown = (
        "--- f.txt\n+++ f.txt\n@@ -7,7 +7,8 @@\n line 7\n line 8\n line 9\n-line 10\n+LINE TEN\n"
        "+and more\n line 11\n line 12\n line 13"
    )
    assert result.content == f"Patched f.txt (+2 -1)\n{shown}"
    assert result.display == shown
    assert (ctx.workspace.cwd / "f.txt").read_text().count("\n") == 21


async def test_one_place_or_all(ctx: ToolContext) -> None:
    (ctx.workspace.cwd / "f").write_text("a = 1\nb = 2\na = 1\n")
    said = await refused(ctx, path="f", old="a = 1", new="a = 3")
    assert "2 times (lines 1, 3)" in said and "all=true" in said
    result = await run(ctx, path="f", old="a = 1", new="a = 3", all=True)
    assert "2 places" in str(result.content)
    assert (ctx.workspace.cwd / "f").read_text() == "a = 3\nb = 2\na = 3\n"


async def test_what_is_not_there_is_shown_with_what_is_nearest(ctx: ToolContext) -> None:
    (ctx.workspace.cwd / "f.py").write_text(
        "import os\n\n\ndef total(items):\n    return sum(items)\n"
    )
    said = await refused(
        ctx, path="f.py", old="def total(values, start):\n    yield values", new="x"
    )
    assert "not found" in said
    assert "4|def total(items):" in said
    assert "read the file again" in await refused(ctx, path="f.py", old="%%%%", new="x")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({}, "either path"),
        ({"path": "f", "patch": "x", "old": "a", "new": "b"}, "either path"),
        ({"path": "f", "old": "a"}, "old and new"),
        ({"path": "f", "old": "", "new": "b"}, "empty"),
        ({"path": "f", "old": "text", "new": "text"}, "same"),
        ({"path": "gone", "old": "a", "new": "b"}, "does not exist"),
        ({"path": "ff", "old": "a", "new": "b"}, "Similar: f"),
        ({"path": ".", "old": "a", "new": "b"}, "directory"),
        ({"path": "f", "old": "text", "new": "a\0b"}, "NUL"),
        ({"path": "f", "old": "text", "new": "\ud800"}, "cannot hold"),
        ({"path": "binary", "old": "a", "new": "b"}, "binary"),
        ({"path": "~/.ssh/config", "old": "a", "new": "b"}, "Denied"),
        ({"path": "~/.hermes/config.yaml", "old": "a", "new": "b"}, "Denied"),
        ({"path": ".git/hooks/x", "old": "a", "new": "b"}, "Denied"),
        ({"path": "out", "old": "a", "new": "b"}, "leads through a link"),
    ],
)
async def test_what_cannot_be_done_is_said(ctx: ToolContext, args: Any, words: str) -> None:
    (ctx.workspace.cwd / "f").write_text("text")
    (ctx.workspace.cwd / "binary").write_bytes(b"a\0b")
    (ctx.workspace.cwd.parent / "outside").write_text("a")
    (ctx.workspace.cwd / "out").symlink_to("../outside")
    assert words in await refused(ctx, **args)


async def test_the_mode_stays_and_a_link_stays_a_link(ctx: ToolContext) -> None:
    (ctx.workspace.cwd / "run.sh").write_text("echo a\n")
    (ctx.workspace.cwd / "run.sh").chmod(0o751)
    (ctx.workspace.cwd / "link").symlink_to("run.sh")
    await run(ctx, path="link", old="echo a", new="echo b")
    assert (ctx.workspace.cwd / "link").is_symlink()
    assert (ctx.workspace.cwd / "run.sh").read_text() == "echo b\n"
    assert stat.S_IMODE((ctx.workspace.cwd / "run.sh").stat().st_mode) == 0o751


def test_calls_are_kept_apart_by_every_file_they_write(ctx: ToolContext) -> None:
    assert patch.key and patch.risk == "write"
    both = v4a("*** Update File: a", "*** Move to: sub/b", "*** Delete File: ./c")
    keys = patch.key(patch.parse_params({"patch": both}), ctx.workspace.cwd)
    assert keys == tuple(str(ctx.workspace.cwd / name) for name in ("a", "sub/b", "c"))
    assert patch.key(
        patch.parse_params({"path": "x/../a", "old": "", "new": ""}), ctx.workspace.cwd
    ) == (keys[0],)


TABS = "class A:\n\tdef f(self):\n\t\tif self.x:\n\t\t\treturn 1\n\t\treturn 2\n"
DEEP = "    def f(self):\n        if x:\n            y()\n        return 2\n"


@pytest.mark.parametrize(
    ("text", "old", "new", "result"),
    [
        pytest.param("a  \nb\t\nc\n", "a\nb\n", "a\nB\n", "a  \nB\nc\n", id="trailing space"),
        pytest.param("a \nb\nc\n", "a\nb\n", "\n", "\nc\n", id="a blank line instead"),
        pytest.param("a \nb\nc\n", "a\nb\n", "", "c\n", id="nothing instead"),
        pytest.param(
            DEEP,
            "def f(self):\n    if x:\n        y()\n",
            "def f(self):\n    if x:\n        y()\n        z()\n    else:\n        w()\n",
            "    def f(self):\n        if x:\n            y()\n            z()\n        else:\n"
            "            w()\n        return 2\n",
            id="written without its margin",
        ),
        pytest.param(
            DEEP,
            "            if x:\n                y()\n",
            "            if x:\n                y()\n        z()\n",
            "    def f(self):\n        if x:\n            y()\n    z()\n        return 2\n",
            id="written with too much margin",
        ),
        pytest.param(
            TABS,
            "        if self.x:\n            return 1\n",
            "        if self.x:\n            if y:\n                return 3\n"
            "            return 1\n",
            TABS.replace("\t\t\treturn 1", "\t\t\tif y:\n\t\t\t\treturn 3\n\t\t\treturn 1"),
            id="spaces for tabs",
        ),
        pytest.param(
            TABS.replace("\t", "  "),
            "\t\tif self.x:\n\t\t\treturn 1\n",
            "\t\tif self.x:\n\t\t\tif y:\n\t\t\t\treturn 3\n",
            "class A:\n  def f(self):\n    if self.x:\n      if y:\n        return 3\n"
            "    return 2\n",
            id="tabs for spaces",
        ),
        pytest.param(
            TABS.replace("\t", "  "),
            "class A:\n    def f(self):\n        if self.x:\n            return 1\n",
            "class A:\n    def f(self):\n        if self.x:\n            if y:\n"
            "                return 3\n",
            "class A:\n  def f(self):\n    if self.x:\n      if y:\n        return 3\n"
            "    return 2\n",
            id="four for two",
        ),
        pytest.param(
            "x = [1,  2]\ny = 3\n",
            "x = [1, 2]\ny = 3",
            "x = [1, 2]\ny = 4",
            "x = [1,  2]\ny = 4\n",
            id="space within a line that stays",
        ),
        pytest.param(
            "say(“hi” – now)\nb\n",
            'say("hi" - now)\nb',
            'say("hi" - now)\nc',
            "say(“hi” – now)\nc\n",
            id="quotes and dashes of a line that stays",
        ),
        pytest.param(
            "def add(first, second):\n    total = first + second\n"
            "    log(total)\n    return total\n",
            "def add(first, secnd):\n    total = first + second\n"
            "    log(total)\n    return total\n",
            "def add(first, secnd):\n    total = first + second\n    return total\n",
            "def add(first, second):\n    total = first + second\n    return total\n",
            id="a typing error in a line that stays",
        ),
        pytest.param(
            "def add(first, second):\n    total = first + second\n    # kept\n    log(total)\n"
            "    return total\n",
            "def add(first, second):\n    total = first + second\n"
            "    log(total)\n    return total\n",
            "def add(first, second):\n    total = first + second\n"
            "    log(total)\n    return -total\n",
            "def add(first, second):\n    total = first + second\n    # kept\n    log(total)\n"
            "    return -total\n",
            id="a line nobody mentioned",
        ),
        pytest.param(
            DEEP,
            "2|        if x:\n3|            y()",
            "2|        if x:\n3|            z()\n4|            y()",
            DEEP.replace("y()", "z()\n            y()"),
            id="line numbers of read_file",
        ),
        pytest.param(
            f"{DEEP}{DEEP}",
            "     7\t            y()\n",
            "            z()\n",
            f"{DEEP}{DEEP.replace('y()', 'z()')}",
            id="line numbers that say which",
        ),
        pytest.param(
            DEEP,
            " \t    def f(self):\n-        if x:\n".replace(" \t", " "),
            "     def f(self):\n+        if z:\n",
            DEEP.replace("if x", "if z"),
            id="signs of a diff",
        ),
        pytest.param(
            'say("hi")\nsay("you")\n',
            "say(“hi”)\nsay(“you”)",
            "say(“ho”)\nsay(“me”)\nsay(“all”)",
            'say("ho")\nsay("me")\nsay("all")\n',
            id="quotes that only the edit has",
        ),
        pytest.param(
            "say(“hi” – now)\nb\n",
            'say("hi" - now)',
            'say("hi" - soon)',
            "say(“hi” – soon)\nb\n",
            id="quotes of a line that changes",
        ),
        pytest.param(
            'call(one, two)["key"] = compute(first)\n',
            'call(one, two)[\\"key\\"] = compute(first)',
            'call(one, six)[\\"key\\"] = compute(first)',
            'call(one, six)["key"] = compute(first)\n',
            id="quotes that were escaped",
        ),
        pytest.param(
            "result = compute(alphabet, beta, gamma)\nb\n",
            "result = compute(alphabt, beta, gamma)",
            "result = compute(alphabt, beta, delta)",
            "result = compute(alphabet, beta, delta)\nb\n",
            id="a typing error in a line that changes",
        ),
        pytest.param(
            "from ...._models import BaseModel\n",
            "from ..._models import BaseModel",
            "from ...._models import OtherModel",
            "from ...._models import OtherModel\n",
            id="a sign too few among those that stand in a row",
        ),
        pytest.param(
            "cafe\u0301 = 1\n",
            "caf\u00e9 = 1\n",
            "caf\u00e9 = 2\n",
            "cafe\u0301 = 2\n",
            id="accents composed otherwise",
        ),
    ],
)
def test_nearly(text: str, old: str, new: str, result: str) -> None:
    edited = replace_text(text, old, new)
    assert edited.text == result
    assert edited.match_note, "it must be said that the place was not found exactly"
    for end in ("\r\n", "\r"):
        there = replace_text(text.replace("\n", end), old, new)
        assert there.text == result.replace("\n", end)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_last_line_without_an_end(end: str) -> None:
    text = f"a{end}b"
    assert replace_text(text, "b\n", "c\n").text == f"a{end}c"
    assert replace_text(text, "a\nb\n", "a\nx\nb\n").text == f"a{end}x{end}b"


@pytest.mark.parametrize(
    ("text", "old"),
    [
        pytest.param("x = foo(a)\ny = 1\n", "foo( a )", id="part of a line is no line"),
        pytest.param(
            "result = compute(alpha, beta)  # do not lose me\n",
            "result = compute(alpha,  beta)",
            id="more in the line than was known",
        ),
        pytest.param(
            "def a():\n    return load('one')\n\ndef b():\n    return load('two')\n",
            "    return load('six')\n",
            id="two that are equally near",
        ),
        pytest.param(
            "start here please\nalpha beta gamma\nunseen line\ndelta epsilon\nend it here now\n",
            "start here please\nalpha beta gamma\ndelta epsilon\nend it here now\n",
            id="a line nobody mentioned amid those that go",
        ),
        pytest.param(
            "start here please\nalpha beta gamma\nunseen\nnew\ndelta epsilon\nend it here now\n",
            "start here please\nalpha beta gamma\ndelta epsilon\nend it here now\n",
            id="lines nobody mentioned where lines would come",
        ),
        pytest.param("alpha\nbeta\ngamma\n", "something\nquite\ndifferent\n", id="nothing like it"),
        pytest.param("a = 1\na = 1\n", "7|a = 1", id="a line number that says nothing"),
        pytest.param(
            "    retry(operation, limit)\n    wait_seconds(operation, 30)\n",
            "    retry(operation, limit)\n    wait_seconds(operation, 90)\n",
            id="another word in a line that goes",
        ),
    ],
)
def test_not_near_enough(text: str, old: str) -> None:
    with pytest.raises(ToolError):
        replace_text(text, old, "new\n")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("one = 1\\ntwo = 2", "x", "real line breaks"),
        ("```\none = 1\n```", "x", "fenced"),
        ("one = &quot;1&quot;", "x", "HTML entities"),
        ("one = 1\n...\nsix = 6", "x", "leaves lines out"),
        ('two = call(\\"2\\", "of")', 'two = call(\\"3\\", "of")\nlog(\\"\\")', "do not escape"),
    ],
)
def test_what_was_copied_wrongly_is_said(old: str, new: str, words: str) -> None:
    with pytest.raises(ToolError, match=words):
        replace_text('one = 1\ntwo = call("2", "of")\nthree = 3\n', old, new)


def test_places_that_overlap_are_two() -> None:
    with pytest.raises(ToolError, match="2 times"):
        replace_text("bbb", "bb", "x")
    assert replace_text("bbbb", "bb", "x", every=True).text == "xx"


def test_every_place_of_very_many() -> None:
    text = "value = compute(1)\n" * 100_000
    edited = replace_text(text, "compute(", "calc(", every=True)
    assert edited.count == 100_000 and edited.text == text.replace("compute(", "calc(")


def test_ambiguous_whatever_the_white_space() -> None:
    text = "  a = 1\n  b\n    a = 1\n    b\n"
    with pytest.raises(ToolError, match="2 times"):
        replace_text(text, "a = 1\nb\n", "a = 2\nb\n")
    every = replace_text(text, "a = 1\nb\n", "a = 2\nb\n", every=True)
    assert every.text == "  a = 2\n  b\n    a = 2\n    b\n"


def test_a_large_file_is_searched_in_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(0.0, 0.4)
    monkeypatch.setattr(locate, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    rows = [f"value_{n} = compute({n}, {n * 7})" for n in range(100_000)]
    with pytest.raises(ToolError):
        replace_text("\n".join(rows), "nothing of this kind = 1\nnor = this", "x")
    assert next(clock) < 2, "the search went on after its time was over"
