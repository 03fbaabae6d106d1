"""Checkpoints: every tree comes back byte for byte, and nothing of the workspace is run."""

from __future__ import annotations

import asyncio
import os
import random
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes.core.errors import ToolError
from hermes.exec.launcher.placeholders import LINK_TARGET
from hermes.exec.snapshots import checkpoints, file_index, safe_git, shadow_repo
from hermes.exec.snapshots.checkpoints import (
    create_checkpoint,
    diff_checkpoint,
    list_checkpoints,
    list_workspaces,
    prune_checkpoints,
    restore_checkpoint,
)

pytestmark = pytest.mark.skipif(not safe_git.find_git(), reason="git is not installed")

Tree = dict[str, tuple[str, int, bytes]]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def tree(root: Path) -> Tree:
    """Everything below a folder: kind, permissions, content."""
    found: Tree = {}
    for path in root.rglob("*"):
        info = path.lstat()
        name, mode = path.relative_to(root).as_posix(), stat.S_IMODE(info.st_mode)
        if path.is_symlink():
            found[name] = ("link", 0, os.fsencode(os.readlink(path)))
        elif path.is_dir():
            found[name] = ("folder", mode, b"")
        else:
            found[name] = ("file", mode, path.read_bytes())
    return found


NAMES = ["a", "b.txt", "sub", "sub2", "naïve ☃", "with space", "-dash", "tab\there", "new\nline"]
ODD = [*NAMES, "*", ":(top)x", "git~1", '"quoted"', "back\\slash", "x\udcff"]


def scribble(root: Path, rng: random.Random, steps: int) -> None:
    """Random edits that leave ignored files alone."""
    for _ in range(steps):
        depth = rng.randint(0, 2)
        path = root.joinpath(*(rng.choice(ODD) for _ in range(depth)), rng.choice(ODD))
        if not _clear(root, path, rng):
            continue
        match rng.randrange(7):
            case 0 | 1 | 2:
                path.write_bytes(rng.choice([b"", b"x\r\ny\n", rng.randbytes(40), b"$Id$\n"]))
                path.chmod(rng.choice([0o644, 0o755, 0o600, 0o664, 0o400, 0o711]))
            case 3:
                path.symlink_to(rng.choice(["a", "nowhere", "/etc/passwd", "sub/../b.txt"]))
            case 4:
                path.mkdir(mode=rng.choice([0o755, 0o700]))
            case 5:
                (path.parent / ".gitattributes").write_text("* text=auto eol=crlf ident filter=x\n")
            case _:
                pass  # removed by _clear


def _clear(root: Path, path: Path, rng: random.Random) -> bool:
    """Make room for `path`: its parents are folders, and nothing is there."""
    for parent in reversed(path.relative_to(root).parents[:-1]):
        folder = root / parent
        if folder.is_symlink() or folder.is_file():
            folder.unlink()
        folder.mkdir(exist_ok=True)
    if path.is_dir() and not path.is_symlink():
        if any(p.name == "kept.ignored" for p in path.rglob("*")):
            return False
        subprocess.run(["rm", "-rf", "--", str(path)], check=True)
    else:
        path.unlink(missing_ok=True)
    return True


@pytest.mark.parametrize("seed", range(24))
async def test_any_tree_comes_back_and_forth(work: Path, home: Path, seed: int) -> None:
    rng = random.Random(seed)
    (work / ".gitignore").write_text("*.ignored\n")
    scribble(work, rng, 25)
    (work / "keep").mkdir()
    (work / "keep" / "kept.ignored").write_bytes(b"mine")
    (work / "keep" / "file").write_bytes(b"ours")
    first = tree(work)
    made = await create_checkpoint(work, home, "first")
    assert made is not None and tree(work) == first, "a snapshot changes nothing"
    scribble(work, rng, 25)
    (work / "keep" / "kept.ignored").write_bytes(b"changed by the turn, and ignored")
    second = tree(work)
    done = await restore_checkpoint(work, home, made.id)
    assert not done.kept
    expected = {**first, "keep/kept.ignored": second["keep/kept.ignored"]}
    assert tree(work) == expected
    back = await restore_checkpoint(work, home, done.before)
    assert tree(work) == second and not back.kept
    changed = {p for p in first.keys() | second.keys() if first.get(p) != second.get(p)}
    told = {*done.changed, *done.added, *done.removed}
    files = {p for p in changed if {first.get(p, "f")[0], second.get(p, "f")[0]} & {"file", "link"}}
    assert told == files - {"keep/kept.ignored"}


