"""patch: what it finds, what it leaves alone, byte for byte."""

from __future__ import annotations

import codecs
import difflib
import os
import random
import re
import stat
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes.core.errors import ToolError
from hermes.core.tool import ToolContext, ToolResult, Verdict
from hermes.tools._edit import atomic_write as _writing
from hermes.tools._edit.replace import replace
from hermes.tools._edit.text_file import Lines, decode
from hermes.tools._edit.v4a import parse, update
from hermes.tools.patch import patch
from tests.kit.tools import tool_context


async def nobody(*_: Any) -> Verdict:
    return Verdict(allowed=False)


@pytest.fixture
def ctx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ToolContext:
    home = tmp_path / "user" / ".hermes"
    home.mkdir(parents=True)
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    return tool_context(tmp_path / "work", home)


async def run(ctx: ToolContext, **args: Any) -> ToolResult:
    result = await patch.run(patch.parse_params(args), ctx)
    assert isinstance(result, ToolResult)
    return result


async def refused(ctx: ToolContext, **args: Any) -> str:
    before = snapshot(ctx.workspace.cwd)
    with pytest.raises(ToolError) as error:
        await run(ctx, **args)
    assert snapshot(ctx.workspace.cwd) == before, "an edit that failed changed something"
    return str(error.value)


def snapshot(folder: Path) -> dict[str, Any]:
    return {
        str(p.relative_to(folder)): (p.read_bytes(), p.stat().st_mode) if p.is_file() else None
        for p in folder.rglob("*")
    }


def v4a(*rows: str) -> str:
    return "\n".join(["*** Begin Patch", *rows, "*** End Patch"])


# -- replacing -----------------------------------------------------------------------------


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


# -- finding what is nearly there ----------------------------------------------------------

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
    edited = replace(text, old, new)
    assert edited.text == result
    assert edited.how, "it must be said that the place was not found exactly"
    for end in ("\r\n", "\r"):
        there = replace(text.replace("\n", end), old, new)
        assert there.text == result.replace("\n", end)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_last_line_without_an_end(end: str) -> None:
    text = f"a{end}b"
    assert replace(text, "b\n", "c\n").text == f"a{end}c"
    assert replace(text, "a\nb\n", "a\nx\nb\n").text == f"a{end}x{end}b"


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
        replace(text, old, "new\n")


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
        replace('one = 1\ntwo = call("2", "of")\nthree = 3\n', old, new)


def test_places_that_overlap_are_two() -> None:
    with pytest.raises(ToolError, match="2 times"):
        replace("bbb", "bb", "x")
    assert replace("bbbb", "bb", "x", every=True).text == "xx"


def test_every_place_of_very_many() -> None:
    text = "value = compute(1)\n" * 100_000
    began = time.monotonic()
    edited = replace(text, "compute(", "calc(", every=True)
    assert edited.count == 100_000 and edited.text == text.replace("compute(", "calc(")
    assert time.monotonic() - began < 10


def test_ambiguous_whatever_the_white_space() -> None:
    text = "  a = 1\n  b\n    a = 1\n    b\n"
    with pytest.raises(ToolError, match="2 times"):
        replace(text, "a = 1\nb\n", "a = 2\nb\n")
    every = replace(text, "a = 1\nb\n", "a = 2\nb\n", every=True)
    assert every.text == "  a = 2\n  b\n    a = 2\n    b\n"


def test_a_large_file_is_searched_in_bounded_time() -> None:
    rows = [f"value_{n} = compute({n}, {n * 7})" for n in range(100_000)]
    began = time.monotonic()
    with pytest.raises(ToolError):
        replace("\n".join(rows), "nothing of this kind = 1\nnor = this", "x")
    assert time.monotonic() - began < 10


