"""The folder in which an item's tools work: fresh for every attempt, gone afterwards."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from hermes.batch.checkout import adopt_checkout, check_out, remove_checkout
from hermes.batch.dataset import BatchItem
from hermes.batch.image_files import copy_testbed
from hermes.config.private_files import try_lock
from hermes.core.errors import ConfigError
from hermes.exec.path_rules import belongs_to_agent, explain_denial

_PREFIX = "hermes-items-"
_WITHOUT_FILES = frozenset({"clarify", "todo", "web_search"})
"""Tools that neither read nor write files."""


@contextmanager
def open_workspaces(name: str) -> Iterator[Path]:
    """A private folder for the workspaces of a process, which has it locked: what processes that
    were killed left is removed."""
    root = Path(tempfile.gettempdir()) / f"{_PREFIX}{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    if root.is_symlink() or root.stat().st_uid != os.getuid():
        root = Path(tempfile.mkdtemp(prefix=_PREFIX))
    with ExitStack() as stack:
        with _open_folder(root) as handle:  # nobody finds a folder that is not locked yet
            fcntl.flock(handle, fcntl.LOCK_EX)
            left = [other for other in root.iterdir() if _lock_folder(other, stack)]
            place = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=root))
            _lock_folder(place, stack)
        for other in left:
            remove_folder(other)
        try:
            yield place
        finally:
            remove_folder(place)


@contextmanager
def _open_folder(folder: Path) -> Iterator[int]:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield handle
    finally:
        os.close(handle)


def _lock_folder(folder: Path, stack: ExitStack) -> bool:
    """Whether it could be locked; it is until the stack is closed."""
    try:
        handle = stack.enter_context(_open_folder(folder))
    except OSError:
        return False
    return try_lock(handle)


def remove_folder(folder: Path) -> None:
    """Remove a folder, also one in which a model has closed folders."""
    shutil.rmtree(folder, ignore_errors=True)
    if not folder.exists():
        return
    with suppress(OSError):
        folder.chmod(0o700)
        for place, folders, _ in os.walk(folder):
            for path in (Path(place, name) for name in folders):
                if not path.is_symlink():
                    path.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)


def is_workspace_free(item: BatchItem, tools: Collection[str]) -> bool:
    """Whether neither the item nor any of these tools has to do with files."""
    begins_empty = not (item.commit or item.workspace or item.files or item.cwd)
    return begins_empty and all(name in _WITHOUT_FILES for name in tools)


def make_empty_workspace(place: Path) -> Path:
    """The folder of all items that have nothing to do with files: nothing is ever in it."""
    folder = place / "empty"
    folder.mkdir(mode=0o500, exist_ok=True)
    return folder


def refuse_private_folder(folder: Path, agent_home: Path) -> None:
    """ConfigError when a dataset wants a copy of what no tool may read."""
    real = folder.resolve()
    if reason := _explain_privacy(real, agent_home.resolve()):
        raise ConfigError(f"the workspace {folder} may not be copied: {reason}")


def _explain_privacy(path: Path, agent_home: Path) -> str:
    """Why a real path may not be copied into a workspace; empty when it may."""
    homes = {agent_home, *(above for above in (path, *path.parents) if above.name == ".hermes")}
    inside = [path.relative_to(home).parts for home in homes if path.is_relative_to(home)]
    if any(not parts or belongs_to_agent(parts[0]) for parts in inside):
        return "it belongs to the agent itself"
    return explain_denial(path, Path.home(), write=False)


def copy_folder(source: Path, folder: Path, agent_home: Path) -> None:
    """Copy a folder without what no tool may read, sockets, pipes and devices."""
    agent_home = agent_home.resolve()

    def list_left_out(place: str, names: list[str]) -> list[str]:
        return [name for name in names if not is_copied(Path(place, name))]

    def is_copied(path: Path) -> bool:
        mode = path.lstat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)):
            return False
        return not _explain_privacy(path, agent_home)

    shutil.copytree(
        source.resolve(), folder, symlinks=True, ignore=list_left_out, dirs_exist_ok=True
    )


def prepare_workspace(
    place: Path, item: BatchItem, attempt: int, client_env: Mapping[str, str], agent_home: Path
) -> Path:
    """The folder in which the item's conversation begins. `client_env`: of the docker program."""
    folder = _name_folder(place, item, attempt)
    if item.repository:
        check_out(item.repository, item.commit, folder)
    elif item.commit:
        copy_testbed(item.image, folder, client_env)
        adopt_checkout(folder, item.commit)
    elif item.workspace:
        refuse_private_folder(Path(item.workspace), agent_home)
        copy_folder(Path(item.workspace), folder, agent_home)
    else:
        folder.mkdir(mode=0o700)
    for path, text in item.files.items():
        file = _find_inside(folder, path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    cwd = _find_inside(folder, item.cwd)
    cwd.mkdir(parents=True, exist_ok=True)
    return cwd


def _find_inside(folder: Path, path: str) -> Path:
    """A path of an item, unless a link of the copied folder leads it elsewhere."""
    found = folder / path
    if not found.resolve().is_relative_to(folder.resolve()):
        raise ConfigError(f"The path {path} leads out of the workspace.")
    return found


def remove_workspace(place: Path, item: BatchItem, attempt: int) -> None:
    folder = _name_folder(place, item, attempt)
    remove_folder(folder)
    remove_checkout(folder)


def _name_folder(place: Path, item: BatchItem, attempt: int) -> Path:
    return place / f"{item.number}-{attempt}"
