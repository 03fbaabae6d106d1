"""Finds paths in a workspace that programs outside the sandbox obey: no command may plant them."""

# ruff: noqa: PTH110, PTH112, PTH113, PTH114, PTH116, PTH118, PTH120, PTH208
import heapq
import os
import re
import shlex
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from functools import lru_cache, wraps
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from hermes.exec.launcher.libc import read_birth_time
from hermes.exec.launcher.placeholders import is_bare_repository, is_free
from hermes.exec.path_rules import list_names, resolve_links

_Found = TypeVar("_Found")
_ALWAYS_PROTECTED = (".git", *list_names("guard", scope="top"))
_STEERING = list_names("ask", scope="anywhere")
_STEERING_NAMES = frozenset(_STEERING)
_STEERING_ENDINGS = tuple(name[1:] for name in _STEERING if name.startswith("*"))
_STEERING_PATHS = [name for name in _STEERING if "/" in name]
_PROTECTED_IF_PRESENT = [*_STEERING, *list_names("ask", scope="top")]
"""Not protected when missing: so many placeholders would show in every listing. New instructions
for agents are only read once the user has trusted them."""
_MAX_SUBMODULES = 200
_STEERING_AT_HOME = list_names("guard", "ask", scope="home")
FILES_AT_HOME = [name for name in _STEERING_AT_HOME if not name.endswith("/")]
_HOME_FOLDERS = ("/root", "/home")
_GIT_SETTING = re.compile(
    r"^[ \t]*(?:\[[^\]\n]*\][ \t]*)?(hookspath|path|fsmonitor|sshcommand|editor|pager|external"
    r"|textconv|clean|smudge|process|command|cmd|driver|helper|program|difffilter|askpass"
    r"|defaultkeycommand|templatedir|[\w-]+(?=[ \t]*=[ \t]*\"?!))"
    r"[ \t]*=[ \t]*(\S[^\n]*)",
    re.IGNORECASE | re.MULTILINE,
)
_REMOTE = re.compile(r"^[ \t]*\[remote[ \t]+\"([^\"\\\n]+)\"\]", re.IGNORECASE | re.MULTILINE)
_RESTED_NS = 1_000_000_000
_MAX_INCLUDED = 50
_MAX_BYTES = 256 * 1024
_MAX_FOLDERS = 1000
_MAX_DEPTH = 4
_MAX_STEERING = 10
"""How many files and folders further down are protected: each costs every start about 1 ms."""
_SKIPPED_FOLDERS = frozenset(
    "node_modules __pycache__ site-packages .venv venv .tox .cache .git".split()
)


def _remember_while_unchanged(
    read: Callable[[str], tuple[_Found, ...]],
) -> Callable[[str], tuple[_Found, ...]]:
    """What `read` finds in a file or folder, read anew when that has changed or may have."""

    @lru_cache(maxsize=256)
    def read_rested(path: str, inode: int, size: int, changed: int) -> tuple[_Found, ...]:
        return read(path)

    @wraps(read)
    def read_if_changed(path: str) -> tuple[_Found, ...]:
        try:
            found = os.stat(path)
        except OSError:
            return ()
        # Two changes within one tick of the file system's clock look like one.
        if time.time_ns() - found.st_ctime_ns < _RESTED_NS:
            return read(path)
        return read_rested(path, found.st_ino, found.st_size, found.st_ctime_ns)

    return read_if_changed


class PlantablePaths(Struct, frozen=True):
    """For `SandboxPolicy`."""

    protected: tuple[Path, ...]
    """Read-only; where missing, an empty folder keeps them from being created."""
    kept_missing: tuple[Path, ...]
    """The same for names at which a folder would disturb programs that read them meanwhile."""
    removed_after: tuple[Path, ...]
    """Names at which any placeholder would disturb git."""


def find_plantable_paths(
    workspace: Path, user_home: Path, programs: Iterable[str]
) -> PlantablePaths:
    """What a command must not plant in `workspace`: all of its .git, as many files in it make git
    run programs (commands that commit get an overlay, see exec.commits), and the .git of every
    submodule. `programs` are folders in a home from which others run programs."""
    root = os.fspath(workspace)
    names = [
        *_ALWAYS_PROTECTED,
        *(n for n in _PROTECTED_IF_PRESENT if os.path.lexists(f"{root}/{n}")),
        *(n for n in _list_names(root) if n.endswith(_STEERING_ENDINGS)),
    ]
    names += _list_submodules(root)
    if is_free(f"{root}/.git") and is_bare_repository(os.fsencode(root)):
        names += ["HEAD", "config", "hooks"]
    protected = [f"{root}/{name}" for name in names]
    protected += [path for path in _find_nested_settings(root) if os.path.lexists(path)]
    kept_missing: list[str] = []
    _follow_git(root, os.fspath(user_home), protected, kept_missing)
    for home in _find_homes(root, os.fspath(user_home)):
        folders = [name for name in _STEERING_AT_HOME if name.endswith("/")]
        protected += [f"{home}/{name}".rstrip("/") for name in folders]
        files = [f"{home}/{name}" for name in FILES_AT_HOME]
        kept_missing += [path for path in files if os.path.isdir(os.path.dirname(path))]
        protected += [f"{home}/{name}" for name in programs if os.path.exists(f"{home}/{name}")]
    inner = [p for p in _find_nested_settings(root) if p.endswith("/.git/config")]
    removed = [f"{os.path.dirname(path)}/commondir" for path in inner]
    return PlantablePaths(*map(_unique_paths, (protected, kept_missing, removed)))