# -- bytes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "encode",
    [
        pytest.param(lambda t: t.encode(), id="utf-8"),
        pytest.param(lambda t: t.encode("utf-8-sig"), id="utf-8 with mark"),
        pytest.param(lambda t: codecs.BOM_UTF16_LE + t.encode("utf-16-le"), id="utf-16-le"),
        pytest.param(lambda t: codecs.BOM_UTF16_BE + t.encode("utf-16-be"), id="utf-16-be"),
        pytest.param(lambda t: t.encode("latin-1"), id="latin-1"),
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
async def test_encodings_and_line_ends_stay(ctx: ToolContext, encode: Any, end: str) -> None:
    text = "grün\n\tb\\n \\\\ c\x85d\x0ce\n\nlast"
    (ctx.workspace.cwd / "f").write_bytes(encode(text.replace("\n", end)))
    await run(ctx, path="f", old="\n\n", new="\nöne\ntwo\n")
    wanted = text.replace("\n\n", "\nöne\ntwo\n").replace("\n", end)
    assert (ctx.workspace.cwd / "f").read_bytes() == encode(wanted)
    await run(ctx, patch=v4a("*** Update File: f", " öne", "-two", "+2"))
    assert (ctx.workspace.cwd / "f").read_bytes() == encode(wanted.replace("two", "2"))


async def test_what_an_encoding_cannot_hold(ctx: ToolContext) -> None:
    (ctx.workspace.cwd / "f").write_bytes("grün".encode("latin-1"))
    assert "Latin-1, which cannot hold" in await refused(ctx, path="f", old="g", new="→")


async def test_unicode_is_not_normalised(ctx: ToolContext) -> None:
    composed, apart = "\u00e9", "e\u0301"
    (ctx.workspace.cwd / "f").write_text(f"{composed} {apart} \u212b\n")
    await run(ctx, path="f", old=f" {apart}", new=f" {apart}{apart}")
    assert (ctx.workspace.cwd / "f").read_text() == f"{composed} {apart}{apart} \u212b\n"


def test_mixed_line_ends_stay_where_nothing_changes() -> None:
    text = "a\r\nb\nc\r\nd\n"
    assert replace(text, "b\nc", "b\nC").text == "a\r\nb\nC\r\nd\n"
    assert replace(text, "b\nc\nd", "x").text == "a\r\nx\n"
    assert replace(text, "c\r\n", "c\n").text == "a\r\nb\nc\nd\n"
    assert update(text, parse(v4a("*** Update File: f", " b", "-c", "+C"))[0]).text == (
        "a\r\nb\nC\r\nd\n"
    )


PIECES = [
    "a",
    "b",
    "foo(x)",
    "\t",
    "    ",
    " ",
    "é",
    "e\u0301",
    "漢",
    "🙂",
    "\\n",
    "\\",
    "$1",
    "\\g<0>",
]
PIECES += ["\u2028", "\x85", "\x0b", "“", "-", "}", "return", "\u200b", "\ufeff", "%s", "\x1b[0m"]


def a_line(rng: random.Random) -> str:
    return "".join(rng.choices(PIECES, k=rng.randrange(6)))


def a_text(rng: random.Random, end: str) -> str:
    rows = [a_line(rng) for _ in range(rng.randrange(1, 12))]
    return end.join(rows) + end * rng.randrange(2)


def encoded(text: str, kind: int) -> bytes:
    marks = (b"", codecs.BOM_UTF8, codecs.BOM_UTF16_LE)
    return marks[kind] + text.encode(("utf-8", "utf-8", "utf-16-le")[kind])


def edit_bytes(data: bytes, old: str, new: str) -> bytes:
    text, encoding = decode(data, Path("f"))
    return encoding.encode(replace(text, old, new).text, Path("f"))


def test_ten_thousand_edits_and_their_reverse(capsys: pytest.CaptureFixture[str]) -> None:
    """A unique span of a random file is replaced as a model would (line feeds only): the result
    is exactly that, and the reverse edit gives the very bytes back."""
    rng = random.Random(20_240_501)
    deadline = time.monotonic() + 25
    done = corrupt = 0
    while done < 10_000 and time.monotonic() < deadline:
        end = rng.choice(["\n", "\r\n", "\r"])
        text, kind = a_text(rng, end), rng.randrange(3)
        if not 0 <= (span := _span(rng, text, end))[0] < span[1]:
            continue
        start, stop = span
        old, new = text[start:stop], end.join(a_line(rng) for _ in range(rng.randrange(1, 4)))
        result = text[:start] + new + text[stop:]
        shown = text.replace(end, "\n")
        if "\ufeff" in (text[:1], result[:1]):
            continue  # at the start of a file that is a mark
        if old == new or not (once(text, old) and once(shown, old.replace(end, "\n"))):
            continue
        data = encoded(text, kind)
        has_end = Lines.of(text).ends
        given = [t.replace(end, "\n") if has_end else t for t in (old, new)]
        forward = edit_bytes(data, *given)
        corrupt += forward != encoded(result, kind)
        if new and once(result, new) and once(result.replace(end, "\n"), new.replace(end, "\n")):
            corrupt += edit_bytes(forward, new, old) != data
        done += 1
    with capsys.disabled():
        print(f"\n[patch: {done} generated replacements, {corrupt} corrupted]", end=" ")
    assert not corrupt
    assert done == 10_000


def once(text: str, piece: str) -> bool:
    at = text.find(piece)
    return at >= 0 and text.find(piece, at + 1) < 0


def _span(rng: random.Random, text: str, end: str) -> tuple[int, int]:
    """Two places of a text, neither inside a line end."""
    places = sorted((rng.randrange(len(text) + 1), rng.randrange(len(text) + 1)))
    inside = [end == "\r\n" and text[p - 1 : p + 1] == "\r\n" for p in places]
    return (-1, -1) if any(inside) else (places[0], places[1])


def hunk(rng: random.Random, rows: list[str], fresh: list[str]) -> tuple[list[str], list[str]]:
    """A patch of the whole file that replaces random lines, and the lines it makes."""
    script: list[str] = []
    made: list[str] = []
    for row in rows:
        choice = rng.randrange(4)
        if choice == 0 and fresh:
            new = fresh.pop()
            script.append(f"+{new}")
            made.append(new)
        if choice == 1:
            script.append(f"-{row}")
        else:
            script.append(f" {row}")
            made.append(row)
    return script, made


def reverse(script: list[str]) -> list[str]:
    swap = {"+": "-", "-": "+"}
    return [swap.get(row[0], row[0]) + row[1:] for row in script]


def test_patches_and_their_reverse(capsys: pytest.CaptureFixture[str]) -> None:
    rng = random.Random(77)
    done = 0
    deadline = time.monotonic() + 25
    while done < 2_500 and time.monotonic() < deadline:
        end = rng.choice(["\n", "\r\n", "\r"])
        rows = [a_line(rng) for _ in range(rng.randrange(1, 10))]
        finished = rng.random() < 0.5
        script, made = hunk(rng, rows, [a_line(rng) for _ in range(3)])
        if made == rows or not (rows[-1] or finished) or (made and not (made[-1] or finished)):
            continue  # an unfinished empty line is no line
        text = end.join(rows) + (end if finished else "")
        wanted = end.join(made) + (end if finished and made else "")
        if end not in text or (made and end not in wanted):
            continue  # which line end a text has must be visible in it
        forth = update(text, parse(v4a("*** Update File: f", *script))[0]).text
        assert forth == wanted, (text, script)
        back = [*reverse(script), *([] if finished or made else ["\\ No newline at end of file"])]
        patched = v4a("*** Update File: f", *back)
        if not made and end == "\r\n":
            patched = patched.replace("\n", "\r\n")
        elif not made and end == "\r":
            continue
        assert update(forth, parse(patched)[0]).text == text, (forth, back)
        done += 1
    with capsys.disabled():
        print(f"\n[patch: {done} generated V4A patches]", end=" ")
    assert done == 2_500


@settings(max_examples=150, deadline=None)
@given(st.text(st.sampled_from("ab \t\n\r\\é"), max_size=30))
def test_lines_join_to_what_they_were_cut_from(text: str) -> None:
    lines = Lines.of(text)
    assert lines.join() == text
    assert lines.plain.count("\n") == len(lines.ends)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.sampled_from(["a", "  a", "b ", "\tc", "", "a b", "a  b", "x = f(y)"]), max_size=12
    ),
    st.lists(
        st.sampled_from(["a", "a ", " b", "c", "", "a b", "x = f(z)"]), min_size=1, max_size=4
    ),
    st.lists(st.sampled_from(["N1", "  N2", "a", "b"]), max_size=3),
)
def test_whatever_is_found_only_its_lines_change(
    rows: list[str], old: list[str], new: list[str]
) -> None:
    """Lines before and after the place, and lines that stay, are the file's own."""
    text = "".join(f"{row}\n" for row in rows)
    try:
        edited = replace(text, "".join(f"{r}\n" for r in old), "".join(f"{r}\n" for r in new))
    except ToolError:
        return
    if not edited.how:
        return  # exactly what was said
    result = edited.text.split("\n")
    strip = [row.strip() for row in new]
    for row in result[:-1]:
        assert row in rows or row.strip() in strip or row.strip() in [o.strip() for o in old]
    head = next((i for i, (x, y) in enumerate(zip(rows, result, strict=False)) if x != y), 0)
    assert len(result) - 1 - len(rows) in range(-len(old) - 2, len(new) + 1)
    assert rows[:head] == result[:head]


