"""Lists the files below a folder that may be searched, in one order, ignored ones left out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from hermes.core.errors import ToolError
from hermes.core.tool import Workspace
from hermes.tools._files.globs import Ignore
from hermes.tools._files.paths import SECRET, check, is_regular

_IGNORE = ".gitignore"
_LARGEST_IGNORE = 512 * 1024
_SUSPECT = frozenset(rule[-1] for rule in SECRET)
_DEEPEST = 100
KERNEL = frozenset({"/proc", "/sys", "/dev"})
"""No files: some are never read to their end."""


def files(root: Path, workspace: Workspace) -> Iterator[str]:
    """Paths relative to `root`. Links are not followed, .git is not entered."""
    rules = _outer_rules(root)
    if not _allowed(root, workspace):
        return
    inside = any(
        folder == workspace.home or folder.name == ".hermes" for folder in (root, *root.parents)
    )
    stack = [(iter(_entries(root)), "", _with_own(rules, root, ""))]
    while stack:
        entries, prefix, rules = stack[-1]
        entry = next(entries, None)
        if entry is None:
            stack.pop()
            continue
        path = prefix + entry.name
        folder = _is_folder(entry)
        if folder is None or _ignored(rules, path, folder=folder):
            continue
        doubtful = folder or inside or entry.name.casefold() in _SUSPECT
        if doubtful and not _allowed(root / path, workspace):
            continue
        if not folder:
            yield path
        elif len(stack) < _DEEPEST:
            below = _with_own(rules, root, f"{path}/")
            stack.append((iter(_entries(root / path)), f"{path}/", below))


_Rules = tuple[tuple[str, Ignore], ...]
"""Rules, innermost first, each with what to take away from a path (or, with a leading `/`, what
to put before it) to make it relative to their folder."""


def _outer_rules(root: Path) -> _Rules:
    """Of the folders above, up to the one that holds the repository."""
    found: list[tuple[str, Ignore]] = []
    lead = ""
    folder = root
    while not (folder / ".git").exists() and folder != folder.parent:
        lead = f"{folder.name}/{lead}"
        folder = folder.parent
        if rule := _read(folder):
            found.append((f"/{lead}", rule))
    return tuple(found)


def _with_own(rules: _Rules, root: Path, prefix: str) -> _Rules:
    own = _read(root / prefix)
    return ((prefix, own), *rules) if own else rules


def _read(folder: Path) -> Ignore | None:
    try:
        # Not to wait for ever on a pipe of that name.
        fd = os.open(folder / _IGNORE, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if not is_regular(os.fstat(fd)):
            return None
        return Ignore(os.read(fd, _LARGEST_IGNORE).decode("utf-8", "replace"))
    except OSError:
        return None
    finally:
        os.close(fd)


def _ignored(rules: _Rules, path: str, *, folder: bool) -> bool:
    for lead, rule in rules:
        relative = lead[1:] + path if lead.startswith("/") else path[len(lead) :]
        said = rule.verdict(relative, folder=folder)
        if said is not None:
            return said
    return False


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted((e for e in entries if e.name != ".git"), key=lambda e: e.name)
    except OSError:
        return []


def _is_folder(entry: os.DirEntry[str]) -> bool | None:
    """None for what is neither a folder nor a file."""
    try:
        if entry.is_dir(follow_symlinks=False):
            return True
        return False if entry.is_file(follow_symlinks=False) else None
    except OSError:
        return None


def _allowed(path: Path, workspace: Workspace) -> bool:
    if str(path) in KERNEL:
        return False
    try:
        check(path, workspace, write=False)
    except ToolError:
        return False
    return True
