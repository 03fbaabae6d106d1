"""Names in a workspace that programs outside the sandbox act upon: nobody inside may plant them."""

# ruff: noqa: PTH110, PTH112, PTH113, PTH118, PTH120, PTH208
from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from hermes.config.paths import CONTEXT_FILES
from hermes.exec.launcher.placeholders import PLACEHOLDER, would_be_bare

_ALWAYS = (".git", ".hermes")
_WHEN_PRESENT = (
    *CONTEXT_FILES,
    *"""
    .claude .cursor .mcp.json .vscode .idea .envrc .gitmodules .gitconfig .bashrc .bash_profile
    .bash_login .bash_logout .profile .zshrc .zprofile .zshenv .zlogin .config/fish
    """.split(),
)
"""A placeholder for each that is missing would show in every listing. New notes for agents are
read by ours when the user has trusted them; the rest is a matter of whoever keeps the folder."""
_MOST_SUBMODULES = 200
_FILES_AT_HOME = """
    .bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .zshrc .zshenv .zprofile
    .zlogin .zlogout .kshrc .mkshrc .cshrc .tcshrc .login .xprofile .xsession .xsessionrc .xinitrc
    .pam_environment .gitconfig .inputrc .vimrc .exrc .emacs .nanorc .tmux.conf .screenrc .gdbinit
    .psqlrc .sqliterc .npmrc .yarnrc .curlrc .wgetrc .netrc .direnvrc .forward .rhosts .mailcap
    .cargo/config .cargo/config.toml .cargo/env
""".split()
"""Read by programs of whoever's home it is."""
_FOLDERS_AT_HOME = """
    .ssh .gnupg .vim .emacs.d .oh-my-zsh .aws .kube .docker .config/git .config/fish .config/nvim
    .config/systemd .config/autostart .config/environment.d .config/pip .config/tmux
    .local/bin .local/lib .local/share/systemd .local/share/applications bin
""".split()
_HOMES = ("/root", "/home")
_SETTING = re.compile(
    r"^[ \t]*(?:\[[^\]\n]*\][ \t]*)?(hookspath|path|fsmonitor|sshcommand|editor|pager|external"
    r"|textconv|clean|smudge|process|command|cmd|driver|helper|program)[ \t]*=[ \t]*(\S[^\n]*)",
    re.IGNORECASE | re.MULTILINE,
)
_LONGEST = 256 * 1024
_MOST_FOLDERS = 600
_DEPTH = 4
_DULL = frozenset("node_modules __pycache__ site-packages .venv venv .tox .cache".split())


class Trusted(Struct, frozen=True):
    kept: tuple[Path, ...]
    """Read-only; what does not exist is kept from being made by an empty folder."""
    unmade: tuple[Path, ...]
    """The same, but a folder in its place would disturb who reads it meanwhile."""
    unwanted: tuple[Path, ...]
    """Anything in its place would disturb git, and the file itself would lead it elsewhere."""


def trusted(workspace: Path, user_home: Path, programs: Iterable[str]) -> Trusted:
    """All of the workspace's own .git is kept: besides hooks and settings it has other files that
    lead git to programs, and some that cannot be held by placeholders without breaking it. A
    command that is to change the repository gets a stand-in (see exec.commits). So is the .git of
    every submodule: git looks into those whenever it looks at the whole. `programs`: folders of a
    home that others run things from."""
    root = os.fspath(workspace)
    names = [*_ALWAYS, *(n for n in _WHEN_PRESENT if os.path.lexists(f"{root}/{n}"))]
    names += _submodules(root)
    if _is_missing(f"{root}/.git") and would_be_bare(os.fsencode(root)):
        names += ["HEAD", "config", "hooks"]
    kept = [f"{root}/{name}" for name in names]
    kept += [path for path in _nested(root) if os.path.lexists(path)]
    unmade: list[str] = []
    _follow_git(root, os.fspath(user_home), kept, unmade)
    for home in _homes(root, os.fspath(user_home)):
        files = [f"{home}/{name}" for name in _FILES_AT_HOME]
        unmade += [path for path in files if os.path.isdir(os.path.dirname(path))]
        kept += [f"{home}/{name}" for name in _FOLDERS_AT_HOME]
        kept += [f"{home}/{name}" for name in programs if os.path.exists(f"{home}/{name}")]
    inner = [os.path.dirname(path) for path in _nested(root) if path.endswith("/.git/config")]
    return Trusted(_paths(kept), _paths(unmade), _paths([f"{git}/commondir" for git in inner]))


