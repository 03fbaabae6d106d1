"""The overlay for a .git: a copy of the parts that change, and the rest of it read-only."""

import contextlib
import hashlib
import os
import re
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from hermes.config.paths import make_private_folder
from hermes.exec.launcher.placeholders import is_free
from hermes.exec.path_rules import list_names
from hermes.exec.sandbox.planted_files import find_git_references
from hermes.exec.sandbox.policy import PathOverlay
from hermes.exec.snapshots.safe_git import find_git

MAX_FILES = 20_000
MAX_BYTES = 256 << 20
COPIED_TREES = ("refs", "logs")
UNFINISHED_OPERATIONS = ("rebase-merge", "rebase-apply", "sequencer", "BISECT_LOG", "BISECT_START")
"""Names that exist in the middle of an operation. Plans of a rebase contain commands."""
_READ_ONLY_NAMES = ("hooks", "config", "config.worktree", "info", "modules", "worktrees", "lfs")
"""Shown from the repository itself, read-only."""
_FOLDERS = ("refs/heads", "refs/tags", "logs", "objects/info", "objects/pack")
_OBJECTS_NAME = "objects-of-the-repository"
_SETTINGS_NAME = "settings-of-the-user"
_IGNORED_NAME = "names-that-are-held"
_MAX_AGE = 86400.0
_IGNORED = "core.excludesfile"
_DEFAULT_IDENTITY = {"user.name": "Hermes", "user.email": "hermes@localhost"}
_COPIED_SETTINGS = (
    r"^(user\.(name|email)|init\.defaultbranch|filter\..*|pull\.rebase|merge\.ff"
    r"|core\.(autocrlf|safecrlf|filemode|quotepath|eol|excludesfile))$"
)
"""Without the filters of Git LFS and the like, other content than the user's would be added."""


class OverlayUnavailable(Exception):
    """The reason why there can be no overlay."""


class GitOverlay(Struct, frozen=True):
    """The copy of a repository that one command works on."""

    folder: Path
    git: Path
    workspace: Path
    before: Mapping[str, str]
    """Name -> hash, for every file that was copied."""
    is_new_repository: bool = False
    """There is no repository yet: the copy is empty."""

    @property
    def mounts(self) -> tuple[PathOverlay, ...]:
        """The copy in place of .git, and inside it the parts of the repository that are shown."""
        git = self.git
        whole = PathOverlay(git, self.folder, writable=True)
        if self.is_new_repository:
            return (whole,)
        shown = [name for name in _READ_ONLY_NAMES if (git / name).exists()]
        return (
            whole,
            PathOverlay(git / _OBJECTS_NAME, git / "objects", writable=False),
            *(PathOverlay(git / name, git / name, writable=False) for name in shown),
        )

    @property
    def env(self) -> dict[str, str]:
        """For git inside: the user's settings are not visible there."""
        return {"GIT_CONFIG_GLOBAL": str(self.git / _SETTINGS_NAME)}


def create_overlay(workspace: Path, home: Path, env: Mapping[str, str]) -> GitOverlay:
    """Copy what changes of the repository in `workspace`; blocking. Raises OverlayUnavailable when
    there can be no overlay: .git then stays read-only."""
    copy = _create_copy(workspace, home)
    _write_identity(copy, env)
    return copy


def _create_copy(workspace: Path, home: Path) -> GitOverlay:
    workspace = Path(os.path.realpath(workspace))
    git = workspace / ".git"
    if find_git() and is_free(os.fsencode(git)):
        copy = _create_folder(home) / "git"
        copy.mkdir(mode=0o700)
        return GitOverlay(copy, git, workspace, {}, is_new_repository=True)
    _check_ordinary(git)
    folder = _create_folder(home)
    copy = folder / "git"
    before: dict[str, str] = {}
    total = 0
    try:
        copy.mkdir(mode=0o700)
        for name, data in _list_files(git):
            if data is None:
                continue
            total += len(data)
            if len(before) >= MAX_FILES or total > MAX_BYTES:
                raise OverlayUnavailable(
                    "the repository has too many branches, or too large an index"
                )
            before[name] = hash_content(data)
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_bytes(data)
        _prepare_folders(copy, git)
    except (OSError, OverlayUnavailable) as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, OverlayUnavailable):
            raise
        reason = f"the repository cannot be copied ({error.strerror})"
        raise OverlayUnavailable(reason) from None
    return GitOverlay(copy, git, workspace, before)