def careless(rng: random.Random, rows: list[str]) -> list[str]:
    """A block as somebody writes it down who did not look closely."""
    margin = min((len(row) - len(row.lstrip()) for row in rows if row.strip()), default=0)
    match rng.randrange(4):
        case 0:
            return [row[margin:] for row in rows]
        case 1:
            return [re.sub(r"^(    )+", lambda m: "\t" * (len(m[0]) // 4), row) for row in rows]
        case 2:
            at = rng.randrange(len(rows))
            spot = rng.randrange(len(rows[at]) + 1)
            typed = rows[at][:spot] + rng.choice("abcxyz") + rows[at][spot + 1 :]
            return [*rows[:at], typed, *rows[at + 1 :]]
        case _:
            gone = rng.randrange(len(rows))
            return [row for at, row in enumerate(rows) if at != gone or not at]


def test_a_careless_edit_is_made_where_it_was_meant_or_not_at_all(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One line of a block of real code is changed; the block is given with other indentation, a
    typing error or a line missing. Every other line of the file must stay as it is."""
    rng = random.Random(11)
    texts = [Path(module.__file__ or "").read_text() for module in (difflib, random, codecs)]
    made = refusals = 0
    for _ in range(250):
        rows = rng.choice(texts).split("\n")
        size = rng.randrange(2, 12)
        at = rng.randrange(len(rows) - size)
        block = rows[at : at + size]
        old = careless(rng, block)
        if old == block or not (old[0].strip() and old[-1].strip()):
            continue
        spot = rng.randrange(len(old))
        line = old[spot]
        changed = [
            *old[:spot],
            f"{line[: len(line) - len(line.lstrip())]}CHANGED",
            *old[spot + 1 :],
        ]
        try:
            text = replace("\n".join(rows), "\n".join(old), "\n".join(changed)).text
        except ToolError:
            refusals += 1
            continue
        result = text.split("\n")
        differ = [n for n, (x, y) in enumerate(zip(rows, result, strict=True)) if x != y]
        assert len(differ) == 1 and at <= differ[0] < at + size
        assert result[differ[0]].strip() == "CHANGED"
        if rows[differ[0]].strip():
            assert result[differ[0]].index("C") == len(rows[differ[0]]) - len(
                rows[differ[0]].lstrip()
            )
        made += 1
    with capsys.disabled():
        print(f"\n[patch: {made} careless edits made, {refusals} refused, 0 wrong]", end=" ")
    assert made > 2 * refusals


# -- patches -------------------------------------------------------------------------------


async def test_several_files_at_once(ctx: ToolContext) -> None:
    (ctx.workspace.cwd / "a.py").write_text("def f():\n    return 1\n\n\ndef g():\n    return 1\n")
    (ctx.workspace.cwd / "b.txt").write_text("gone\n")
    (ctx.workspace.cwd / "c.txt").write_text("old\nname\n")
    (ctx.workspace.cwd / "c.txt").chmod(0o700)
    (ctx.workspace.cwd / "d.txt").write_text("moves\n")
    result = await run(
        ctx,
        patch=v4a(
            "*** Update File: a.py",
            "@@ def g():",
            "-    return 1",
            "+    return 2",
            "*** Add File: new/e.txt",
            "+one",
            "+",
            "+three",
            "*** Delete File: b.txt",
            "*** Update File: c.txt",
            "*** Move to: moved/c2.txt",
            "@@",
            " old",
            "-name",
            "+new name",
            "*** Move File: d.txt -> d2.txt",
        ),
    )
    names = {
        str(p.relative_to(ctx.workspace.cwd)): p.read_text()
        for p in ctx.workspace.cwd.rglob("*")
        if p.is_file()
    }
    assert names == {
        "a.py": "def f():\n    return 1\n\n\ndef g():\n    return 2\n",
        "new/e.txt": "one\n\nthree\n",
        "moved/c2.txt": "old\nnew name\n",
        "d2.txt": "moves\n",
    }
    assert stat.S_IMODE((ctx.workspace.cwd / "moved/c2.txt").stat().st_mode) == 0o700
    content = str(result.content)
    for words in ("Patched a.py (+1 -1)", "Created new/e.txt (+3 -0)", "Deleted b.txt (+0 -1)"):
        assert words in content
    assert "Moved c.txt to moved/c2.txt" in content and "-gone" in content


async def test_a_patch_that_fails_anywhere_changes_nothing(ctx: ToolContext) -> None:
    (ctx.workspace.cwd / "a").write_text("one\n")
    (ctx.workspace.cwd / "b").write_text("two\n")
    said = await refused(
        ctx,
        patch=v4a(
            "*** Update File: a",
            "-one",
            "+1",
            "*** Add File: x/y",
            "+new",
            "*** Update File: b",
            "-something else altogether",
            "+2",
        ),
    )
    assert (
        f"{ctx.workspace.cwd / 'b'}: Hunk 1 of 1" in said and "1|two" in said
    ) or "nor anything" in said


@pytest.mark.parametrize("fail_at", [1, 2, 3, 4])
async def test_a_disk_that_fails_midway_is_put_back(
    ctx: ToolContext, monkeypatch: pytest.MonkeyPatch, fail_at: int
) -> None:
    for name in "abc":
        (ctx.workspace.cwd / name).write_text(f"{name}\n")
    (ctx.workspace.cwd / "b").chmod(0o741)
    calls = 0
    real = {"rename": os.rename, "unlink": os.unlink}

    def failing(kind: str) -> Any:
        def act(*args: Any, **named: Any) -> None:
            nonlocal calls
            counts = kind == "rename" or not str(args[0]).endswith(".tmp")
            calls += counts
            if counts and calls == fail_at:
                raise OSError(5, "Input/output error")
            real[kind](*args, **named)

        return act

    for kind in real:
        monkeypatch.setattr(_writing.os, kind, failing(kind))
    said = await refused(
        ctx,
        patch=v4a(
            "*** Update File: a",
            "-a",
            "+A",
            "*** Add File: n/new",
            "+n",
            "*** Update File: b",
            "-b",
            "+B",
            "*** Delete File: c",
        ),
    )
    assert "Input/output error. Nothing was changed" in said


async def test_somebody_else_writes_meanwhile(
    ctx: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hermes.tools._edit import file_changes as _edits

    (ctx.workspace.cwd / "f").write_text("mine\n")
    real = _edits.replace

    def meanwhile(*args: Any, **named: Any) -> Any:
        (ctx.workspace.cwd / "f").write_text("theirs, longer\n")
        return real(*args, **named)

    monkeypatch.setattr(_edits, "replace", meanwhile)
    with pytest.raises(ToolError, match="somebody else"):
        await run(ctx, path="f", old="mine", new="yours")
    assert (ctx.workspace.cwd / "f").read_text() == "theirs, longer\n"
    assert [p.name for p in ctx.workspace.cwd.iterdir()] == ["f"]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (["*** Update File: f", "-one"], "Nothing was changed"),
        (["*** Add File: f", "+x"], "exists already"),
        (["*** Add File: new", "x"], "begin with +"),
        (["*** Delete File: gone"], "does not exist"),
        (["*** Delete File: link"], "is a link"),
        (["*** Update File: f"], "changes nothing"),
        (["*** Update File: f", "+x"], "does not say where"),
        (["*** Update File: f", "@@ nowhere", "+x"], "was not found"),
        (["*** Update File: f", "-dup", "+x"], "2 times (lines 2, 4)"),
        (["*** Update File: f", "what"], "neither a space"),
        (["-one"], "no file header"),
        ([], "names no file"),
        (["*** Move File: f"], "OLD -> NEW"),
        (["*** Move File: f -> g"], "exists already"),
        (["*** Update File: f", " first", "-dup", "@@", " first", "-dup"], "same lines"),
        (["*** Add File: ~/.ssh/authorized_keys", "+x"], "Denied"),
        (["*** Delete File: ~/.hermes/config.yaml"], "Denied"),
        (["*** Move File: f -> .git/hooks/pre-commit"], "Denied"),
    ],
)
async def test_patches_that_cannot_be_applied(
    ctx: ToolContext, rows: list[str], words: str
) -> None:
    (ctx.workspace.cwd / "f").write_text("first\ndup\nmid\ndup\nlast\n")
    (ctx.workspace.cwd / "g").write_text("")
    (ctx.workspace.cwd / "link").symlink_to("f")
    (ctx.workspace.home / "config.yaml").write_text("x")
    if rows == ["*** Update File: f", "-one"]:
        rows = ["*** Update File: f", "-one", "-two"]
    assert words in await refused(ctx, patch=v4a(*rows))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("*** Begin Patch\n*** Update File: f\n-a\n+b", "End Patch"),
        ("-a\n+b", "no \\*\\*\\* Begin Patch"),
        ("--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-a", "Delete File"),
        ("--- a/f\n+++ b/g\n@@ -1 +1 @@\n-a\n+b", "Move to: g"),
    ],
)
def test_what_is_no_patch(text: str, words: str) -> None:
    with pytest.raises(ToolError, match=words):
        parse(text)


_F = "*** Update File: f\n a\n-b\n+B"
_B = "@@ -1,9 +1,9 @@\n a\n-b\n+B"
_NAMES = "--- a/f\t1970\n+++ b/f\t1970\n"
_NEW = "--- /dev/null\n+++ b/n/g\n@@ -0,0 +1 @@\n+x\n"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"```\n{v4a(_F)}\n```\n", id="fenced"),
        pytest.param(f"{_F}\n*** End Patch", id="not begun"),
        pytest.param(v4a(_F.replace("Update File:", "update file")), id="small letters"),
        pytest.param(f"{_F}\n*** End Patch".replace("\n", "\r\n"), id="CRLF"),
        pytest.param("  " + v4a(_F).replace("\n", "\n  "), id="indented"),
        pytest.param(f"{v4a(_F[:-3])}\n\n{v4a(_F[:-5] + _F[-2:])}", id="two in one"),
        pytest.param(v4a(f"*** Update File: `f`\n{_NAMES}{_B}"), id="names of a unified diff"),
        pytest.param(f"diff --git a/f b/f\nindex 1..2 100644\n{_NAMES}{_B}", id="of git"),
        pytest.param(f"--- f\n+++ f\n{_B}\n{_NEW}", id="unified"),
    ],
)
async def test_a_patch_in_another_dress(ctx: ToolContext, text: str) -> None:
    (ctx.workspace.cwd / "f").write_text("a\nb\nc\n")
    await run(ctx, patch=text)
    assert (ctx.workspace.cwd / "f").read_text() == "a\nB\nc\n"
    if "/dev/null" in text:
        assert (ctx.workspace.cwd / "n/g").read_text() == "x\n"


TWICE = "def f():\n    x = 1\n    return x\n\ndef g():\n    x = 1\n    return x\n"


@pytest.mark.parametrize(
    ("rows", "at"),
    [
        (["@@ def g():", "-    x = 1", "+    x = 2"], 5),
        (["@@ def f():", "-    x = 1", "+    x = 2"], 1),
        (["@@ -2,1 +2,1 @@", "-    x = 1", "+    x = 2"], 1),
        (["@@ -6 +6 @@", "-    x = 1", "+    x = 2"], 5),
        ([" def g():", "-    x = 1", "+    x = 2"], 5),
        (["-    x = 1", "+    x = 2", "     return x", "", " def g():"], 1),
        (["-    x = 1", "+    x = 2", "     return x", "*** End of File"], 5),
        (["@@ def g():", "@@ x = 1", "-    x = 1", "+    x = 2"], 5),
    ],
)
def test_the_place_that_is_meant(rows: list[str], at: int) -> None:
    edited = update(TWICE, parse(v4a("*** Update File: f", *rows))[0])
    wanted = TWICE.split("\n")
    wanted[at] = "    x = 2"
    assert edited.text == "\n".join(wanted)


@pytest.mark.parametrize(
    ("text", "rows", "result"),
    [
        ("a\nb\n", ["@@ a", "+x"], "a\nx\nb\n"),
        ("a\nb", ["@@ b", "+x"], "a\nb\nx"),
        ("a\nb\n", ["+x", "*** End of File"], "a\nb\nx\n"),
        ("", ["+x", "+y"], "x\ny\n"),
        ("", ["+x", "\\ No newline at end of file"], "x"),
        ("a\nb", ["-b", "\\ No newline at end of file", "+b"], "a\nb\n"),
        ("a\nb\n", ["-b", "+b", "\\ No newline at end of file"], "a\nb"),
        ("a\n\nb\n", [" a", "", "-b", "+c", "", ""], "a\n\nc\n"),
        ("a\nb\nc\nd\n", ["-d", "+D", "@@", "-a", "+A"], "A\nb\nc\nD\n"),
        ("x\na\nx\na\nx\n", [" x", "+1", " a", " x", "+2", " a"], "x\n1\na\nx\n2\na\nx\n"),
        ("\ta\n\tb\n", [" a", "-b", "+c", "+  d"], "\ta\n\tc\n\t  d\n"),
    ],
)
def test_hunks(text: str, rows: list[str], result: str) -> None:
    assert update(text, parse(v4a("*** Update File: f", *rows))[0]).text == result


async def test_one_file_in_several_steps(ctx: ToolContext) -> None:
    await run(
        ctx,
        patch=v4a(
            "*** Add File: a",
            "+1",
            "+2",
            "*** Update File: a",
            "-2",
            "+3",
            "*** Move File: a -> b",
            "*** Update File: b",
            " 3",
            "+4",
        ),
    )
    assert {p.name: p.read_text() for p in ctx.workspace.cwd.iterdir()} == {"b": "1\n3\n4\n"}
    said = await refused(ctx, patch=v4a("*** Add File: c", "+1", "*** Delete File: c"))
    assert "as it is" in said


async def test_a_patch_in_a_fence_with_its_own_line_ends(ctx: ToolContext) -> None:
    text = "```\r\n*** Begin Patch\r\n*** Add File: f\r\n+a\r\n+b\r\n*** End Patch\r\n```"
    await run(ctx, patch=text)
    assert (ctx.workspace.cwd / "f").read_bytes() == b"a\r\nb\r\n"


@settings(max_examples=250, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            "*** Begin Patch|*** End Patch|*** Update File: f|*** Add File: g|@@|@@ a||x|\r|- a|"
            "*** Delete File: f|*** Move to: h|*** End of File| a|-a|+b|@@ -1,2 +1,2 @@|"
            "*** Update File:|\\ No newline at end of file".split("|")
        ),
        max_size=14,
    )
)
def test_any_patch_is_understood_or_refused(rows: list[str]) -> None:
    try:
        changes = parse("\n".join(rows))
        for change in changes:
            update("a\nb\n", change)
    except ToolError as error:
        assert str(error)


# -- what is told --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("f.py", "x = 1\n", "x = (\n"),
        ("f.json", '{"x": 1}', '{"x": }'),
        ("f.toml", "x = 1\n", "x = \n"),
        ("f.yaml", "x: 1\n", "x: [1\n"),
    ],
)
async def test_broken_syntax_is_a_warning(ctx: ToolContext, name: str, good: str, bad: str) -> None:
    (ctx.workspace.cwd / name).write_text(good)
    result = await run(ctx, path=name, old=good, new=bad)
    assert "[warning: the syntax is wrong" in str(result.content) and not result.error
    assert "before" not in str(result.content).partition("\n---")[0]
    assert (ctx.workspace.cwd / name).read_text() == bad
    again = await run(ctx, path=name, old="x", new="y")
    assert "wrong before this edit too" in str(again.content)
    result = await run(ctx, path=name, old=bad.replace("x", "y"), new=good)
    assert "warning" not in str(result.content)


async def test_a_long_diff_is_cut(ctx: ToolContext) -> None:
    (ctx.workspace.cwd / "f").write_text("".join(f"{n}\n" for n in range(5000)))
    result = await run(ctx, path="f", old="1", new="one", all=True)
    assert len(str(result.content)) < 14_000
    assert "more lines of this diff]" in str(result.content)
    assert (ctx.workspace.cwd / "f").read_text().count("one") > 1000


async def test_a_change_of_the_last_line_end_is_seen(ctx: ToolContext) -> None:
    (ctx.workspace.cwd / "f").write_text("a\nb")
    result = await run(ctx, path="f", old="b", new="b\n")
    assert str(result.display).endswith("-b\n\\ No newline at end of file\n+b")
