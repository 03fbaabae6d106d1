"""search_files: ripgrep and what stands in for it find the same, and never what is protected."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes.core.errors import ToolError
from hermes.core.tool import ToolContext, ToolResult
from hermes.tools._files import ripgrep as _search
from hermes.tools._files.globs import IgnoreRules, compile_glob
from hermes.tools._files.ripgrep import find_ripgrep
from hermes.tools._files.walk import walk_files
from hermes.tools.search_files import MAX_CHARS, search_files
from tests.kit.tools import in_workspace, tool_context
from tests.unit.tools.calls import refusal

PATH = "/usr/local/bin:/usr/bin:/bin"


@pytest.fixture(params=["ripgrep", "own"])
def ctx(request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ToolContext:
    home = tmp_path / "user" / ".hermes"
    home.mkdir(parents=True)
    (tmp_path / "user" / "work").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    env = {"PATH": PATH if request.param == "ripgrep" else "/nowhere"}
    made = tool_context(tmp_path / "user" / "work", home, env=env)
    if request.param == "ripgrep" and not find_ripgrep(made.workspace):
        pytest.skip("ripgrep is not installed")
    return made


async def search(ctx: ToolContext, pattern: str, **args: Any) -> str:
    result = await search_files.run(search_files.parse_params({"pattern": pattern, **args}), ctx)
    assert isinstance(result, ToolResult) and isinstance(result.content, str)
    return result.content


async def rows(ctx: ToolContext, pattern: str, **args: Any) -> list[str]:
    return [row for row in (await search(ctx, pattern, **args)).split("\n") if row[:1] != "["]


async def refused(ctx: ToolContext, pattern: str, **args: Any) -> str:
    with pytest.raises(ToolError) as error:
        await search(ctx, pattern, **args)
    return str(error.value)


def make(root: Path, files: dict[str, str | bytes]) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


# -- contents ------------------------------------------------------------------------------


async def test_lines_come_by_file_and_number(ctx: ToolContext) -> None:
    make(
        ctx.workspace.cwd,
        {
            "b.py": "one\ndef two():\n    pass\ndef three():",
            "a/x.py": "def first():\r\n",
            "a.txt": "undefined\n",
            ".hidden/h.py": "def h():\n",
            "B.py": "def upper():\n",
        },
    )
    assert await rows(ctx, r"def \w+") == [
        ".hidden/h.py:1: def h():",
        "B.py:1: def upper():",
        "a/x.py:1: def first():",
        "b.py:2: def two():",
        "b.py:4: def three():",
    ]
    assert await rows(ctx, "^def", path="a") == ["a/x.py:1: def first():"]
    assert await rows(ctx, r"\(\):$", path="a/x.py") == ["a/x.py:1: def first():"]
    assert await rows(ctx, "(?i)DEF", glob="*.txt") == ["a.txt:1: undefined"]
    assert await rows(ctx, "def", glob="a/**/*.py") == ["a/x.py:1: def first():"]
    assert await rows(ctx, "def", glob="!*.py") == ["a.txt:1: undefined"]
    assert await rows(ctx, "def", glob="*.{txt,md}") == ["a.txt:1: undefined"]
    assert await rows(ctx, "def", path=str(ctx.workspace.cwd.parent), glob="a.txt") == [
        "a.txt:1: undefined"
    ]


async def test_lines_around(ctx: ToolContext) -> None:
    make(ctx.workspace.cwd, {"f": "".join(f"{n}\n" for n in range(1, 21)), "g": "7\n"})
    assert await rows(ctx, "^(7|8|15)$", context=1) == [
        "f-6- 6",
        "f:7: 7",
        "f:8: 8",
        "f-9- 9",
        "--",
        "f-14- 14",
        "f:15: 15",
        "f-16- 16",
        "--",
        "g:1: 7",
    ]


async def test_there_is_a_limit_and_it_is_said(ctx: ToolContext) -> None:
    make(ctx.workspace.cwd, {f"f{n:02}": "x\nx\nx\n" for n in range(50)})
    content = (await search(ctx, "x", limit=4)).split("\n")
    assert content[:-1] == ["f00:1: x", "f00:2: x", "f00:3: x", "f01:1: x"]
    assert content[-1].startswith("[the first 4 matches")
    content = (await search(ctx, "x")).split("\n")
    assert len(content) == 101
    whole = await search(ctx, "x", limit=150)
    assert "[" not in whole and whole.count("\n") == 149


async def test_long_lines_are_cut_around_the_match(ctx: ToolContext) -> None:
    make(
        ctx.workspace.cwd,
        {"f": "é" * 5000 + "needle" + "y" * 5000 + "\n" + "needle" + "z" * 900 + "\n"},
    )
    first, second = await rows(ctx, "needle")
    assert "needle" in first and len(first) < 320 and first.startswith("f:1: …é")
    assert second.startswith("f:2: needlezz") and second.endswith("z…")


async def test_an_answer_is_bounded(ctx: ToolContext) -> None:
    make(ctx.workspace.cwd, {"f": ("x" * 250 + "\n") * 5000})
    content = await search(ctx, "x", limit=1000)
    assert len(content) < MAX_CHARS + 1000
    assert "narrow the search" in content


async def test_what_is_not_searched(ctx: ToolContext) -> None:
    make(
        ctx.workspace.cwd,
        {
            ".git/config": "needle",
            ".gitignore": "# comment\nignored/\n*.log\n!keep.log\n/top.txt\n\\#odd\ndeep/*/x\n",
            "ignored/a": "needle",
            "sub/ignored/a": "needle",
            "b.log": "needle",
            "keep.log": "needle",
            "top.txt": "needle",
            "sub/top.txt": "needle",
            "#odd": "needle",
            "deep/q/x": "needle",
            "deep/y/x2": "needle",
            "sub/.gitignore": "own\n",
            "sub/own": "needle",
            "own": "needle",
            "binary": b"needle\n\0",
            "large": b"needle" + b"\n" * _search.MAX_FILE_BYTES,
        },
    )
    (ctx.workspace.cwd / "link").symlink_to("own")
    (ctx.workspace.cwd / "folder").symlink_to("sub")
    os.mkfifo(ctx.workspace.cwd / "pipe")
    found = ["deep/y/x2", "keep.log", "own", "sub/top.txt"]
    assert await rows(ctx, "needle") == [f"{name}:1: needle" for name in found]
    assert await rows(ctx, "needle", glob="*.log") == ["keep.log:1: needle"]
    assert await rows(ctx, "needle", path="sub") == ["sub/top.txt:1: needle"]
    assert await rows(ctx, "needle", path="ignored") == ["ignored/a:1: needle"]
    assert await rows(ctx, "needle", path="b.log") == ["b.log:1: needle"]
    nothing = await search(ctx, "needle", path="binary")
    assert nothing.startswith("[No line matches 'needle' in") and "ignored by git" in nothing
    assert "larger than 10 MB" in await refused(ctx, "needle", path="large")


async def test_encodings(ctx: ToolContext) -> None:
    make(
        ctx.workspace.cwd,
        {
            "latin": "grün find\n".encode("latin-1"),
            "mark": "find me\n".encode("utf-8-sig"),
            "utf16": "über find\n".encode("utf-16"),
        },
    )
    assert await rows(ctx, "find") == [
        "latin:1: grün find",
        "mark:1: find me",
        "utf16:1: über find",
    ]
    assert await rows(ctx, "^find") == ["mark:1: find me"]


async def test_names_of_every_kind(ctx: ToolContext) -> None:
    names = ["with space", "-dash", "new\nline", "ünï", "{brace}", "[x]", "a:1: b", "--json"]
    make(ctx.workspace.cwd, dict.fromkeys(names, "needle"))
    found = await search(ctx, "needle")
    assert all(f"{name}:1: needle" in found for name in names)
    for name in names:
        assert f"{name}:1: needle" in await search(ctx, "needle", path=f"./{name}")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere names are text")
async def test_a_name_that_is_no_text(ctx: ToolContext) -> None:
    with open(os.fsencode(ctx.workspace.cwd) + b"/\xff", "w") as file:
        file.write("needle")
    assert ":1: needle" in await search(ctx, "needle")


@pytest.mark.parametrize("pattern", ["a(", "[z", "*x", "a{2,1}", "(?P<n>"])
async def test_a_bad_regex_is_explained(ctx: ToolContext, pattern: str) -> None:
    make(ctx.workspace.cwd, {"f": f"say {pattern} here\n"})
    said = await refused(ctx, pattern)
    assert said.startswith("Not a valid regex: ")
    literal = said.partition("use the pattern ")[2]
    assert await rows(ctx, literal) == [f"f:1: say {pattern} here"]


@pytest.mark.parametrize("pattern", [r"(?<=a)b", r"(\w)\1", r"b(?!c)", r"\Aab"])
async def test_what_ripgrep_cannot_do_is_done(ctx: ToolContext, pattern: str) -> None:
    make(ctx.workspace.cwd, {"f": "abba\n", "g": "xyz\n"})
    assert await rows(ctx, pattern) == ["f:1: abba"]


async def test_requests_that_make_no_sense(ctx: ToolContext) -> None:
    make(ctx.workspace.cwd, {"file.py": "x"})
    assert "empty" in await refused(ctx, "")
    assert "line break" in await refused(ctx, r"a\nb")
    assert "line break" in await refused(ctx, "a\nb")
    assert "written a|b" in await search(ctx, r"a\|b"), "as grep would have it"
    assert await rows(ctx, r"a\\nb") == []
    assert "Similar: file.py" in await refused(ctx, "x", path="fiel.py")
    assert "glob" in await refused(ctx, "x", glob="[b-a]")
    assert "glob" in await refused(ctx, "x", glob="{a,b}" * 9)


async def test_an_option_is_only_a_pattern(ctx: ToolContext) -> None:
    make(ctx.workspace.cwd, {"f": "--files -v\n"})
    assert await rows(ctx, "--files") == ["f:1: --files -v"]
    assert await rows(ctx, "-v") == ["f:1: --files -v"]
    assert await rows(ctx, "-", glob="-f*") == []


# -- names ---------------------------------------------------------------------------------


async def test_names(ctx: ToolContext) -> None:
    files = ["src/app/main.py", "src/Main_test.py", "readme.md", "src/app/data.json", "out/x.py"]
    make(ctx.workspace.cwd, {**dict.fromkeys(files, ""), ".gitignore": "out\n"})

    async def names(pattern: str, **args: Any) -> list[str]:
        return await rows(ctx, pattern, kind="names", **args)

    assert await names("*.py") == ["src/Main_test.py", "src/app/main.py"]
    assert await names("main") == ["src/Main_test.py", "src/app/main.py"]
    assert await names("app/main") == ["src/app/main.py"]
    assert await names("src/*.py") == ["src/Main_test.py"]
    assert await names("**/app/*") == ["src/app/data.json", "src/app/main.py"]
    assert await names("*.{md,json}") == ["readme.md", "src/app/data.json"]
    assert await names("*.py", path="src/app") == ["src/app/main.py"]
    assert await names("*.py", limit=1) == ["src/Main_test.py"]
    assert (await search(ctx, "zzz", kind="names")).startswith("[No file name matches 'zzz'")


# -- what is protected ---------------------------------------------------------------------


async def test_protected_files_are_never_found(ctx: ToolContext, raw_database: Any) -> None:
    user = ctx.workspace.home.parent
    secret = [
        ".ssh/id",
        ".aws/credentials",
        ".netrc",
        ".config/gh/hosts.yml",
        ".hermes/config.yaml",
    ]
    secret += [".hermes/state.db", "x/.hermes/.env", ".SSH/key", "work/.docker/config.json"]
    with raw_database():
        make(user, {**dict.fromkeys(secret, "needle\n"), ".config/app": "needle\n"})
    make(user, {"n": "needle\n"})
    os.link(ctx.workspace.home / "config.yaml", ctx.workspace.cwd / "second-name")
    os.link(
        ctx.workspace.home / "state.db", ctx.workspace.cwd / "copy.db"
    )  # the guard fails if we open it
    assert await rows(ctx, "needle", path="~") == [
        f"{user}/.config/app:1: needle",
        f"{user}/n:1: needle",
    ]
    names = await rows(ctx, "*", path="~", kind="names")
    assert not {n for n in names if re.search(r"(?i)\.ssh|\.aws|netrc|hosts|\.hermes|docker", n)}
    for path in ("~/.ssh", "~/.hermes", "~/.netrc", "~/.hermes/config.yaml", "/proc/self/environ"):
        assert "Denied" in await refused(ctx, "needle", path=path)
    (ctx.workspace.cwd / "way").symlink_to(user / ".ssh")
    assert "Denied" in await refused(ctx, "needle", path="way")


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
async def test_what_the_kernel_shows_is_not_searched(ctx: ToolContext) -> None:
    assert "no ordinary files" in await refused(ctx, "x", path="/proc/self")
    assert not any(
        name.startswith(("dev/", "proc/"))
        for name in islice(walk_files(Path("/"), ctx.workspace), 500)
    )


async def test_rules_in_a_pipe_do_not_block(ctx: ToolContext) -> None:
    os.mkfifo(ctx.workspace.cwd / ".gitignore")
    make(ctx.workspace.cwd, {"f": "needle"})
    own = in_workspace(ctx, child_env={"PATH": "/nowhere"})
    assert await rows(own, "needle") == ["f:1: needle"]


async def test_saved_outputs_can_be_searched(ctx: ToolContext) -> None:
    make(ctx.workspace.outputs, {"s1.txt": "a\nneedle\n"})
    assert await rows(ctx, "needle", path=str(ctx.workspace.outputs)) == [
        f"{ctx.workspace.outputs}/s1.txt:2: needle"
    ]


async def test_inside_the_agents_home_only_ones_own_files(ctx: ToolContext) -> None:
    inside = in_workspace(ctx, cwd=ctx.workspace.home)
    make(
        ctx.workspace.home,
        dict.fromkeys(["config.yaml", "skills/s.md", ".env", "work/notes"], "needle"),
    )
    assert await rows(inside, "needle") == ["work/notes:1: needle"]


async def test_a_program_of_the_working_folder_is_not_run(ctx: ToolContext) -> None:
    make(ctx.workspace.cwd, {"rg": f"#!/bin/sh\ntouch {ctx.workspace.cwd}/ran\n"})
    (ctx.workspace.cwd / "rg").chmod(0o755)
    planted = in_workspace(ctx, child_env={"PATH": ".::work"})
    make(ctx.workspace.cwd, {"f": "needle"})
    assert await rows(planted, "needle") == ["f:1: needle"]
    assert not (ctx.workspace.cwd / "ran").exists()


async def test_settings_of_ripgrep_do_not_count(ctx: ToolContext) -> None:
    make(ctx.workspace.cwd, {"rc": "--invert-match\n", "f": "needle", ".ignore": "f\n"})
    env = {**ctx.workspace.child_env, "RIPGREP_CONFIG_PATH": str(ctx.workspace.cwd / "rc")}
    assert await rows(in_workspace(ctx, child_env=env), "needle") == ["f:1: needle"]


# -- time ----------------------------------------------------------------------------------


async def test_an_endless_regex_is_stopped(
    ctx: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_search, "TIMEOUT", 0.6)
    make(ctx.workspace.cwd, {"a": "aa\n", "b": "a" * 60 + "!\n"})
    own = in_workspace(ctx, child_env={"PATH": "/nowhere"})
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    ticking = asyncio.create_task(tick())
    content = await search(own, "^(a+)+$")
    ticking.cancel()
    assert content.startswith("a:1: aa\n[stopped after 0.6 s")
    assert ticks > 1, "the loop stood still"


async def test_an_interrupted_search_leaves_no_process(ctx: ToolContext, tmp_path: Path) -> None:
    make(ctx.workspace.cwd, {"b": "a" * 60 + "!\n"})
    own = in_workspace(ctx, child_env={"PATH": "/nowhere"})
    before = children()
    task = asyncio.create_task(search(own, "^(a+)+$"))
    async with asyncio.timeout(90):
        while children() == before:
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert children() == before


def children() -> set[str]:
    path = Path(f"/proc/self/task/{os.getpid()}/children")
    return set(path.read_text().split()) if path.exists() else set()


async def test_many_files(ctx: ToolContext) -> None:
    make(ctx.workspace.cwd, {f"d{n % 50}/f{n}.py": f"line\nvalue = {n}\n" for n in range(1500)})
    assert await rows(ctx, r"value = 1499\b") == ["d49/f1499.py:2: value = 1499"]
    assert len(await rows(ctx, "*.py", kind="names", limit=1000)) == 1000


# -- globs ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("glob", "yes", "no"),
    [
        ("*.py", ["a.py", "x/b.py", ".py"], ["a.pyc", "a.py/x"]),
        ("a?c", ["abc", "x/abc"], ["ac", "a/c"]),
        ("[a-c]x", ["ax", "cx"], ["dx"]),
        ("[!a]x", ["bx"], ["ax", "/x"]),
        ("src/**", ["src/a", "src/a/b"], ["src", "x/src/a"]),
        ("**/t/*.py", ["t/a.py", "x/t/a.py"], ["t/x/a.py"]),
        ("a/**/b", ["a/b", "a/x/b", "a/x/y/b"], ["a/bb", "b"]),
        ("/top", ["top"], ["x/top"]),
        ("a*b*c", ["abc", "axxbxxc", "abbcc", "abcbc"], ["ab", "abcd", "a/b/c"]),
        ("{a,b}{1,2}", ["a1", "b2"], ["a3", "ab"]),
        (r"\*x", ["*x"], ["ax"]),
        ("a.c", ["a.c"], ["abc"]),
    ],
)
def test_globs(glob: str, yes: list[str], no: list[str]) -> None:
    fits = compile_glob(glob)
    assert [p for p in yes if not fits(p)] == []
    assert [p for p in no if fits(p)] == []


@settings(max_examples=150, deadline=None)
@given(st.text("ab*?", min_size=1, max_size=10), st.text("ab", max_size=12))
def test_a_name_fits_as_fnmatch_says(glob: str, name: str) -> None:
    import fnmatch

    if "**" in glob:
        return
    assert compile_glob(glob)(name or "x") == fnmatch.fnmatchcase(name or "x", glob)


@settings(max_examples=150, deadline=None)
@given(st.text("ab*?[]{},!/\\^-.", max_size=14), st.text("ab/.", max_size=12))
def test_any_glob_is_understood_or_refused(glob: str, path: str) -> None:
    IgnoreRules(f"{glob}\n").match_path(path, folder=False)
    try:
        compile_glob(glob)(path)
    except ToolError as error:
        assert "glob" in str(error)


def test_no_glob_takes_for_ever() -> None:
    compile_glob("*a" * 40 + "b")("a" * 255)
    IgnoreRules("*a*" * 40 + "b\n" + "**/a/" * 4 + "b").match_path(
        "a/" * 100 + "a" * 255, folder=False
    )


@pytest.mark.parametrize("name", ["n" * 300, "n" * 300 + "/x", "x/" * 3000])
async def test_a_name_that_is_too_long_does_not_exist(ctx: ToolContext, name: str) -> None:
    assert "does not exist" in await refusal(search_files, ctx, pattern="x", path=name)