def _paths(found: list[str]) -> tuple[Path, ...]:
    return tuple(map(Path, dict.fromkeys(found)))


def _is_missing(path: str) -> bool:
    """Or held by a placeholder."""
    try:
        return os.lstat(path).st_mode == PLACEHOLDER
    except OSError:
        return True


def _submodules(root: str) -> list[str]:
    paths = re.findall(
        r"^\s*path\s*=\s*\"?([^\"\n]+?)\"?\s*$", _text(f"{root}/.gitmodules"), re.MULTILINE
    )
    return [f"{path}/.git" for path in paths[:_MOST_SUBMODULES]]


@lru_cache(maxsize=256)
def _nested(root: str) -> tuple[str, ...]:
    """What decides which programs git runs in repositories further down, as far as they were there
    when we first looked: those that commands make themselves are theirs to change and remove."""
    found: list[str] = []
    waiting, looked = [(root, 0)], 0
    while waiting and looked < _MOST_FOLDERS:
        folder, depth = waiting.pop(0)
        looked += 1
        try:
            with os.scandir(folder) as entries:
                inner = [e.name for e in entries if e.is_dir(follow_symlinks=False)]
        except OSError:
            continue
        if depth:
            found += _settings(f"{folder}/.git", is_folder=".git" in inner)
        if depth < _DEPTH:
            fine = (n for n in inner if n != ".git" and n not in _DULL)
            waiting += [(f"{folder}/{name}", depth + 1) for name in sorted(fine)]
    return tuple(found)


def _settings(git: str, *, is_folder: bool) -> list[str]:
    if is_folder:
        return [f"{git}/{n}" for n in ("config", "hooks") if os.path.lexists(f"{git}/{n}")]
    return [git] if os.path.lexists(git) else []


def _follow_git(root: str, user_home: str, kept: list[str], unmade: list[str]) -> None:
    """Where the repository's settings lead, as far as that is in the workspace."""
    git = f"{root}/.git"
    if os.path.isfile(git):
        lead = re.match(r"gitdir: ([^\n]+)", _text(git))
        git = _at(root, lead[1]) if lead else git
    common = _at(git, _text(f"{git}/commondir").strip() or ".")
    outer = [f"{user_home}/.gitconfig", f"{user_home}/.config/git/config"]
    kept += [folder for folder in (git, common) if _within(root, folder)]
    for file in (f"{common}/config", f"{git}/config.worktree", *outer):
        for key, path in _named(file, root, user_home):
            if not _within(root, path) or _within(f"{root}/.git", path):
                continue
            if key == "hookspath":
                kept.append(path)
            elif key == "path":
                (kept if os.path.lexists(path) else unmade).append(path)
            elif os.path.isfile(path):
                kept.append(path)


def _named(file: str, root: str, user_home: str) -> Iterator[tuple[str, str]]:
    """Settings that name files, and those."""
    for key, value in _SETTING.findall(_text(file)):
        key = key.lower()
        try:
            words = shlex.split(value.replace("\\\\", "\\"), comments=True)
        except ValueError:
            words = value.split()
        word = (words or [""])[0].lstrip("!")
        if word.startswith("~/"):
            word = user_home + word[1:]
        if word:
            yield key, _at(os.path.dirname(file) if key == "path" else root, word)


def _homes(root: str, user_home: str) -> list[str]:
    """Homes that are the workspace or in it."""
    found = {user_home, *_HOMES[:1]}
    if _within(root, _HOMES[1]) or root == _HOMES[1]:
        found |= {f"{_HOMES[1]}/{name}" for name in _names(_HOMES[1])}
    elif os.path.dirname(root) == _HOMES[1]:
        found.add(root)
    return sorted(h for h in found if (h == root or _within(root, h)) and os.path.isdir(h))


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _text(path: str) -> str:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    with os.fdopen(fd, "rb") as file:
        try:
            return os.fsdecode(file.read(_LONGEST))
        except OSError:
            return ""


def _at(folder: str, path: str) -> str:
    return os.path.normpath(os.path.join(folder, path))


def _within(root: str, path: str) -> bool:
    return path.startswith(f"{root}/")
