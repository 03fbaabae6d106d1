"""Checkpoints of a workspace before it is changed, and going back to them."""

import asyncio
import json
import os
import secrets
import tempfile
import time
from collections.abc import Callable, Collection, Coroutine, Iterator, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from hermes.core.errors import ToolError
from hermes.exec.snapshots.file_index import list_parents, update_index
from hermes.exec.snapshots.safe_git import find_git
from hermes.exec.snapshots.safe_restore import SafeTree
from hermes.exec.snapshots.shadow_repo import ShadowError, ShadowRepository

KEEP_COUNT = 50
KEEP_DAYS = 30.0
_REF_PREFIX = "refs/checkpoints/"
_SYSTEM_FOLDERS = frozenset(
    "/ /bin /boot /dev /etc /home /lib /lib64 /media /mnt /opt /proc /root /run /sbin /srv /sys "
    "/tmp /usr /usr/local /var /var/tmp /Users /Applications /Library /System /private".split()
)
_LINK_MODE = "120000"
_MAX_DIFF = 1_000_000
P = ParamSpec("P")
T = TypeVar("T")
TreeEntry: TypeAlias = tuple[str, str, int]
"""Git's mode, object, permissions."""


class Checkpoint(Struct, frozen=True):
    """One saved state of a workspace."""

    id: str
    workspace: str
    label: str
    created: float
    files: int
    bytes: int
    skipped: int = 0
    notes: tuple[str, ...] = ()


class RestoredFiles(Struct, frozen=True):
    """What restoring changed in the workspace; `before` is the checkpoint that undoes it."""

    id: str
    before: str
    changed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    """Files left as they are, and why: what could not be saved first is not overwritten."""


class _SavedState(Struct, frozen=True):
    """The contents of one checkpoint."""

    entries: dict[str, TreeEntry]
    folders: dict[str, int]
    skipped: frozenset[str]


def explain_unsuitable(workspace: Path, home: Path) -> str:
    """Why this folder cannot have checkpoints; empty when it can."""
    if not find_git():
        return "git is not installed"
    try:
        folder, own = workspace.resolve(strict=True), home.resolve()
        user = Path.home().resolve()
    except (OSError, RuntimeError) as error:
        return f"{workspace} cannot be used: {error}"
    if not folder.is_dir():
        return f"{folder} is not a folder"
    if str(folder) in _SYSTEM_FOLDERS:
        return f"{folder} is a system folder, not a workspace"
    if user.is_relative_to(folder):
        return f"{folder} is a home folder or contains one"
    if own.is_relative_to(folder) or folder.is_relative_to(own):
        return f"{folder} contains the agent's own files"
    return ""


