"""write_file: atomic, whole, and only where it may."""

import os
import stat
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from hermes.core.tool import ToolContext
from hermes.tools._edit import atomic_write as _writing
from hermes.tools.write_file import write_file
from tests.kit.tools import in_workspace
from tests.unit.tools.calls import call, refusal, text
from tests.unit.tools.test_file_boundary import attended

ROOT = os.geteuid() == 0


async def test_a_file_is_created_then_replaced(ctx: ToolContext) -> None:
    path = ctx.workspace.cwd / "a" / "b" / "f.txt"
    assert await text(write_file, ctx, path="a/b/f.txt", content="héllo\r\n") == (
        f"Created {path} (8 bytes)"
    )
    assert path.read_bytes() == "héllo\r\n".encode()
    assert await text(write_file, ctx, path=str(path), content="") == f"Replaced {path} (0 bytes)"
    assert path.read_bytes() == b""
    assert [p.name for p in path.parent.iterdir()] == ["f.txt"]


async def test_the_mode_of_a_file_is_kept_and_a_new_one_follows_the_umask(ctx: ToolContext) -> None:
    path = ctx.workspace.cwd / "run.sh"
    path.write_text("old")
    path.chmod(0o751)
    await call(write_file, ctx, path="run.sh", content="new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o751
    before = os.umask(0o027)
    try:
        await call(write_file, ctx, path="new", content="")
    finally:
        os.umask(before)
    assert stat.S_IMODE((ctx.workspace.cwd / "new").stat().st_mode) == 0o640


async def test_a_reader_of_the_old_file_keeps_it(ctx: ToolContext) -> None:
    (ctx.workspace.cwd / "f").write_text("old")
    with (ctx.workspace.cwd / "f").open() as old:
        await call(write_file, ctx, path="f", content="new and longer")
        assert old.read() == "old"


async def test_a_failed_write_changes_nothing(
    ctx: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    (ctx.workspace.cwd / "f").write_text("old")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert "No space left on device. Nothing was changed" in await refusal(
        write_file, ctx, path="f", content="new"
    )
    assert (ctx.workspace.cwd / "f").read_text() == "old"
    assert [p.name for p in ctx.workspace.cwd.iterdir()] == ["f"]


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("a.py", "x = '\\d'\n", "def f(:\n"),
        ("a.json", "[1]", "[1,]"),
        ("a.toml", "a = 1", "a = = 1"),
        ("a.yml", "a: 1\n---\nb: *x\n", "a: b: c\n"),
        ("tsconfig.json", "{} // comment", None),
        ("chart.yaml", "a: {{ .Values.a }}\n", None),
        ("a.txt", "def f(:", None),
        ("a.sh", "#!/bin/sh\nfor i in !(a|b); do echo $i; done\n", "if true; then\necho\n"),
        ("zsh.sh", "#!/bin/zsh\nx=(${(f)y})\n", None),
        ("a.js", "import a from 'b';\nawait a?.b;\n", "let x = {\n"),
        ("c.cjs", "#!/bin/node\nreturn require('a')\n", "f(;\n"),
        ("jsx.js", "const a = <div/>;\n", None),
    ],
)
async def test_broken_syntax_is_a_warning_and_no_failure(
    ctx: ToolContext, name: str, good: str, bad: str | None
) -> None:
    playwright = find_spec("playwright")  # brings a node of its own
    assert playwright and playwright.submodule_search_locations
    node = f"{playwright.submodule_search_locations[0]}/driver"
    path = os.pathsep.join([ctx.workspace.child_env["PATH"], node])
    ctx = in_workspace(ctx, child_env={"PATH": path})
    assert "warning" not in await text(write_file, ctx, path=name, content=good)
    if bad is not None:
        result = await call(write_file, ctx, path=name, content=bad)
        assert "[warning: the syntax is wrong: " in str(result.content) and not result.error
        assert (ctx.workspace.cwd / name).read_text() == bad


async def test_folders_made_for_nothing_do_not_stay(
    ctx: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "rename", full)
    assert "Nothing was changed" in await refusal(write_file, ctx, path="a/b/f", content="x")
    assert not list(ctx.workspace.cwd.iterdir())


async def test_what_is_not_replaced(ctx: ToolContext) -> None:
    (ctx.workspace.cwd / "folder").mkdir()
    os.mkfifo(ctx.workspace.cwd / "pipe")
    (ctx.workspace.cwd / "file").write_text("x")
    assert "is a directory" in await refusal(write_file, ctx, path="folder", content="x")
    assert "nothing was changed" in await refusal(write_file, ctx, path="pipe", content="x")
    assert "Nothing was changed" in await refusal(write_file, ctx, path="file/f", content="x")
    assert (ctx.workspace.cwd / "file").read_text() == "x"


async def test_links_are_followed_inside_and_not_out(ctx: ToolContext) -> None:
    (ctx.workspace.cwd / "real").write_text("old")
    (ctx.workspace.cwd / "link").symlink_to("real")
    outside = ctx.workspace.home.parent / "outside"
    (ctx.workspace.cwd / "out").symlink_to(outside)
    (ctx.workspace.cwd / "dir").symlink_to(ctx.workspace.home.parent)
    await call(write_file, ctx, path="link", content="new")
    assert (ctx.workspace.cwd / "link").is_symlink()
    assert (ctx.workspace.cwd / "real").read_text() == "new"
    for path in ("out", "dir/outside"):
        assert f"link to {outside}" in await refusal(write_file, ctx, path=path, content="x")
    assert not outside.exists()
    await call(write_file, attended(ctx)[0], path=str(outside), content="meant")
    assert outside.read_text() == "meant"


async def test_a_folder_swapped_for_a_link_at_the_last_moment(
    ctx: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = ctx.workspace.home.parent / "outside"
    (outside / "b").mkdir(parents=True)
    (ctx.workspace.cwd / "a" / "b").mkdir(parents=True)
    real = _writing.make_folders

    def swapped(folder: Path) -> tuple[int, list[Path]]:
        (ctx.workspace.cwd / "a").rename(ctx.workspace.cwd / "was")
        (ctx.workspace.cwd / "a").symlink_to(outside)
        return real(folder)

    monkeypatch.setattr(_writing, "make_folders", swapped)
    assert "replaced by a link" in await refusal(write_file, ctx, path="a/b/f", content="x")
    assert not list((outside / "b").iterdir())


def test_one_file_has_one_key_whatever_it_is_called(ctx: ToolContext) -> None:
    (ctx.workspace.cwd / "link").symlink_to("f")
    assert write_file.key
    names = ["f", "./f", "x/../f", "link", str(ctx.workspace.cwd / "f")]
    keys = {
        write_file.key(write_file.parse_params({"path": n, "content": ""}), ctx.workspace.cwd)
        for n in names
    }
    assert keys == {str(ctx.workspace.cwd / "f")}