def _check_ordinary(git: Path) -> None:
    """Raise OverlayUnavailable unless the repository is one folder with files for references."""
    if not find_git():
        raise OverlayUnavailable("git is not installed")
    try:
        if not stat.S_ISDIR(os.lstat(git).st_mode):
            raise OverlayUnavailable("its .git is not a folder")
        names = {path.name for path in git.iterdir()}
    except OSError:
        raise OverlayUnavailable("this folder has no repository of its own") from None
    if not {"HEAD", "objects", "refs", "config"} <= names:
        raise OverlayUnavailable("it is not an ordinary repository")
    if names & {"commondir", "reftable"} or any(n.startswith("sharedindex.") for n in names):
        raise OverlayUnavailable("its repository is of an unusual kind")
    if unfinished := sorted(names & set(UNFINISHED_OPERATIONS)):
        raise OverlayUnavailable(f"git is in the middle of an operation there ({unfinished[0]})")


def _list_files(git: Path) -> Iterator[tuple[str, bytes | None]]:
    """Name and content of the files to copy: those at the top, and all below some folders."""
    with os.scandir(git) as entries:
        top = [e.name for e in entries if e.is_file(follow_symlinks=False)]
    for name in top:
        if name not in _READ_ONLY_NAMES and not name.endswith(".lock"):
            yield name, read_regular(git / name)
    for tree in COPIED_TREES:
        for name, folder in walk_files(git, tree):
            yield name, read_regular(Path(name).name, folder=folder)


def walk_files(root: Path, tree: str) -> Iterator[tuple[str, int]]:
    """The files below `tree`: each name, relative to `root`, and its open folder. No link is
    followed, even if somebody creates one meanwhile."""
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


def open_regular(path: Path | str, folder: int | None = None) -> int:
    """Open a regular file for reading; -1 for anything else. Never waits, never follows a link."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = os.open(path, flags, dir_fd=folder)
    except OSError:
        return -1
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    return -1


def read_regular(
    path: Path | str, limit: int = MAX_BYTES, *, folder: int | None = None
) -> bytes | None:
    """The content of a regular file; None for anything else, and when it is too long."""
    fd = open_regular(path, folder)
    if fd < 0:
        return None
    with os.fdopen(fd, "rb") as file:
        data = file.read(limit + 1)
    return data if len(data) <= limit else None


def hash_content(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _prepare_folders(copy: Path, git: Path) -> None:
    for name in (*_FOLDERS, _OBJECTS_NAME):
        (copy / name).mkdir(parents=True, exist_ok=True)
    (copy / "objects" / "info" / "alternates").write_text(f"../{_OBJECTS_NAME}\n")
    for name in _READ_ONLY_NAMES:
        real = git / name
        if real.is_dir():
            (copy / name).mkdir()
        elif real.is_file():
            (copy / name).touch()


def _write_identity(copy: GitOverlay, env: Mapping[str, str]) -> None:
    """Copy the user's name and the like from settings that are hidden from the command. What the
    user ignores everywhere is ignored, and so are placeholders: git cannot add or remove them."""
    found = dict(_DEFAULT_IDENTITY)
    argv = [find_git(), "config", "--global", "--includes", "-z", "--get-regexp", _COPIED_SETTINGS]
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(
            argv, env=dict(env), cwd="/", capture_output=True, timeout=10, check=False
        )
        for entry in done.stdout.decode("utf-8", "replace").split("\0"):
            key, _, value = entry.partition("\n")
            if key and value:
                found[key] = value
    home = env.get("HOME") or "/"
    usual = f"{env.get('XDG_CONFIG_HOME') or f'{home}/.config'}/git/ignore"
    ignored = read_regular(os.path.realpath(re.sub(r"\A~(?=/)", home, found.get(_IGNORED, usual))))
    found[_IGNORED] = str(copy.git / _IGNORED_NAME)
    held = [str(copy.workspace / name) for name in list_names("guard", scope="top")]
    held += find_git_references(copy.workspace, Path(home))
    missing = (path for path in held if is_free(path) or not os.path.exists(path))  # noqa: PTH110
    names = "".join(f"\n/{os.path.relpath(path, copy.workspace)}" for path in missing)
    (copy.folder / _IGNORED_NAME).write_bytes((ignored or b"") + os.fsencode(names))
    lines = []
    for key, value in found.items():
        section, _, name = key.rpartition(".")
        head = re.sub(r"\.(.*)", r' "\1"', section)
        quoted = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
        lines.append(f'[{head}]\n\t{name} = "{quoted}"\n')
    (copy.folder / _SETTINGS_NAME).write_text("".join(lines))


def _create_folder(home: Path) -> Path:
    """Create a private folder; those of agents that were killed are removed."""
    parent = home / "cache" / "stand-ins"
    make_private_folder(parent)
    with os.scandir(parent) as entries:
        for entry in entries:
            if time.time() - entry.stat(follow_symlinks=False).st_mtime > _MAX_AGE:
                shutil.rmtree(entry.path, ignore_errors=True)
    return Path(tempfile.mkdtemp(dir=parent))


def remove_copy(copy: GitOverlay) -> None:
    shutil.rmtree(copy.folder.parent, ignore_errors=True)
