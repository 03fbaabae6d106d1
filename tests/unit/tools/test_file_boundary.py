"""File tools keep to the boundary of the session, whatever changes meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from hermes.core.errors import ToolError
from hermes.core.escalation import FileAccess
from hermes.core.message import ToolCall
from hermes.core.tool import Tool, ToolContext, UserAccess, Verdict
from hermes.exec.path_rules import list_names
from hermes.tools._files import descriptors
from hermes.tools.patch import patch
from hermes.tools.read_file import read_file
from hermes.tools.search_files import search_files
from hermes.tools.write_file import write_file
from tests.kit.tools import in_workspace
from tests.unit.tools.calls import call, refusal, text

TRIES = 150
"""How often a race is run, each time."""
SWAPPER = """
import ctypes, os, sys
libc, names = ctypes.CDLL(None), [os.fsencode(name) for name in sys.argv[1:]]
while os.getppid() != 1:
    libc.renameat2(-100, names[0], -100, names[1], 2)
"""
"""Exchanges two names without a pause."""


class Person:
    """Answers the questions of file tools."""

    def __init__(self, *, agrees: bool) -> None:
        self.agrees = agrees
        self.asked: list[tuple[str, FileAccess]] = []

    async def approve(
        self, call: ToolCall, tool: Tool[Any], params: Any, keys: tuple[str, ...]
    ) -> Verdict:
        assert isinstance(params, FileAccess)
        self.asked.append((tool.asks, params))
        return Verdict(self.agrees)


@pytest.fixture
def confined(ctx: ToolContext) -> ToolContext:
    return in_workspace(ctx, sandbox="workspace-write")


def attended(ctx: ToolContext, *, agrees: bool = True) -> tuple[ToolContext, Person]:
    person = Person(agrees=agrees)
    return structs.replace(ctx, user=UserAccess(person.approve)), person


async def test_reading_outside_asks_and_nobody_means_no(confined: ToolContext) -> None:
    sibling = confined.workspace.cwd.parent / "sibling"
    sibling.mkdir()
    (sibling / "notes.txt").write_text("needle")
    path = str(sibling / "notes.txt")
    for tool, args in (
        (read_file, {"path": path}),
        (read_file, {"path": "../sibling/notes.txt"}),
        (search_files, {"pattern": "needle", "path": str(sibling)}),
        (search_files, {"pattern": "*", "kind": "names", "path": path}),
    ):
        assert "outside the working folder" in await refusal(tool, confined, **args)
    (confined.workspace.cwd / "link").symlink_to(sibling)
    assert "Not done" in await refusal(read_file, confined, path="link/notes.txt")
    asking, person = attended(confined)
    assert await text(read_file, asking, path=path) == "1|needle"
    assert person.asked[0][1].folder == str(sibling)
    assert "needle" in await text(search_files, asking, pattern="needle", path=str(sibling))
    open_all = in_workspace(confined, sandbox="full-access")
    assert await text(read_file, open_all, path=path) == "1|needle"


async def test_what_commands_can_read_needs_no_question(confined: ToolContext) -> None:
    assert await text(read_file, confined, path="/etc/os-release")
    confined.workspace.outputs.mkdir()
    (confined.workspace.outputs / "s1.txt").write_text("long")
    assert await text(read_file, confined, path=str(confined.workspace.outputs / "s1.txt"))
    assert "outside" in await refusal(read_file, confined, path="/proc/cpuinfo")


@pytest.mark.parametrize(
    "name", [*list_names("hide", scope="home"), *list_names("hide", scope="anywhere")]
)
async def test_no_credentials_of_a_home_whoever_agrees(confined: ToolContext, name: str) -> None:
    file = Path(confined.workspace.child_env["HOME"]) / name / "token"
    file.parent.mkdir(parents=True)
    file.write_text("secret")
    asking, person = attended(confined)
    at_home = in_workspace(asking, cwd=Path(confined.workspace.child_env["HOME"]))
    for ctx in (asking, at_home):
        for path in (file, file.parent):
            assert "Denied" in await refusal(read_file, ctx, path=str(path))
            assert "Denied" in await refusal(search_files, ctx, pattern="secret", path=str(path))
        assert "Denied" in await refusal(write_file, ctx, path=str(file), content="x")
    assert "secret" not in await text(search_files, at_home, pattern="secre[t]")
    assert person.asked == []


STEERING = ["AGENTS.md", "sub/AGENTS.md", "CLAUDE.md", ".mcp.json", ".envrc", ".vscode/tasks.json"]
STEERING += [".claude/settings.json", ".cursor/rules", ".idea/workspace.xml", ".gitmodules"]
STEERING += [
    "tools/hooks/pre-commit",
    "settings.inc",
    "agents.MD",
    ".devcontainer/devcontainer.json",
]
STEERING += [
    ".zed/tasks.json",
    "my.code-workspace",
    "sub/My.Code-Workspace",
    "mise.toml",
    ".mise.toml",
]
STEERING += [
    ".pre-commit-config.yaml",
    ".husky/pre-push",
    "lefthook.yml",
    "lefthook.toml",
    ".config/lefthook.json",
    "AGENT.md",
    ".shadowenv.d/x.lisp",
    ".vim/coc-settings.json",
    ".Rprofile",
    ".jj/repo/config.toml",
    "GEMINI.md",
    ".windsurfrules",
]
STEERING += [".github/copilot-instructions.md", "sub/.github/instructions/x.md", ".clinerules/a.md"]
STEERING += [
    ".gemini/settings.json",
    ".codex/config.toml",
    ".opencode/plugins/a.ts",
    ".cursorrules",
]
STEERING += [".aider.conf.yml", "CLAUDE.local.md", ".nvim.lua"]
STEERING += ["~/.vimrc", "../other/AGENTS.md"]


@pytest.mark.parametrize("path", STEERING)
async def test_what_programs_outside_obey_is_written_only_with_a_word(
    confined: ToolContext, path: str
) -> None:
    work = confined.workspace.cwd
    path = path.replace("~", confined.workspace.child_env["HOME"])
    (work / ".git").mkdir()
    settings = "[core]\n\thooksPath = tools/hooks\n[include]\n\tpath = ../settings.inc\n"
    (work / ".git/config").write_text(settings)
    assert "Not done" in await refusal(write_file, confined, path=path, content="do evil\n")
    add = f"*** Begin Patch\n*** Add File: {path}\n+do evil\n*** End Patch"
    assert "Not done" in await refusal(patch, confined, patch=add)
    assert not (work / path).exists()
    asking, person = attended(confined)
    await call(write_file, asking, path=path, content="fine\n")
    await call(patch, asking, path=path, old="fine", new="better")
    assert (work / path).read_text() == "better\n"
    diffs = [access.diff for _, access in person.asked if access.diff]
    assert [diff.split("\n")[-1] for diff in diffs] == ["+fine", "+better"]
    assert all(path.rpartition("/")[2] in reason for reason, _ in person.asked)


def move(source: str, target: str) -> dict[str, str]:
    hunk = f"*** Update File: {source}\n*** Move to: {target}\n@@\n-one\n+two"
    return {"patch": f"*** Begin Patch\n{hunk}\n*** End Patch"}


TWO = "*** Add File: z\n+x\n*** Add File: .mcp.json\n+{}"
DETOURS: dict[str, tuple[Tool[Any], dict[str, str]]] = {
    "moved there": (patch, move("a.txt", ".envrc")),
    "moved to a hook": (patch, move("a.txt", ".git/hooks/post-commit")),
    "moved to where settings lead": (patch, move("a.txt", "tools/hooks/pre-commit")),
    "moved away": (patch, move("CLAUDE.md", "b.txt")),
    "deleted": (patch, {"patch": "*** Begin Patch\n*** Delete File: CLAUDE.md\n*** End Patch"}),
    "the second of two": (patch, {"patch": f"*** Begin Patch\n{TWO}\n*** End Patch"}),
    "by a link to a folder": (write_file, {"path": "hooks/post-commit", "content": "x"}),
    "by a link to a file": (write_file, {"path": "notes", "content": "x"}),
    "by dots": (write_file, {"path": "./.git/../.git/hooks/x", "content": "x"}),
    "by quotes": (write_file, {"path": "'.git/hooks/x'", "content": "x"}),
    "by spaces": (write_file, {"path": " .envrc ", "content": "x"}),
    "a file for a folder": (write_file, {"path": "tools/hooks", "content": "x"}),
    "another repository": (write_file, {"path": "sub/.git/config", "content": "x"}),
    "a repository elsewhere": (write_file, {"path": "sub/.git", "content": "gitdir: ../evil"}),
    "attributes": (write_file, {"path": ".git/info/attributes", "content": "x"}),
}


@pytest.mark.parametrize("way", DETOURS)
async def test_no_detour_leads_to_them(confined: ToolContext, way: str) -> None:
    work = confined.workspace.cwd
    for folder in (".git/hooks", "sub", "tools"):
        (work / folder).mkdir(parents=True)
    (work / ".git/config").write_text("[core]\n\thooksPath = tools/hooks\n")
    (work / "hooks").symlink_to(".git/hooks")
    (work / "notes").symlink_to("AGENTS.md")
    for name in ("a.txt", "CLAUDE.md"):
        (work / name).write_text("one\n")
    before = {path: path.read_bytes() for path in work.rglob("*") if path.is_file()}
    tool, args = DETOURS[way]
    assert await refusal(tool, confined, **args)
    assert before == {path: path.read_bytes() for path in work.rglob("*") if path.is_file()}


async def test_ordinary_files_are_written_without_a_question(confined: ToolContext) -> None:
    paths = ["README.md", "src/agents.py", "docs/vscode.md", "tools/hooks.py", ".gitignore"]
    paths += [".github/workflows/ci.yml", ".github/dependabot.yml", ".tool-versions", "workspace"]
    paths += ["package.json", "Makefile", ".editorconfig", ".config/x.toml", "code-workspace"]
    for path in paths:
        await call(write_file, confined, path=path, content="x")


async def test_a_change_outside_tells_nothing_before_the_user_agrees(confined: ToolContext) -> None:
    """Not even by the error of a patch that does not apply."""
    outside = confined.workspace.cwd.parent / "other"
    outside.mkdir()
    for name in ("AGENTS.md", "notes.txt"):
        (outside / name).write_text("a secret word\n")
        text = await refusal(patch, confined, path=f"../other/{name}", old="a secre word", new="x")
        assert "Not done" in text and "secret" not in text


async def test_a_patch_changes_what_was_asked_about(confined: ToolContext) -> None:
    outside = confined.workspace.cwd.parent
    for name in ("shown", "other"):
        (outside / name).mkdir()
        (outside / name / "f.txt").write_text("old\n")

    class Swapper(Person):
        async def approve(
            self, call: ToolCall, tool: Tool[Any], params: Any, keys: tuple[str, ...]
        ) -> Verdict:
            (outside / "shown").rename(outside / "away")
            (outside / "shown").symlink_to("other")
            return await super().approve(call, tool, params, keys)

    asking = structs.replace(confined, user=UserAccess(Swapper(agrees=True).approve))
    args = {"path": str(outside / "shown/f.txt"), "old": "old", "new": "new"}
    assert "nothing was changed" in await refusal(patch, asking, **args)
    assert (outside / "other/f.txt").read_text() == "old\n"


async def test_nobody_is_asked_about_what_cannot_be_written(
    confined: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the table of names forbids it or the operating system does."""
    asking, person = attended(confined)
    closed = confined.workspace.cwd.parent / "closed"
    closed.mkdir()
    access = os.access
    monkeypatch.setattr(os, "access", lambda p, mode: Path(p) != closed and access(p, mode))
    for path in ("/usr/bin/x", "/etc/x", "~/.ssh/x", "../closed/x", "../closed/sub/x"):
        text = await refusal(write_file, asking, path=path, content="x")
        assert "Denied" in text or "no permission" in text, text
        add = f"*** Begin Patch\n*** Add File: {path}\n+x\n*** End Patch"
        text = await refusal(patch, asking, patch=add)
        assert "Denied" in text or "no permission" in text, text
    assert person.asked == []


