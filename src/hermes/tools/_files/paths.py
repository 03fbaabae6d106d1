"""Resolves paths that models write, and decides which files the file tools may touch."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from sys import platform
from typing import BinaryIO
from unicodedata import normalize
from urllib.parse import unquote

from hermes.core.errors import ToolError
from hermes.core.tool import Workspace

_PLATFORM: str = platform
_FILE_URL = "file://"
_QUOTES = "\"'`"
CREDENTIAL_PATHS = (
    (".ssh",),
    (".aws",),
    (".gnupg",),
    (".azure",),
    (".kube",),
    (".password-store",),
    (".mozilla",),
    (".thunderbird",),
    (".config", "gcloud"),
    (".config", "gh"),
    (".config", "google-chrome"),
    (".config", "chromium"),
    (".config", "bravesoftware"),
    (".local", "share", "keyrings"),
    (".docker", "config.json"),
    ("library", "keychains"),
    ("library", "application support", "google", "chrome"),
    ("library", "application support", "firefox"),
    (".netrc",),
    (".pgpass",),
    (".pypirc",),
    (".git-credentials",),
    ("etc", "shadow"),
    ("etc", "gshadow"),
    ("etc", "sudoers"),
    ("etc", "sudoers.d"),
)
"""Folders and files that hold credentials, wherever they are."""
_RUNS_LATER = (
    (".config", "systemd"),
    (".config", "autostart"),
    (".config", "fish"),
    ("library", "launchagents"),
    ("var", "spool", "cron"),
)
"""Other programs run what is written there."""
_RUNS_AT_LOGIN = frozenset(
    ".bashrc .bash_profile .bash_login .bash_logout .profile .zshrc .zshenv .zprofile .zlogin "
    ".bash_aliases .zlogout .kshrc .cshrc .tcshrc .xprofile .xsession .xsessionrc .xinitrc "
    ".pam_environment .gitconfig".split()
)
_SYSTEM_FOLDERS = frozenset("etc boot proc sys dev bin sbin lib lib32 lib64 system library".split())
_SYSTEM_USR_FOLDERS = frozenset("bin sbin lib lib32 lib64 libexec".split())
_OWN_FOLDERS = frozenset(
    "skills plugins cron memory memories logs logins profiles pairing hooks mcp processes cache "
    "checkpoints models outputs run sessions".split()
)
"""Folders of the agent's home that control the agent; protected even when working inside it."""
_OWN_FILES = tuple(
    "config. .config. .env state. auth. trust. .trust active_profile approvals. history. "
    "hermes.".split()
)


def resolve_path(raw: str, cwd: Path) -> Path:
    """The real path of a file: `~` expanded, relative to `cwd`, links followed."""
    if not raw.strip():
        raise ToolError("The path is empty.")
    try:
        return Path(os.path.realpath(interpret_path(raw, cwd)))
    except (ValueError, RuntimeError, OSError) as error:
        raise ToolError(f"Not a usable path: {raw[:200]!r} ({error}).") from None


def check_access(path: Path, workspace: Workspace, *, write: bool) -> None:
    """Raise ToolError when file tools may not read (or write) this resolved path."""
    parts = tuple(part.casefold() for part in path.parts[1:])
    reason = _explain_own_home(path, workspace, write=write)
    if not reason and (_contains_rule(parts, CREDENTIAL_PATHS) or _is_process_memory(parts)):
        reason = "it holds credentials"
    if not reason and write:
        reason = _explain_write_denial(path, parts)
    if reason:
        verb = "write" if write else "read"
        raise ToolError(
            f"Denied: file tools may not {verb} {path}: {reason}. Do not try another way; "
            "tell the user what you need."
        )


@contextmanager
def open_file(path: Path, workspace: Workspace) -> Iterator[tuple[BinaryIO, os.stat_result]]:
    """Opens a regular file that file tools may read, and checks it again by its descriptor: a link
    may have been put in its place meanwhile."""
    check_unopened_file(path, workspace)
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    with ExitStack() as stack:
        stack.callback(os.close, fd)
        status = os.fstat(fd)
        check_access(get_open_path(fd, path), workspace, write=False)
        _reject_second_name(status, path, workspace)
        if not is_regular(status):
            raise ToolError(f"{path} is a directory, device, pipe or socket, not a file.")
        yield stack.enter_context(os.fdopen(fd, "rb", closefd=False)), status