def _in_thread(work: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Make it run in a thread, to its end even when its caller is cancelled."""

    @wraps(work)
    async def run(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await asyncio.shield(asyncio.to_thread(work, *args, **kwargs))
        except OSError as error:
            raise ShadowError(f"{error.filename or 'The disk'}: {error.strerror}.") from None

    return run


async def create_checkpoint(
    workspace: Path, home: Path, label: str, tell: Callable[[str], None] | None = None
) -> Checkpoint | None:
    """Save the present state of the workspace. None when that fails; `tell` is told why."""

    @_in_thread
    def take() -> Checkpoint:
        repository = _open_repository(workspace, home)
        with repository.hold_lock():
            made = _take_snapshot(repository, label)
            _prune_old(repository, KEEP_COUNT, KEEP_DAYS)
            return made

    try:
        return await take()
    except ShadowError as error:
        if tell:
            tell(f"No checkpoint was made: {error}")
        return None


@_in_thread
def list_checkpoints(workspace: Path, home: Path) -> list[Checkpoint]:
    """The checkpoints of this workspace, latest first."""
    repository = _find_repository(workspace, home)
    return [c for _, c in _list_commits(repository)] if repository else []


@_in_thread
def list_workspaces(home: Path) -> list[Path]:
    names = (home / "checkpoints").glob("*/workspace")
    return sorted(Path(os.fsdecode(name.read_bytes())) for name in names)


@_in_thread
def diff_checkpoint(
    workspace: Path, home: Path, id: str, paths: Sequence[str] = (), *, reverse: bool = False
) -> str:
    """The changes since the checkpoint; with `reverse`, those that restoring it would make."""
    repository = _open_repository(workspace, home)
    with repository.hold_lock():
        commit, _ = _find_commit(repository, id)
        update_index(repository, _load_state(repository, commit).entries)
        now = repository.run_git("write-tree").decode().strip()
        words = ["diff-tree", "-p", "-r", "--no-ext-diff", "--no-textconv", "--no-color"]
        if reverse:
            words += ["-R", "--src-prefix=b/", "--dst-prefix=a/"]
        chosen = [_relative_path(repository.workspace, p) or "." for p in paths]
        text = repository.run_git(*words, "--full-index", f"{commit}:tree", now, "--", *chosen)
    shown = text[:_MAX_DIFF].decode("utf-8", "replace")
    return shown + (f"\n[cut: {len(text)} bytes in all]\n" if len(text) > _MAX_DIFF else "")


@_in_thread
def restore_checkpoint(
    workspace: Path, home: Path, id: str, paths: Sequence[str] = ()
) -> RestoredFiles:
    """Restore the workspace, or these files and folders of it. The present state is saved as a
    checkpoint first. Ignored files stay as they are."""
    repository = _open_repository(workspace, home)
    chosen = tuple(_relative_path(repository.workspace, path) for path in paths)
    with repository.hold_lock():
        commit, found = _find_commit(repository, id)
        then = _load_state(repository, commit)
        before = _take_snapshot(repository, f"before going back to {found.id}", then.entries)
        now = _load_state(repository, _REF_PREFIX + before.id)
        return _Rollback(repository, then, now, chosen).run(found.id, before.id)


@_in_thread
def copy_checkpoint(workspace: Path, home: Path, id: str, target: Path) -> None:
    """Write the files of a checkpoint into another folder; the workspace is not touched."""
    repository = _find_repository(workspace, home)
    if repository is None:
        raise ToolError(f"There is no checkpoint {id!r} of {workspace}.")
    with repository.hold_lock():
        then = _load_state(repository, _find_commit(repository, id)[0])
        tree = SafeTree(target)
        blobs = _read_blobs(repository, [object_ for _, object_, _ in then.entries.values()])
        for (path, (kind, _, mode)), data in zip(then.entries.items(), blobs, strict=True):
            if kind == _LINK_MODE:
                tree.write_link(path, data)
            else:
                tree.write_file(path, data, mode)
        for folder, mode in sorted(then.folders.items(), reverse=True):
            tree.make_folder(folder, mode)


@_in_thread
def prune_checkpoints(
    workspace: Path, home: Path, keep: int = KEEP_COUNT, days: float = KEEP_DAYS
) -> int:
    """Remove all checkpoints but the last `keep` of the last `days`; returns how many."""
    repository = _find_repository(workspace, home)
    if repository is None:
        return 0
    with repository.hold_lock():
        gone = _prune_old(repository, keep, days)
        repository.pack_objects()
        return gone


class _Rollback:
    """Changes the workspace from the state `now` to the state `then`, for the chosen paths."""

    def __init__(
        self,
        repository: ShadowRepository,
        then: _SavedState,
        now: _SavedState,
        chosen: Sequence[str],
    ) -> None:
        self._shadow = repository
        self._then = then
        self._now = now
        self._chosen = chosen
        self._tree = SafeTree(repository.workspace)
        self._done: dict[str, list[str]] = {"changed": [], "added": [], "removed": [], "kept": []}

    def run(self, id: str, before: str) -> RestoredFiles:
        then, now = self._then.entries, self._now.entries
        write = sorted(p for p in then if then[p] != now.get(p) and self._is_selected(p))
        gone = [p for p in now if p not in then and self._is_selected(p)]
        rules = [p for p in write if p.rpartition("/")[2] == ".gitignore"]
        self._write_files(rules)  # first: files that were ignored then must not be removed
        self._remove_files(sorted(set(gone) - self._then.skipped - self._list_ignored(gone)))
        self._write_files([p for p in write if p not in set(rules)])
        self._restore_folders()
        return RestoredFiles(id, before, **{k: tuple(sorted(v)) for k, v in self._done.items()})

    def _is_selected(self, path: str) -> bool:
        if not self._chosen:
            return True
        return any(not c or path == c or path.startswith(c + "/") for c in self._chosen)

    def _list_ignored(self, paths: Sequence[str]) -> set[str]:
        if not paths:
            return set()
        # This command does not accept literal pathspecs; after ./ no character is special.
        data = os.fsencode("\0".join([f"./{path}" for path in paths]))
        words = ("check-ignore", "-z", "--stdin", "--no-index")
        env = {**self._shadow.empty_index_environment(), "GIT_LITERAL_PATHSPECS": "0"}
        out = self._shadow.run_git(*words, data=data, accepted=(0, 1), env=env)
        return {path.removeprefix("./") for path in _split_paths(out)}

    def _remove_files(self, paths: Sequence[str]) -> None:
        for path in paths:
            try:
                self._tree.remove_file(path)
                self._done["removed"].append(path)
            except OSError as error:
                self._done["kept"].append(f"{path}: {error.strerror}")
        above = {parent for path in paths for parent in list_parents(path)}
        empty = set(self._now.folders) - set(self._then.folders)
        for folder in sorted(above | {f for f in empty if self._is_selected(f)}, reverse=True):
            if folder not in self._then.folders:
                self._tree.remove_folder(folder)

    def _write_files(self, paths: Sequence[str]) -> None:
        ready = []
        for path in paths:
            is_unsaved = path not in self._now.entries and self._tree.exists(path)
            # An empty folder may be where the file was.
            is_free = path in self._now.folders and is_unsaved and self._tree.remove_folder(path)
            if is_unsaved and not is_free:
                self._done["kept"].append(f"{path}: its present content could not be saved first")
            else:
                ready.append(path)
        wanted = [self._then.entries[path] for path in ready]
        blobs = _read_blobs(self._shadow, [object_ for _, object_, _ in wanted])
        for path, (kind, _, mode), data in zip(ready, wanted, blobs, strict=True):
            try:
                if kind == _LINK_MODE:
                    self._tree.write_link(path, data)
                else:
                    self._tree.write_file(path, data, mode)
            except OSError as error:
                self._done["kept"].append(f"{path}: {error.strerror}")
            else:
                known = path in self._now.entries
                self._done["changed" if known else "added"].append(path)

    def _restore_folders(self) -> None:
        for folder, mode in sorted(self._then.folders.items(), reverse=True):
            same = self._now.folders.get(folder) == mode and self._tree.exists(folder)
            if same or not self._is_selected(folder):
                continue
            try:
                self._tree.make_folder(folder, mode)
            except OSError as error:
                self._done["kept"].append(f"{folder}: {error.strerror}")


def _open_repository(workspace: Path, home: Path) -> ShadowRepository:
    if why := explain_unsuitable(workspace, home):
        raise ShadowError(f"{why}.")
    return ShadowRepository(workspace.resolve(), home.resolve())


def _find_repository(workspace: Path, home: Path) -> ShadowRepository | None:
    """The repository of a workspace, which itself may no longer exist; None when there is none."""
    found = ShadowRepository(workspace.resolve(), home.resolve())
    return found if find_git() and (found.repository / "info").is_dir() else None


def _take_snapshot(
    repository: ShadowRepository, label: str, extra: Collection[str] = ()
) -> Checkpoint:
    seen = update_index(repository, extra)
    tree = repository.run_git("write-tree").decode().strip()
    # What git does not save. Plain json, which can represent names that are not valid text.
    manifest = {"modes": seen.modes, "folders": seen.folders, "skipped": list(seen.skipped)}
    data = json.dumps(manifest, sort_keys=True).encode()
    blob = repository.run_git("hash-object", "-w", "--stdin", data=data).decode().strip()
    rows = f"040000 tree {tree}\ttree\n100644 blob {blob}\tmeta\n".encode()
    root = repository.run_git("mktree", data=rows).decode().strip()
    now = time.time()
    made = Checkpoint(
        time.strftime("%Y%m%d-%H%M%S-", time.localtime(now)) + secrets.token_hex(3),
        _printable_text(os.fsdecode(repository.workspace)),
        " ".join(_printable_text(label).split())[:200],
        now,
        len(seen.files),
        seen.bytes,
        len(seen.skipped),
        tuple(_printable_text(f"{path}: {why}") for path, why in list(seen.skipped.items())[:10]),
    )
    message = msgspec.json.encode(made)
    commit = repository.run_git("commit-tree", root, data=message).decode().strip()
    repository.run_git("update-ref", _REF_PREFIX + made.id, commit)
    return made


def _list_commits(repository: ShadowRepository) -> list[tuple[str, Checkpoint]]:
    form = "--format=%(objectname) %(contents:subject)"
    words = ("for-each-ref", "--sort=-refname", form, _REF_PREFIX)
    found = []
    for line in repository.run_git(*words, bare=True).splitlines():
        commit, _, message = line.partition(b" ")
        found.append((commit.decode(), msgspec.json.decode(message, type=Checkpoint)))
    return sorted(found, key=lambda pair: pair[1].created, reverse=True)


def _find_commit(repository: ShadowRepository, id: str) -> tuple[str, Checkpoint]:
    found = [(commit, c) for commit, c in _list_commits(repository) if id and c.id.startswith(id)]
    exact = [pair for pair in found if pair[1].id == id]
    match exact or found:
        case [one]:
            return one
        case []:
            raise ToolError(f"There is no checkpoint {id!r} of {repository.workspace}.")
        case _:
            raise ToolError(f"{id!r} matches several checkpoints; give more of the id.")


def _load_state(repository: ShadowRepository, commit: str) -> _SavedState:
    meta: dict[str, Any] = json.loads(repository.run_git("cat-file", "blob", f"{commit}:meta"))
    entries: dict[str, TreeEntry] = {}
    for row in _split_paths(repository.run_git("ls-tree", "-r", "-z", f"{commit}:tree")):
        head, _, path = row.partition("\t")
        kind, _, object_ = head.split(" ")
        usual = 0o755 if kind == "100755" else 0o644
        mode = 0 if kind == _LINK_MODE else meta["modes"].get(path, usual)
        entries[path] = (kind, object_, mode)
    return _SavedState(entries, meta["folders"], frozenset(meta["skipped"]))


def _read_blobs(repository: ShadowRepository, objects: Sequence[str]) -> Iterator[bytes]:
    """The contents in order; buffered in a file instead of in memory."""
    if not objects:
        return
    with tempfile.TemporaryFile(dir=repository.folder) as file:
        data = "\n".join(objects).encode()
        repository.run_git("cat-file", "--batch", data=data, out=file)
        file.seek(0)
        for _ in objects:
            size = int(file.readline().split()[2])
            yield file.read(size)
            file.read(1)


def _prune_old(repository: ShadowRepository, keep: int, days: float) -> int:
    oldest = time.time() - days * 86400
    known = enumerate(_list_commits(repository))
    old = [c for n, (_, c) in known if n >= keep or c.created < oldest]
    if old:
        rows = "".join(f"delete {_REF_PREFIX}{c.id}\n" for c in old)
        repository.run_git("update-ref", "--stdin", data=rows.encode(), bare=True)
    if repository.needs_packing():
        repository.pack_objects()
    return len(old)


def _split_paths(data: bytes) -> list[str]:
    return [os.fsdecode(item) for item in data.split(b"\0") if item]


def _relative_path(workspace: Path, path: str) -> str:
    """The path relative to the workspace; "" is all of it."""
    full = Path(os.path.normpath(workspace / path))
    if not full.is_relative_to(workspace):
        raise ToolError(f"{path} is not in {workspace}.")
    relative = full.relative_to(workspace).as_posix()
    return "" if relative == "." else relative


def _printable_text(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