# Races


@contextmanager
def swapped(one: Path, other: Path) -> Iterator[None]:
    """Two names that another process exchanges all the time."""
    swapper = subprocess.Popen([sys.executable, "-I", "-S", "-c", SWAPPER, str(one), str(other)])
    try:
        yield
    finally:
        swapper.kill()
        swapper.wait()


@pytest.fixture
def race(confined: ToolContext) -> Iterator[tuple[ToolContext, Path]]:
    """A folder that is a link to the outside half of the time."""
    work, outside = confined.workspace.cwd, confined.workspace.cwd.parent / "outside"
    for folder, word in ((work / "a", "public"), (outside, "SECRET")):
        folder.mkdir()
        for number in range(10):
            (folder / f"f{number}.txt").write_text(f"{word} needle\n")
        (folder / f"{word}.txt").touch()
    (work / "b").symlink_to(outside)
    with swapped(work / "a", work / "b"):
        yield confined, outside


@pytest.mark.skipif(sys.platform != "linux", reason="exchanges names in one step")
@pytest.mark.parametrize("engine", ["ripgrep", "fallback"])
async def test_a_search_is_not_led_out(race: tuple[ToolContext, Path], engine: str) -> None:
    await search(race[0], engine, TRIES)


@pytest.mark.heavy
@pytest.mark.skipif(sys.platform != "linux", reason="exchanges names in one step")
@pytest.mark.parametrize("part", range(20))
async def test_ten_thousand_searches_are_not_led_out(
    race: tuple[ToolContext, Path], part: int
) -> None:
    await search(race[0], "ripgrep" if part < 14 else "fallback", 250)