def _unique_paths(found: list[str]) -> tuple[Path, ...]:
    return tuple(map(Path, dict.fromkeys(found)))


def _list_submodules(root: str) -> list[str]:
    paths = re.findall(
        r"^\s*path\s*=\s*\"?([^\"\n]+?)\"?\s*$", _read_text(f"{root}/.gitmodules"), re.MULTILINE
    )
    return [f"{path}/.git" for path in paths[:_MAX_SUBMODULES]]


@lru_cache(maxsize=256)
def _find_nested_settings(root: str) -> tuple[str, ...]:
    """Files further down that git or other programs obey, and that existed when we first looked:
    commands may change what they create."""
    found: list[str] = []
    steering: list[str] = []
    for folder, names in _scan_folders(root):
        if folder != root:
            found += _list_settings(f"{folder}/.git", is_folder=names.get(".git", False))
            steering += [f"{folder}/{name}" for name in _filter_steering(folder, names)]
    # Decoys that a command made come last: nobody can make a file look as if it were older.
    return (*found, *sorted(steering, key=_get_change_time)[:_MAX_STEERING])


@_remember_while_unchanged
def list_links(folder: str) -> tuple[str, ...]:
    """The links in a folder, not further down."""
    with suppress(OSError), os.scandir(folder) as entries:
        return tuple(entry.path for entry in entries if entry.is_symlink())
    return ()


@lru_cache(maxsize=64)
def find_nested_links(root: str) -> tuple[str, ...]:
    """Those of the settings further down that are links, or in a folder that is one."""
    return tuple(path for path in _find_nested_settings(root) if resolve_links(path) != path)


def _scan_folders(root: str) -> Iterator[tuple[str, dict[str, bool]]]:
    """The oldest folders of a tree, each with its names and whether these are folders: however many
    a command makes, those that were there before come first."""
    waiting = [(0, root, 0)]
    for _ in range(_MAX_FOLDERS):
        if not waiting:
            return
        _, folder, depth = heapq.heappop(waiting)
        names: dict[str, bool] = {}
        with suppress(OSError), os.scandir(folder) as entries:
            names = {e.name: e.is_dir(follow_symlinks=False) for e in entries}
        yield folder, names
        inner = (n for n, is_folder in names.items() if is_folder and n not in _SKIPPED_FOLDERS)
        for path in (f"{folder}/{name}" for name in inner if depth < _MAX_DEPTH):
            made = read_birth_time(path) or _get_change_time(path)
            heapq.heappush(waiting, (made, path, depth + 1))


def _get_change_time(path: str) -> int:
    try:
        return os.lstat(path).st_ctime_ns
    except OSError:
        return 0


def _filter_steering(folder: str, names: Collection[str]) -> Iterator[str]:
    for name in names:
        if name in _STEERING_NAMES or name.endswith(_STEERING_ENDINGS):
            yield name
    for path in _STEERING_PATHS:
        if path.partition("/")[0] in names and os.path.lexists(f"{folder}/{path}"):
            yield path


def _list_settings(git: str, *, is_folder: bool) -> list[str]:
    if is_folder:
        return [f"{git}/{n}" for n in ("config", "hooks") if os.path.lexists(f"{git}/{n}")]
    return [git] if os.path.lexists(git) else []


def find_main_repository(workspace: Path) -> Path | None:
    """The repository that a linked worktree belongs to. The worktree names it, but that alone could
    name any folder: the repository must list this worktree in turn."""
    top = os.fspath(workspace)
    entry = resolve_links(_read_git_link(top))
    folder, listed = os.path.dirname(entry), _read_text(f"{entry}/gitdir").strip()
    if not folder.endswith("/worktrees") or not listed:
        return None
    main = os.path.dirname(folder)
    is_listed = _join_path(entry, listed) == f"{top}/.git"
    return Path(main) if is_listed and os.path.isdir(f"{main}/objects") else None


def _read_git_link(root: str) -> str:
    """Where a workspace has its part of a repository."""
    git = f"{root}/.git"
    if os.path.isfile(git):
        found = re.match(r"gitdir: ([^\n]+)", _read_text(git))
        git = _join_path(root, found[1]) if found else git
    return git