def check_unopened_file(path: Path, workspace: Workspace) -> None:
    """Raise ToolError when the file is a hard link to one of the agent's own. Must be called
    before opening it: closing a database file drops the locks this process has on it."""
    _reject_second_name(path.stat(follow_symlinks=False), path, workspace)


def _reject_second_name(found: os.stat_result, path: Path, workspace: Workspace) -> None:
    if found.st_nlink > 1 and any(
        os.path.samestat(found, own) for own in _stat_own_files(workspace.home)
    ):
        raise ToolError(f"Denied: {path} is a hard link to one of the agent's own files.")


def is_regular(status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode)


def get_open_path(fd: int, path: Path) -> Path:
    """The path of an open file; `path` where the system does not tell."""
    if _PLATFORM == "linux":
        return Path(f"/proc/self/fd/{fd}").readlink()
    if _PLATFORM == "darwin":
        import fcntl

        get_path = getattr(fcntl, "F_GETPATH")  # noqa: B009 - not known on other systems
        return Path(os.fsdecode(fcntl.fcntl(fd, get_path, bytes(1024)).rstrip(b"\0")))
    return path


def _explain_own_home(path: Path, workspace: Workspace, *, write: bool) -> str:
    """Why a path in the agent's home is denied: everything but saved outputs or, when the working
    folder is inside that home, its settings, secrets, history and instructions."""
    for home in {Path(os.path.realpath(workspace.home)), *_list_other_homes(path)}:
        if not path.is_relative_to(home):
            continue
        if path.is_relative_to(os.path.realpath(workspace.outputs)) and not write:
            continue
        top = path.relative_to(home).parts[:1]
        name = top[0].casefold() if top else ""
        steers = name in _OWN_FOLDERS or name.startswith(_OWN_FILES) or ".db" in name
        if steers or not Path(os.path.realpath(workspace.cwd)).is_relative_to(home):
            return "it belongs to the agent itself"
    return ""


def _list_other_homes(path: Path) -> Iterable[Path]:
    """Default homes of other profiles or users above this path."""
    return (folder for folder in path.parents if folder.name == ".hermes")


def _stat_own_files(home: Path) -> Iterable[os.stat_result]:
    try:
        with os.scandir(home) as entries:
            return [entry.stat() for entry in entries if entry.is_file()]
    except OSError:
        return []


def _contains_rule(parts: tuple[str, ...], rules: Iterable[tuple[str, ...]]) -> bool:
    return any(
        parts[at : at + len(rule)] == rule
        for rule in rules
        if rule[0] in parts
        for at in range(len(parts) - len(rule) + 1)
    )


def _is_process_memory(parts: tuple[str, ...]) -> bool:
    return parts[:1] == ("proc",) and parts[-1] in ("environ", "mem", "kcore", "auxv")


def _explain_write_denial(path: Path, parts: tuple[str, ...]) -> str:
    """Why writing to this path is denied; empty when it is not."""
    trimmed = parts[1:] if parts[:1] == ("private",) else parts
    if trimmed[:1] and trimmed[0] in _SYSTEM_FOLDERS:
        return "it belongs to the operating system"
    if trimmed[:1] == ("usr",) and trimmed[1:2] and trimmed[1] in _SYSTEM_USR_FOLDERS:
        return "it belongs to the operating system"
    if _contains_rule(parts, _RUNS_LATER):
        return "other programs run what is written there"
    if parts[-1:] and parts[-1] in _RUNS_AT_LOGIN and _is_home(path.parent):
        return "it is run at every login"
    if ".git" in parts and parts[parts.index(".git") + 1 :] != ("info", "exclude"):
        return "it belongs to git, which runs programs named there"
    return ""


def _is_home(folder: Path) -> bool:
    if folder.parent.name.casefold() in ("home", "users") or folder == Path("/root"):
        return True
    return folder == Path(os.path.realpath(Path("~").expanduser()))


def describe_missing(path: Path) -> str:
    """A sentence that the file does not exist, with similar names."""
    folder = path.parent
    if not folder.is_dir():
        while not folder.is_dir():
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


def find_program(name: str, search_path: str) -> str:
    """The program on `search_path`, or nothing. Only absolute folders count: the working folder is
    not trusted."""
    for folder in search_path.split(os.pathsep):
        program = Path(folder) / name
        if program.is_absolute() and program.is_file() and os.access(program, os.X_OK):
            return str(program)
    return ""


def display_path(path: Path, cwd: Path) -> str:
    """The path relative to `cwd` when it is inside, both resolved."""
    return str(path.relative_to(cwd) if path.is_relative_to(cwd) else path)