async def search(ctx: ToolContext, engine: str, tries: int) -> None:
    """Two searches a try, for lines and for names."""
    if engine == "fallback":
        ctx = in_workspace(ctx, child_env={**ctx.workspace.child_env, "PATH": "/nowhere"})
    for _ in range(tries):
        assert "SECRET" not in await text(search_files, ctx, pattern="needle")
        names = await text(search_files, ctx, pattern="*.txt", kind="names")
        assert "SECRET" not in names


@pytest.mark.skipif(sys.platform != "linux", reason="exchanges names in one step")
@pytest.mark.parametrize("kernel", ["openat2", "walk"])
async def test_reading_and_writing_are_not_led_out(
    race: tuple[ToolContext, Path], kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctx, outside = race
    if kernel == "walk":
        monkeypatch.setattr(descriptors, "_load_openat2", lambda: None)
    before = sorted(os.listdir(outside))
    done = 0
    for number in range(TRIES * 4):
        for tool, args in (
            (read_file, {"path": "a/f1.txt"}),
            (read_file, {"path": "a"}),
            (write_file, {"path": "a/new/deep.txt", "content": "x"}),
            (write_file, {"path": f"a/n{number % 5}.txt", "content": "x"}),
        ):
            try:
                assert "SECRET" not in await text(tool, ctx, **args)
                done += 1
            except ToolError as error:
                assert "SECRET" not in str(error)
    assert done
    assert sorted(os.listdir(outside)) == before
    assert (outside / "f1.txt").read_text() == "SECRET needle\n"
