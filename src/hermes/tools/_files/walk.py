"""Lists the searchable files below a folder in a stable order, without ignored ones."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from hermes.core.errors import ToolError
from hermes.core.tool import Workspace
from hermes.exec.path_rules import list_names
from hermes.tools._files.globs import IgnoreRules
from hermes.tools._files.paths import check_access, is_regular

_IGNORE_FILE = ".gitignore"
_MAX_IGNORE_BYTES = 512 * 1024
_CREDENTIAL_NAMES = frozenset(
    name.casefold().rpartition("/")[2]
    for scope in ("anywhere", "home")
    for name in list_names("hide", scope=scope)
)
_MAX_DEPTH = 100
KERNEL_FOLDERS = frozenset({"/proc", "/sys", "/dev"})
"""These hold no ordinary files; some have no end."""


def walk_files(root: Path, workspace: Workspace) -> Iterator[str]:
    """Paths relative to `root`. Links are not followed and .git is skipped."""
    rules = _read_outer_rules(root)
    if not _is_allowed(root, workspace):
        return
    inside = any(
        folder == workspace.home or folder.name == ".hermes" for folder in (root, *root.parents)
    )
    checked = _CREDENTIAL_NAMES.union(path.name.casefold() for path in workspace.hidden)
    stack = [(iter(_list_entries(root)), "", _add_own_rules(rules, root, ""))]
    while stack:
        entries, prefix, rules = stack[-1]
        entry = next(entries, None)
        if entry is None:
            stack.pop()
            continue
        path = prefix + entry.name
        folder = _is_folder(entry)
        if folder is None or _is_ignored(rules, path, folder=folder):
            continue
        doubtful = folder or inside or entry.name.casefold() in checked
        if doubtful and not _is_allowed(root / path, workspace):
            continue
        if not folder:
            yield path
        elif len(stack) < _MAX_DEPTH:
            below = _add_own_rules(rules, root, f"{path}/")
            stack.append((iter(_list_entries(root / path)), f"{path}/", below))


_Rules = tuple[tuple[str, IgnoreRules], ...]
"""Rules, innermost first, each with the prefix to remove from a path or, with a leading `/`, to
put before it, to make it relative to the folder of the rules."""


def _read_outer_rules(root: Path) -> _Rules:
    """The rules of the folders above, up to the root of the repository."""
    found: list[tuple[str, IgnoreRules]] = []
    lead = ""
    folder = root
    while not (folder / ".git").exists() and folder != folder.parent:
        lead = f"{folder.name}/{lead}"
        folder = folder.parent
        if rule := _read_ignore_file(folder):
            found.append((f"/{lead}", rule))
    return tuple(found)


def _add_own_rules(rules: _Rules, root: Path, prefix: str) -> _Rules:
    own = _read_ignore_file(root / prefix)
    return ((prefix, own), *rules) if own else rules


def _read_ignore_file(folder: Path) -> IgnoreRules | None:
    try:
        # O_NONBLOCK: a pipe of that name would block forever.
        fd = os.open(
            folder / _IGNORE_FILE, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        )
    except OSError:
        return None
    try:
        if not is_regular(os.fstat(fd)):
            return None
        return IgnoreRules(os.read(fd, _MAX_IGNORE_BYTES).decode("utf-8", "replace"))
    except OSError:
        return None
    finally:
        os.close(fd)


def _is_ignored(rules: _Rules, path: str, *, folder: bool) -> bool:
    for lead, rule in rules:
        relative = lead[1:] + path if lead.startswith("/") else path[len(lead) :]
        if (ignored := rule.match_path(relative, folder=folder)) is not None:
            return ignored
    return False


def _list_entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted((e for e in entries if e.name != ".git"), key=lambda e: e.name)
    except OSError:
        return []


def _is_folder(entry: os.DirEntry[str]) -> bool | None:
    """None for anything that is neither a folder nor a file."""
    try:
        if entry.is_dir(follow_symlinks=False):
            return True
        return False if entry.is_file(follow_symlinks=False) else None
    except OSError:
        return None


def _is_allowed(path: Path, workspace: Workspace) -> bool:
    if str(path) in KERNEL_FOLDERS:
        return False
    try:
        check_access(path, workspace, write=False)
    except ToolError:
        return False
    return True
