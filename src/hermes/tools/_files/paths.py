"""Resolves paths that models write, and decides which files the file tools may touch."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import BinaryIO
from unicodedata import normalize
from urllib.parse import unquote

from hermes.core.errors import ToolError
from hermes.core.tool import Workspace
from hermes.tools._files.descriptors import open_exact, stat_exact

_FILE_URL = "file://"
_QUOTES = "\"'`"


def resolve_path(raw: str, cwd: Path) -> Path:
    """The real path of a file: `~` expanded, relative to `cwd`, links followed."""
    if not raw.strip():
        raise ToolError("The path is empty.")
    try:
        return Path(os.path.realpath(interpret_path(raw, cwd)))
    except (ValueError, RuntimeError, OSError) as error:
        raise ToolError(f"Not a usable path: {raw[:200]!r} ({error}).") from None


def check_access(path: Path, workspace: Workspace, *, write: bool) -> None:
    """Raise ToolError when file tools may not read (or write) this real path, whoever allows it."""
    reason = _explain_refusal(
        path,
        find_real_path(workspace.home),
        (find_real_path(workspace.outputs), *workspace.readable),
        find_real_path(workspace.cwd),
        find_user_home(workspace),
        write=write,
    )
    if any(is_inside(path, folder) for folder in workspace.hidden):
        reason = "it is kept from this conversation"
    if reason:
        verb = "write" if write else "read"
        raise ToolError(
            f"Denied: file tools may not {verb} {path}: {reason}. Do not try another way; "
            "tell the user what you need."
        )


@lru_cache(maxsize=64)
def find_real_path(folder: Path) -> Path:
    """The real path of a folder that stays where it is: the workspace, or one of the agent's."""
    return Path(os.path.realpath(folder))


def is_inside(path: Path, folder: Path) -> bool:
    """Whether a real path is this folder or in it; `Path.is_relative_to` takes five times as
    long, and `relative_to` as well."""
    return f"{path}/".startswith(os.path.join(folder, ""))  # noqa: PTH118


def find_user_home(workspace: Workspace) -> Path:
    return _make_path(workspace.child_env.get("HOME") or os.path.expanduser("~"))  # noqa: PTH111


_make_path = lru_cache(maxsize=8)(Path)


@contextmanager
def open_file(path: Path, workspace: Workspace) -> Iterator[tuple[BinaryIO, os.stat_result]]:
    """Opens a regular file that file tools may read, by its real path. A second name of one of the
    agent's own files is not even opened: closing a database file drops the locks this process has
    on it."""
    check_access(path, workspace, write=False)
    _reject_second_name(path.stat(follow_symlinks=False), path, workspace)
    fd = open_exact(path, os.O_RDONLY | os.O_NONBLOCK)
    with ExitStack() as stack:
        stack.callback(os.close, fd)
        status = os.fstat(fd)
        _reject_second_name(status, path, workspace)
        if not is_regular(status):
            raise ToolError(f"{path} is a directory, device, pipe or socket, not a file.")
        yield stack.enter_context(os.fdopen(fd, "rb", closefd=False)), status


def check_listed_file(path: Path, workspace: Workspace) -> None:
    """Raise ToolError or OSError unless the name of this file may be shown."""
    check_access(path, workspace, write=False)
    _reject_second_name(stat_exact(path), path, workspace)


def _reject_second_name(found: os.stat_result, path: Path, workspace: Workspace) -> None:
    if found.st_nlink > 1 and any(
        os.path.samestat(found, own) for own in _stat_own_files(workspace.home)
    ):
        raise ToolError(f"Denied: {path} is a hard link to one of the agent's own files.")


def is_regular(status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode)


@lru_cache(maxsize=256)
def _explain_refusal(
    path: Path,
    agent_home: Path,
    open_folders: tuple[Path, ...],
    cwd: Path,
    user_home: Path,
    *,
    write: bool,
) -> str:
    """Why a real path is denied; all others are real paths too. Cached: a call asks several times
    about one path."""
    from hermes.exec.path_rules import belongs_to_agent, explain_denial

    for home in {agent_home, *_list_other_homes(path)}:
        if not is_inside(path, home):
            continue
        if not write and any(is_inside(path, folder) for folder in open_folders):
            continue
        top = path.relative_to(home).parts[:1]
        steers = bool(top) and belongs_to_agent(top[0])
        if steers or not cwd.is_relative_to(home):
            return "it belongs to the agent itself"
    return explain_denial(path, user_home, write=write)


