"""The stand-in for a .git: a copy of what changes, and the rest of it to look at."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from hermes.config.paths import private_folder
from hermes.exec.launcher.placeholders import PLACEHOLDER
from hermes.exec.snapshots.shadow_repo import find_git

MAX_FILES = 20_000
MAX_BYTES = 256 << 20
TREES = ("refs", "logs")
"""Folders that are copied whole."""
UNDERWAY = ("rebase-merge", "rebase-apply", "sequencer", "BISECT_LOG", "BISECT_START")
"""What stands here while git is in the middle of something. Plans of a rebase name commands."""
_SHOWN = ("hooks", "config", "config.worktree", "info", "modules", "worktrees", "lfs")
"""Of the repository itself, read-only."""
_OBJECTS = "objects-of-the-repository"
_SETTINGS = "settings-of-the-user"
_OLD = 86400.0
_IDENTITY = {"user.name": "Hermes", "user.email": "hermes@localhost"}
_KNOWN = r"^(user\.(name|email)|init\.defaultbranch|core\.(autocrlf|filemode|quotepath|eol))$"


class Copy(Struct, frozen=True):
    folder: Path
    """The stand-in."""
    git: Path
    """The repository's own."""
    workspace: Path
    before: Mapping[str, str]
    """Name -> digest, for every file that was copied."""
    fresh: bool = False
    """There is no repository yet: the stand-in is empty."""


def make(workspace: Path, home: Path) -> Copy | str:
    """The stand-in, or why there can be none."""
    workspace = Path(os.path.realpath(workspace))
    git = workspace / ".git"
    if find_git() and missing(git):
        copy = _folder(home) / "git"
        copy.mkdir(mode=0o700)
        return Copy(copy, git, workspace, {}, fresh=True)
    if why := _unusual(git):
        return why
    folder = _folder(home)
    copy = folder / "git"
    before: dict[str, str] = {}
    total = 0
    try:
        copy.mkdir(mode=0o700)
        for name, data in _files(git):
            if data is None:
                continue
            total += len(data)
            if len(before) >= MAX_FILES or total > MAX_BYTES:
                shutil.rmtree(folder, ignore_errors=True)
                return "the repository has too many branches, or too large an index"
            before[name] = digest(data)
            _write(copy / name, data)
        _prepare(copy, git)
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        return f"the repository cannot be copied ({error.strerror})"
    return Copy(copy, git, workspace, before)


def missing(git: Path) -> bool:
    """Nothing is there, or only what holds its place while a command runs."""
    try:
        return os.lstat(git).st_mode == PLACEHOLDER
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _unusual(git: Path) -> str:
    """Repositories in one folder, with files for references, are what is understood here."""
    if not find_git():
        return "git is not installed"
    try:
        if not stat.S_ISDIR(os.lstat(git).st_mode):
            return "its .git is no folder"
        names = {path.name for path in git.iterdir()}
    except OSError:
        return "this folder has no repository of its own"
    if not {"HEAD", "objects", "refs", "config"} <= names:
        return "it is no ordinary repository"
    if names & {"commondir", "reftable"} or any(n.startswith("sharedindex.") for n in names):
        return "its repository is of an unusual kind"
    if underway := sorted(names & set(UNDERWAY)):
        return f"git is in the middle of something there ({underway[0]})"
    return ""


def _files(git: Path) -> Iterator[tuple[str, bytes | None]]:
    """Name and content of what is copied: files at the top, and all below some folders."""
    with os.scandir(git) as entries:
        top = [e.name for e in entries if e.is_file(follow_symlinks=False)]
    for name in top:
        if name not in _SHOWN and not name.endswith(".lock"):
            yield name, read(git / name)
    for tree in TREES:
        for name, folder in walk(git, tree):
            yield name, read(Path(name).name, folder=folder)


def walk(root: Path, tree: str) -> Iterator[tuple[str, int]]:
    """The files below `tree`: each name, relative to `root`, and its open folder. No link is
    followed, whoever puts one there meanwhile."""
    handle = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if tree not in os.listdir(handle):  # noqa: PTH208 - a new repository has no logs yet
            return
        for folder, _, names, fd in os.fwalk(tree, dir_fd=handle):
            for name in names:
                if not name.endswith(".lock"):
                    yield f"{folder}/{name}", fd
    finally:
        os.close(handle)


def opened(path: Path | str, folder: int | None = None) -> int:
    """A regular file to read, or -1 for anything else; never waits, never follows a link."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = os.open(path, flags, dir_fd=folder)
    except OSError:
        return -1
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    return -1


def read(path: Path | str, limit: int = MAX_BYTES, *, folder: int | None = None) -> bytes | None:
    """A regular file's content; None for anything else, and for what is too long."""
    fd = opened(path, folder)
    if fd < 0:
        return None
    with os.fdopen(fd, "rb") as file:
        data = file.read(limit + 1)
    return data if len(data) <= limit else None


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _prepare(copy: Path, git: Path) -> None:
    for tree in TREES:
        (copy / tree).mkdir(exist_ok=True)
    for name in ("heads", "tags"):
        (copy / "refs" / name).mkdir(exist_ok=True)
    (copy / "objects" / "info").mkdir(parents=True)
    (copy / "objects" / "pack").mkdir()
    (copy / "objects" / "info" / "alternates").write_text(f"../{_OBJECTS}\n")
    (copy / _OBJECTS).mkdir()
    for name in _SHOWN:
        real = git / name
        if real.is_dir():
            (copy / name).mkdir()
        elif real.is_file():
            (copy / name).touch()


def places(copy: Copy) -> tuple[tuple[Path, Path, bool], ...]:
    """What is seen where, and whether it may be changed there."""
    if copy.fresh:
        return ((copy.git, copy.folder, True),)
    found = [(copy.git, copy.folder, True), (copy.git / _OBJECTS, copy.git / "objects", False)]
    found += [(copy.git / n, copy.git / n, False) for n in _SHOWN if (copy.git / n).exists()]
    return tuple(found)


def environment(copy: Copy) -> dict[str, str]:
    return {"GIT_CONFIG_GLOBAL": str(copy.git / _SETTINGS)}


def write_identity(copy: Copy, env: Mapping[str, str]) -> None:
    """The user's name and the like, from settings that are hidden from the command."""
    found = dict(_IDENTITY)
    argv = [find_git(), "config", "--global", "--includes", "-z", "--get-regexp", _KNOWN]
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(
            argv, env=dict(env), cwd="/", capture_output=True, timeout=10, check=False
        )
        for entry in done.stdout.decode("utf-8", "replace").split("\0"):
            key, _, value = entry.partition("\n")
            if key and value:
                found[key] = value
    lines = []
    for key, value in found.items():
        section, _, name = key.partition(".")
        quoted = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
        lines.append(f'[{section}]\n\t{name} = "{quoted}"\n')
    (copy.folder / _SETTINGS).write_text("".join(lines))


def _folder(home: Path) -> Path:
    """A new private folder; those of agents that were killed are cleared away."""
    parent = home / "cache" / "stand-ins"
    private_folder(parent)
    with os.scandir(parent) as entries:
        for entry in entries:
            if time.time() - entry.stat(follow_symlinks=False).st_mtime > _OLD:
                shutil.rmtree(entry.path, ignore_errors=True)
    return Path(tempfile.mkdtemp(dir=parent))


def remove(copy: Copy) -> None:
    shutil.rmtree(copy.folder.parent, ignore_errors=True)
