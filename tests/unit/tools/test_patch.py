"""patch with a patch: several files, all or none."""

from __future__ import annotations

import os
import stat
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes.core.errors import ToolError
from hermes.core.tool import ToolContext
from hermes.tools._edit import atomic_write as _writing
from hermes.tools._edit.v4a import apply_hunks, parse_patch
from tests.unit.tools.edits import refused, run, v4a


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
    real = _edits.replace_text

    def meanwhile(*args: Any, **named: Any) -> Any:
        (ctx.workspace.cwd / "f").write_text("theirs, longer\n")
        return real(*args, **named)

    monkeypatch.setattr(_edits, "replace_text", meanwhile)
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
        parse_patch(text)


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
    edited = apply_hunks(TWICE, parse_patch(v4a("*** Update File: f", *rows))[0])
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
    assert apply_hunks(text, parse_patch(v4a("*** Update File: f", *rows))[0]).text == result


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
        changes = parse_patch("\n".join(rows))
        for change in changes:
            apply_hunks("a\nb\n", change)
    except ToolError as error:
        assert str(error)


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