def _list_other_homes(path: Path) -> Iterable[Path]:
    """Default homes of other profiles or users above this path."""
    return (folder for folder in path.parents if folder.name == ".hermes")


def _stat_own_files(home: Path) -> Iterable[os.stat_result]:
    try:
        with os.scandir(home) as entries:
            return [entry.stat() for entry in entries if entry.is_file()]
    except OSError:
        return []


def describe_missing(path: Path) -> str:
    """A sentence that the file does not exist, with similar names."""
    folder = path.parent
    if not os.path.isdir(folder):  # noqa: PTH112 - Path's fails on long names
        while not os.path.isdir(folder):  # noqa: PTH112
            folder = folder.parent
        return f"{path} does not exist; the nearest existing folder is {folder}."
    from difflib import get_close_matches

    names = {entry.name.casefold(): entry.name for entry in islice(folder.iterdir(), 5000)}
    near = [names[hit] for hit in get_close_matches(path.name.casefold(), list(names), n=3)]
    return f"{path} does not exist." + (f" Similar: {', '.join(near)}." if near else "")


def interpret_path(raw: str, cwd: Path) -> Path:
    """The path as written when it exists; else without quotes, white space and `file://`, or with
    its accents composed differently, preferring what exists."""
    plain = _strip_quotes(raw)
    first = _join_path(raw, cwd)
    # A path that leads out of the folder must mean the same when judged and when used.
    if os.path.lexists(first) and (plain == raw or not _leads_away(plain)):
        return first
    readings = [_join_path(text, cwd) for text in _possible_paths(plain)]
    return next((p for p in readings if os.path.lexists(p)), readings[0])


def _join_path(raw: str, cwd: Path) -> Path:
    return cwd / os.path.expanduser(raw)  # noqa: PTH111 - Path's own fails on `~name`


def _strip_quotes(raw: str) -> str:
    text = raw.strip()
    while len(text) > 2 and text[0] == text[-1] and text[0] in _QUOTES:
        text = text[1:-1].strip()
    if text[: len(_FILE_URL)].casefold() == _FILE_URL:
        text = unquote(text[len(_FILE_URL) :].removeprefix("localhost"))
    return text or raw


def _possible_paths(plain: str) -> Iterator[str]:
    yield plain
    if not plain.isascii():
        yield normalize("NFC", plain)
        yield normalize("NFD", plain)
    if plain.startswith("@") and not _leads_away(plain[1:]):
        yield plain[1:]


def _leads_away(text: str) -> bool:
    return text.startswith(("/", "~")) or ".." in Path(text).parts


def find_program(name: str, workspace: Workspace) -> str:
    """The program on the workspace's PATH, or nothing. What is inside the workspace does not count,
    such as an active virtual environment: commands can replace it, and this runs outside their
    sandbox."""
    for folder in workspace.child_env.get("PATH", "").split(os.pathsep):
        program = Path(folder) / name
        is_there = program.is_absolute() and program.is_file() and os.access(program, os.X_OK)
        if is_there and not _is_replaceable(program, workspace):
            return str(program)
    return ""


def find_interpreter(workspace: Workspace) -> str:
    """This Python, or the one beneath its virtual environment if that is inside the workspace."""
    if not _is_replaceable(Path(sys.executable), workspace):
        return sys.executable
    base = str(getattr(sys, "_base_executable", ""))
    if not base or _is_replaceable(Path(base), workspace):
        raise ToolError("Python is inside the workspace, where commands can replace it.")
    return base


def _is_replaceable(program: Path, workspace: Workspace) -> bool:
    root = find_real_path(workspace.cwd)
    return any(is_inside(find_real_path(path), root) for path in (program.parent, program))


def display_path(path: Path, cwd: Path) -> str:
    """The path relative to `cwd` when it is inside, both resolved."""
    start = len(os.path.join(cwd, ""))  # noqa: PTH118
    return str(path)[start:] or "." if is_inside(path, cwd) else str(path)