def _read_repository(
    root: str, user_home: str
) -> tuple[tuple[str, str], list[str], list[tuple[str, str]]]:
    """The folders of the repository, its files of settings, and what these refer to."""
    git = _read_git_link(root)
    common = _join_path(git, _read_text(f"{git}/commondir").strip() or ".")
    outer = [f"{user_home}/.gitconfig", f"{user_home}/.config/git/config", "/etc/gitconfig"]
    files = [f"{common}/config", f"{git}/config.worktree", *outer]
    references: list[tuple[str, str]] = []
    for file in files:
        for key, path in _settings_with_paths(file, root, user_home):
            references.append((key, path))
            if key == "path" and path not in files and len(files) < _MAX_INCLUDED:
                files.append(path)
    return (git, common), files, references


def _follow_git(root: str, user_home: str, protected: list[str], kept_missing: list[str]) -> None:
    """Add the files inside the workspace that the repository's settings refer to, also by links."""
    folders, _, references = _read_repository(root, user_home)
    led = [folder for folder in dict.fromkeys(folders) if _is_within(root, folder)]
    hooks = [f"{folders[1]}/hooks"]
    for key, path in references:
        if not _is_within(root, path) or _is_within(f"{root}/.git", path):
            continue
        if key == "hookspath":
            hooks.append(path)
            led.append(path)
        elif key == "path":
            (led if os.path.lexists(path) else kept_missing).append(path)
        elif os.path.isfile(path) or (key == "templatedir" and os.path.isdir(path)):
            led.append(path)
    protected += led
    for name in (*led, *hooks, *(link for folder in hooks for link in list_links(folder))):
        path = resolve_links(name) if _leads_elsewhere(root, name) else name
        if _is_within(root, path) and not any(_is_within(p, f"{path}/") for p in led):
            protected.append(path)


def list_hooks_and_remotes(folder: str, user_home: str) -> tuple[set[str], set[str]] | None:
    """What git runs in the repository that it finds there, and its names for other repositories."""
    above = (folder, *map(os.fspath, Path(folder).parents))
    top = next((path for path in above if os.path.lexists(f"{path}/.git")), None)
    if top is None:
        return None
    (_, common), files, references = _read_repository(top, user_home)
    folders = [path for key, path in references if key == "hookspath"] or [f"{common}/hooks"]
    hooks = {name for folder in folders for name in _list_names(folder)}
    return hooks, set(_REMOTE.findall("\n".join(map(_read_text, files))))


def find_git_references(workspace: Path, user_home: Path) -> list[str]:
    """The files and folders inside the workspace that its repository's settings refer to."""
    found: list[str] = []
    _follow_git(os.fspath(workspace), os.fspath(user_home), found, found)
    return found


def _settings_with_paths(file: str, root: str, user_home: str) -> Iterator[tuple[str, str]]:
    """Keys of settings that refer to files, and the paths of those files."""
    for key, word in _read_settings(file):
        place = user_home + word[1:] if word.startswith("~/") else word
        yield key, _join_path(os.path.dirname(file) if key == "path" else root, place)


@_remember_while_unchanged
def _read_settings(file: str) -> tuple[tuple[str, str], ...]:
    """Keys of settings that refer to files, and the words of their values."""
    found: list[tuple[str, str]] = []
    for key, value in _GIT_SETTING.findall(_read_text(file)):
        key, text = key.lower(), _unquote_value(value)
        try:
            words = shlex.split(text)
        except ValueError:
            words = text.split()
        words = [text] if key in ("path", "hookspath") else words
        found += [(key, word) for word in (word.lstrip("!") for word in words) if word]
    return tuple(found)


def _unquote_value(value: str) -> str:
    """The value as git reads it: without quotes and comments, which begin anywhere."""
    reader = shlex.shlex(value.replace("\\\\", "\\"), posix=True)
    reader.whitespace_split, reader.commenters = True, "#;"
    try:
        return " ".join(reader)
    except ValueError:
        return value


def _find_homes(root: str, user_home: str) -> list[str]:
    """Home folders that are the workspace or inside it."""
    found = {user_home, *_HOME_FOLDERS[:1]}
    if _is_within(root, _HOME_FOLDERS[1]) or root == _HOME_FOLDERS[1]:
        found |= {f"{_HOME_FOLDERS[1]}/{name}" for name in _list_names(_HOME_FOLDERS[1])}
    elif os.path.dirname(root) == _HOME_FOLDERS[1]:
        found.add(root)
    return sorted(h for h in found if (h == root or _is_within(root, h)) and os.path.isdir(h))


def _list_names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _read_text(path: str) -> str:
    if not os.access(path, os.R_OK):  # most do not exist: an exception takes ten times as long
        return ""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    with os.fdopen(fd, "rb") as file:
        try:
            return os.fsdecode(file.read(_MAX_BYTES))
        except OSError:
            return ""


def _leads_elsewhere(root: str, path: str) -> bool:
    """Whether there is a link in what follows the real path `root`; also for paths outside."""
    if not _is_within(root, path):
        return True
    while path != root:
        if os.path.islink(path):
            return True
        path = os.path.dirname(path)
    return False


def _join_path(folder: str, path: str) -> str:
    return os.path.normpath(os.path.join(folder, path))


def _is_within(root: str, path: str) -> bool:
    return path.startswith(f"{root}/")