async def test_what_is_reported(work: Path, home: Path) -> None:
    (work / "a").write_text("1")
    (work / "b").write_text("2")
    made = await create_checkpoint(work, home, "  before\n the turn ")
    assert made is not None
    assert (made.label, made.files, made.bytes) == ("before the turn", 2, 2)
    (work / "a").write_text("changed")
    (work / "b").unlink()
    (work / "c").write_text("3")
    text = await diff_checkpoint(work, home, made.id)
    assert "-1\n" in text and "+changed" in text and "b/c" in text
    assert "b/c" not in await diff_checkpoint(work, home, made.id, ["a"])
    done = await restore_checkpoint(work, home, made.id[:17])
    assert (done.changed, done.added, done.removed) == (("a",), ("b",), ("c",))
    listed = await list_checkpoints(work, home)
    assert [c.id for c in listed] == [done.before, made.id]
    assert await list_workspaces(home) == [work]


async def test_only_the_named_paths(work: Path, home: Path) -> None:
    for name in ("a", "ab", "d/x", "d/y"):
        (work / name).parent.mkdir(exist_ok=True)
        (work / name).write_text("old")
    made = await create_checkpoint(work, home, "")
    assert made is not None
    for name in ("a", "ab", "d/x", "d/y", "d/new", "e"):
        (work / name).write_text("new")
    done = await restore_checkpoint(work, home, made.id, ["a", str(work / "d")])
    assert (done.changed, done.removed) == (("a", "d/x", "d/y"), ("d/new",))
    assert (work / "ab").read_text() == (work / "e").read_text() == "new"
    with pytest.raises(ToolError, match="not in"):
        await restore_checkpoint(work, home, made.id, ["../home"])


async def test_unknown_and_ambiguous_ids(work: Path, home: Path) -> None:
    assert await list_checkpoints(work, home) == []
    for label in ("one", "two"):
        assert await create_checkpoint(work, home, label)
    with pytest.raises(ToolError, match="no checkpoint"):
        await restore_checkpoint(work, home, "19990101")
    with pytest.raises(ToolError, match="no checkpoint"):
        await restore_checkpoint(work, home, "")
    with pytest.raises(ToolError, match="several"):
        await restore_checkpoint(work, home, "2")


# -- what must stay as it is -----------------------------------------------------------------


async def test_large_files_are_neither_kept_nor_removed(
    work: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_index, "MAX_FILE_BYTES", 1000)
    (work / "big").write_bytes(b"x" * 1001)
    (work / "grows").write_bytes(b"small")
    made = await create_checkpoint(work, home, "")
    assert made is not None and made.skipped == 1 and made.notes[0].startswith("big: larger")
    (work / "big").write_bytes(b"short now")
    (work / "grows").write_bytes(b"y" * 2000)
    (work / "new-big").write_bytes(b"z" * 2000)
    done = await restore_checkpoint(work, home, made.id)
    assert (work / "big").read_bytes() == b"short now", "it was there, in another state"
    assert (work / "new-big").exists(), "what could not be saved is not removed"
    assert (work / "grows").stat().st_size == 2000
    assert [k.partition(":")[0] for k in done.kept] == ["grows"]


@pytest.mark.parametrize(("limit", "value"), [("MAX_BYTES", 10), ("MAX_FILES", 1)])
async def test_a_workspace_that_is_too_large(
    work: Path, home: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    monkeypatch.setattr(file_index, limit, value)
    (work / "a").write_text("0123456789")
    (work / "b").write_text("1")
    told: list[str] = []
    assert await create_checkpoint(work, home, "", told.append) is None
    assert "too large" in told[0]


async def test_what_holds_a_place_while_a_command_runs_is_not_kept(work: Path, home: Path) -> None:
    (work / "AGENTS.md").mkdir(mode=0o501)
    (work / "held").symlink_to(LINK_TARGET)
    (work / "empty").mkdir()
    found = await create_checkpoint(work, home, "while one runs")
    assert found
    (work / "AGENTS.md").rmdir()
    (work / "held").unlink()
    (work / "empty").rmdir()
    await restore_checkpoint(work, home, found.id)
    assert os.listdir(work) == ["empty"]


async def test_ignored_then_is_not_removed_now(work: Path, home: Path) -> None:
    """The turn takes a rule away: what it protected is still not ours to delete."""
    (work / ".gitignore").write_text("secret.env\n")
    (work / "secret.env").write_text("mine")
    made = await create_checkpoint(work, home, "")
    assert made is not None
    (work / ".gitignore").unlink()
    (work / "new").write_text("of the turn")
    done = await restore_checkpoint(work, home, made.id)
    assert (work / "secret.env").read_text() == "mine"
    assert done.removed == ("new",) and done.added == (".gitignore",)


async def test_ignoring_everything_does_not_stop_a_rollback(work: Path, home: Path) -> None:
    (work / "code.py").write_text("good")
    made = await create_checkpoint(work, home, "")
    assert made is not None
    (work / ".gitignore").write_text("*\n")
    (work / "code.py").write_text("bad")
    done = await restore_checkpoint(work, home, made.id)
    assert (work / "code.py").read_text() == "good" and done.changed == ("code.py",)
    await restore_checkpoint(work, home, done.before)
    assert (work / "code.py").read_text() == "bad"


async def test_the_workspaces_own_repository_is_untouched(work: Path, home: Path) -> None:
    def git(*words: str, cwd: Path = work) -> None:
        env = {"PATH": os.environ["PATH"], "HOME": str(work.parent), "GIT_CONFIG_NOSYSTEM": "1"}
        command = ["git", "-c", "user.name=x", "-c", "user.email=x@x", *words]
        subprocess.run(command, cwd=cwd, env=env, check=True, capture_output=True)

    git("init", "-q")
    (work / "a").write_text("1")
    git("add", "a")
    git("commit", "-qm", "one")
    (work / ".git" / "info").mkdir(exist_ok=True)
    (work / ".git" / "info" / "exclude").write_text("private\n")
    (work / "private").write_text("mine")
    (work / "inner").mkdir()
    git("init", "-q", cwd=work / "inner")
    (work / "inner" / "x").write_text("other")
    own = tree(work / ".git")
    made = await create_checkpoint(work, home, "")
    assert made is not None and made.files == 1
    assert made.notes == ("inner/: a repository of its own",)
    (work / "a").write_text("2")
    (work / "inner" / "x").write_text("other 2")
    await restore_checkpoint(work, home, made.id)
    assert tree(work / ".git") == own
    assert (work / "a").read_text() == "1" and (work / "inner" / "x").read_text() == "other 2"


async def test_nothing_of_the_workspace_is_run(
    work: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "ran"
    evil = work / "evil.sh"
    evil.write_text(f"#!/bin/sh\ntouch {mark}\ncat\n")
    evil.chmod(0o755)
    settings = "\n".join(
        f'[{section}]\n{key} = "{evil}"'
        for section, key in [
            ("core", "fsmonitor"), ("core", "sshCommand"), ("core", "pager"), ("diff", "external"),
            ('filter "x"', "clean"), ('filter "x"', "smudge"), ('filter "x"', "process"),
            ('diff "x"', "textconv"), ("gpg", "program"), ("core", "hooksPath"),
        ]
    )  # fmt: skip
    for place in (tmp_path / ".gitconfig", work / ".gitconfig", work / "config"):
        place.write_text(settings)
    (work / ".git").mkdir()
    (work / ".git" / "config").write_text(settings)
    (work / ".gitattributes").write_text("* filter=x diff=x text eol=crlf\n")
    (work / "f").write_bytes(b"a\nb\r\n")
    monkeypatch.setenv("HOME", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(work))
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", str(evil))
    monkeypatch.setenv("GIT_DIR", str(work / ".git"))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(work / "config"))
    made = await create_checkpoint(work, home, "")
    assert made is not None
    (work / "f").write_bytes(b"c\n")
    assert "+c" in await diff_checkpoint(work, home, made.id)
    await restore_checkpoint(work, home, made.id)
    assert (work / "f").read_bytes() == b"a\nb\r\n"
    assert not mark.exists()


async def test_a_folder_that_became_a_link_is_not_followed(
    work: Path, home: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f").write_text("not ours")
    (work / "d").mkdir()
    (work / "d" / "f").write_text("ours")
    made = await create_checkpoint(work, home, "")
    assert made is not None
    (work / "d" / "f").unlink()
    (work / "d").rmdir()
    (work / "d").symlink_to(outside)
    await restore_checkpoint(work, home, made.id)
    assert (work / "d" / "f").read_text() == "ours" and not (work / "d").is_symlink()
    assert (outside / "f").read_text() == "not ours"


async def test_a_link_that_cannot_be_moved_away_is_not_followed_either(
    work: Path, home: Path, tmp_path: Path
) -> None:
    """It is ignored now, so it is not ours to remove."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (work / "d").mkdir()
    (work / "d" / "f").write_text("ours")
    made = await create_checkpoint(work, home, "")
    assert made is not None
    (work / "d" / "f").unlink()
    (work / "d").rmdir()
    (work / "d").symlink_to(outside)
    (work / ".gitignore").write_text("/d\n")
    done = await restore_checkpoint(work, home, made.id)
    assert not list(outside.iterdir())
    assert {k.partition(":")[0] for k in done.kept} == {"d", "d/f"}


async def test_a_folder_with_ignored_files_is_not_replaced_by_a_file(
    work: Path, home: Path
) -> None:
    (work / ".gitignore").write_text("*.o\n")
    (work / "x").write_text("a file")
    made = await create_checkpoint(work, home, "")
    assert made is not None
    (work / "x").unlink()
    (work / "x").mkdir()
    (work / "x" / "a.o").write_text("ignored")
    done = await restore_checkpoint(work, home, made.id)
    assert (work / "x" / "a.o").read_text() == "ignored"
    assert [k.partition(":")[0] for k in done.kept] == ["x"]


# -- where there are none ----------------------------------------------------------------------


def _unsuitable(tmp_path: Path) -> Iterator[Path]:
    yield Path("/")
    yield Path("/tmp")
    yield tmp_path
    yield tmp_path / "user"
    yield tmp_path / "home" / "inner"
    yield tmp_path / "missing"
    yield tmp_path / "file"


async def test_folders_without_checkpoints(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    for folder in (tmp_path / "user", home / "inner"):
        folder.mkdir(parents=True)
    (tmp_path / "file").touch()
    for folder in _unsuitable(tmp_path):
        told: list[str] = []
        assert await create_checkpoint(folder, home, "", told.append) is None, folder
        assert len(told) == 1 and told[0].startswith("No checkpoint was made: ")
    assert not (home / "checkpoints").exists()


async def test_without_git(work: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "find_git", lambda: "")
    told: list[str] = []
    assert await create_checkpoint(work, home, "", told.append) is None
    assert "git is not installed" in told[0]
    assert await list_checkpoints(work, home) == []


# -- over time ---------------------------------------------------------------------------------


async def test_old_ones_are_forgotten(
    work: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "KEEP_COUNT", 3)
    made = []
    for n in range(5):
        (work / "a").write_text(str(n))
        made.append(await create_checkpoint(work, home, str(n)))
    assert [c.label for c in await list_checkpoints(work, home)] == ["4", "3", "2"]
    assert await prune_checkpoints(work, home, keep=1) == 2
    (left,) = await list_checkpoints(work, home)
    await restore_checkpoint(work, home, left.id)
    assert (work / "a").read_text() == "4"
    later = time.time() + 40 * 86400
    monkeypatch.setattr(time, "time", lambda: later)
    assert await prune_checkpoints(work, home) == 2
    assert await list_checkpoints(work, home) == []
    objects = shadow_repo.repository_folder(work, home) / "git" / "objects"
    loose = [p for p in objects.glob("??/*") if p.is_file()]
    assert len(loose) <= 2, "what nothing holds is gone from the disk, but for the index"


async def test_many_files_and_many_snapshots(
    work: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bulk and packing change how things are kept, not what is."""
    monkeypatch.setattr(file_index, "_BULK_FILES", 3)
    monkeypatch.setattr(shadow_repo.ShadowRepository, "needs_packing", lambda self: True)
    states = []
    for n in range(4):
        for k in range(10):
            (work / f"{n}-{k}").write_bytes(os.urandom(k * 10))
        made = await create_checkpoint(work, home, str(n))
        assert made is not None
        states.append((made.id, tree(work)))
    objects = shadow_repo.repository_folder(work, home) / "git" / "objects"
    assert len(list(objects.glob("pack/*.pack"))) == 1
    for id, state in reversed(states):
        await restore_checkpoint(work, home, id)
        assert tree(work) == state


async def test_snapshots_at_once_and_a_lock_left_behind(work: Path, home: Path) -> None:
    (work / "a").write_text("1")
    assert await create_checkpoint(work, home, "first")
    (shadow_repo.repository_folder(work, home) / "git" / "index.lock").touch()
    made = await asyncio.gather(*(create_checkpoint(work, home, str(n)) for n in range(6)))
    assert all(made) and len({c.id for c in made if c}) == 6
    assert len(await list_checkpoints(work, home)) == 7


async def test_the_shadow_is_private(work: Path, home: Path) -> None:
    (work / "a").write_text("1")
    assert await create_checkpoint(work, home, "")
    for folder in (home, home / "checkpoints", shadow_repo.repository_folder(work, home)):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
