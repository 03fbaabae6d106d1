"""Snapshots of a workspace before it is changed, and the way back."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from hermes.core.errors import ToolError
from hermes.exec.snapshots.file_index import Survey, survey
from hermes.exec.snapshots.safe_restore import Place
from hermes.exec.snapshots.shadow_repo import Shadow, ShadowError, find_git, folder_of

KEEP = 50
DAYS = 30.0
_REFS = "refs/checkpoints/"
_SYSTEM = frozenset(
    "/ /bin /boot /dev /etc /home /lib /lib64 /media /mnt /opt /proc /root /run /sbin /srv /sys "
    "/tmp /usr /usr/local /var /var/tmp /Users /Applications /Library /System /private".split()
)
_LINK = "120000"
_DIFF_BYTES = 1_000_000
T = TypeVar("T")
Entry: TypeAlias = tuple[str, str, int]
"""Mode of git, object, permissions."""


class Checkpoint(Struct, frozen=True):
    id: str
    workspace: str
    label: str
    created: float
    files: int
    bytes: int
    skipped: int = 0
    """Files that are not in it."""
    notes: tuple[str, ...] = ()
    """Why, for the first of them."""


class Restored(Struct, frozen=True):
    """What a rollback did to the workspace; `before` is the checkpoint that undoes it."""

    id: str
    before: str
    changed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    """Left as they are, and why: what could not be saved first is not overwritten."""


class _State(Struct, frozen=True):
    """What one checkpoint holds."""

    entries: dict[str, Entry]
    folders: dict[str, int]
    skipped: frozenset[str]


def unsuitable(workspace: Path, home: Path) -> str:
    """Why this folder gets no checkpoints; empty when it does."""
    if not find_git():
        return "git is not installed"
    try:
        folder, own = workspace.resolve(strict=True), home.resolve()
        user = Path.home().resolve()
    except (OSError, RuntimeError) as error:
        return f"{workspace} cannot be used: {error}"
    if not folder.is_dir():
        return f"{folder} is not a folder"
    if str(folder) in _SYSTEM:
        return f"{folder} is not a workspace but a folder of the system"
    if user.is_relative_to(folder):
        return f"{folder} is a home folder or holds one"
    if own.is_relative_to(folder) or folder.is_relative_to(own):
        return f"{folder} holds the agent's own files"
    return ""


async def snapshot(
    workspace: Path, home: Path, label: str, tell: Callable[[str], None] | None = None
) -> Checkpoint | None:
    """The state of the workspace now, kept. None when it cannot be; `tell` is told why."""

    def take() -> Checkpoint:
        shadow = _shadow(workspace, home)
        with shadow.locked():
            made = _take(shadow, label)
            _prune(shadow, KEEP, DAYS)
            return made

    try:
        return await _apart(take)
    except ShadowError as error:
        if tell:
            tell(f"No checkpoint was made: {error}")
        return None


async def list_(workspace: Path, home: Path) -> list[Checkpoint]:
    """Of this workspace, latest first."""

    def read() -> list[Checkpoint]:
        shadow = _existing(workspace, home)
        return [c for _, c in _all(shadow)] if shadow else []

    return await _apart(read)


async def workspaces(home: Path) -> list[Path]:
    """Folders that have checkpoints."""

    def read() -> list[Path]:
        names = (home / "checkpoints").glob("*/workspace")
        return sorted(Path(os.fsdecode(name.read_bytes())) for name in names)

    return await _apart(read)


async def diff(workspace: Path, home: Path, id: str, paths: Sequence[str] = ()) -> str:
    """What changed in the workspace since the checkpoint, as a unified diff."""

    def compare() -> str:
        shadow = _shadow(workspace, home)
        with shadow.locked():
            commit, _ = _find(shadow, id)
            survey(shadow, _state(shadow, commit).entries)
            now = shadow.run("write-tree").decode().strip()
            words = ["diff-tree", "-p", "-r", "--no-ext-diff", "--no-textconv", "--no-color"]
            chosen = [_inside(shadow.workspace, p) or "." for p in paths]
            text = shadow.run(*words, "--full-index", f"{commit}:tree", now, "--", *chosen)
        shown = text[:_DIFF_BYTES].decode("utf-8", "replace")
        return shown + (f"\n[cut: {len(text)} bytes in all]\n" if len(text) > _DIFF_BYTES else "")

    return await _apart(compare)


async def restore(workspace: Path, home: Path, id: str, paths: Sequence[str] = ()) -> Restored:
    """The workspace (or these files and folders of it) as it was. Its present state is kept as a
    checkpoint first. Ignored files stay as they are."""

    def back() -> Restored:
        shadow = _shadow(workspace, home)
        chosen = tuple(_inside(shadow.workspace, path) for path in paths)
        with shadow.locked():
            commit, found = _find(shadow, id)
            then = _state(shadow, commit)
            before = _take(shadow, f"before going back to {found.id}", then.entries)
            now = _state(shadow, _REFS + before.id)
            return _Rollback(shadow, then, now, chosen).run(found.id, before.id)

    return await asyncio.shield(_apart(back))


async def prune(workspace: Path, home: Path, keep: int = KEEP, days: float = DAYS) -> int:
    """Forget all but the last `keep` of the last `days`; how many that were."""

    def forget() -> int:
        shadow = _existing(workspace, home)
        if shadow is None:
            return 0
        with shadow.locked():
            gone = _prune(shadow, keep, days)
            shadow.pack()
            return gone

    return await _apart(forget)


async def _apart(work: Callable[[], T]) -> T:
    """In a thread, to its end: it waits for git and for the disk."""
    try:
        return await asyncio.to_thread(work)
    except OSError as error:
        raise ShadowError(f"{error.filename or 'The disk'}: {error.strerror}.") from None


class _Rollback:
    """From the state `now` to the state `then`, for the chosen paths."""

    def __init__(self, shadow: Shadow, then: _State, now: _State, chosen: Sequence[str]) -> None:
        self._shadow = shadow
        self._then = then
        self._now = now
        self._chosen = chosen
        self._place = Place(shadow.workspace)
        self._done: dict[str, list[str]] = {"changed": [], "added": [], "removed": [], "kept": []}

    def run(self, id: str, before: str) -> Restored:
        then, now = self._then.entries, self._now.entries
        write = sorted(p for p in then if then[p] != now.get(p) and self._wanted(p))
        gone = [p for p in now if p not in then and self._wanted(p)]
        rules = [p for p in write if p.rpartition("/")[2] == ".gitignore"]
        self._write(rules)  # first: what was ignored then is not to be removed
        self._remove(sorted(set(gone) - self._then.skipped - self._ignored(gone)))
        self._write([p for p in write if p not in set(rules)])
        self._folders()
        return Restored(id, before, **{k: tuple(sorted(v)) for k, v in self._done.items()})

    def _wanted(self, path: str) -> bool:
        if not self._chosen:
            return True
        return any(not c or path == c or path.startswith(c + "/") for c in self._chosen)

    def _ignored(self, paths: Sequence[str]) -> set[str]:
        if not paths:
            return set()
        # This one command refuses literal names; behind ./ nothing in a name is special.
        data = os.fsencode("\0".join([f"./{path}" for path in paths]))
        words = ("check-ignore", "-z", "--stdin", "--no-index")
        env = {**self._shadow.without_index(), "GIT_LITERAL_PATHSPECS": "0"}
        out = self._shadow.run(*words, data=data, fine=(0, 1), env=env)
        return {path.removeprefix("./") for path in _split(out)}

    def _remove(self, paths: Sequence[str]) -> None:
        for path in paths:
            try:
                self._place.remove(path)
                self._done["removed"].append(path)
            except OSError as error:
                self._done["kept"].append(f"{path}: {error.strerror}")
        above = {parent for path in paths for parent in _parents(path)}
        empty = set(self._now.folders) - set(self._then.folders)
        for folder in sorted(above | {f for f in empty if self._wanted(f)}, reverse=True):
            if folder not in self._then.folders:
                self._place.remove_folder(folder)

    def _write(self, paths: Sequence[str]) -> None:
        ready = []
        for path in paths:
            if (
                path not in self._now.entries
                and self._place.exists(path)
                and not self._hollow(path)
            ):
                self._done["kept"].append(f"{path}: what is there now could not be saved first")
            else:
                ready.append(path)
        wanted = [self._then.entries[path] for path in ready]
        blobs = _blobs(self._shadow, [object_ for _, object_, _ in wanted])
        for path, (kind, _, mode), data in zip(ready, wanted, blobs, strict=True):
            try:
                if kind == _LINK:
                    self._place.link(path, data)
                else:
                    self._place.file(path, data, mode)
            except OSError as error:
                self._done["kept"].append(f"{path}: {error.strerror}")
            else:
                known = path in self._now.entries
                self._done["changed" if known else "added"].append(path)

    def _hollow(self, path: str) -> bool:
        """An empty folder where a file was."""
        return path in self._now.folders and self._place.remove_folder(path)

    def _folders(self) -> None:
        for folder, mode in sorted(self._then.folders.items(), reverse=True):
            same = self._now.folders.get(folder) == mode and self._place.exists(folder)
            if same or not self._wanted(folder):
                continue
            try:
                self._place.make_folder(folder, mode)
            except OSError as error:
                self._done["kept"].append(f"{folder}: {error.strerror}")


def _shadow(workspace: Path, home: Path) -> Shadow:
    if why := unsuitable(workspace, home):
        raise ShadowError(f"{why}.")
    return Shadow(workspace.resolve(), home.resolve(), find_git())


def _existing(workspace: Path, home: Path) -> Shadow | None:
    """Of a workspace that may be gone by now."""
    folder = workspace.resolve()
    git = find_git()
    if not git or not (folder_of(folder, home.resolve()) / "git" / "info").is_dir():
        return None
    return Shadow(folder, home.resolve(), git)


def _take(shadow: Shadow, label: str, extra: Collection[str] = ()) -> Checkpoint:
    seen = survey(shadow, extra)
    tree = shadow.run("write-tree").decode().strip()
    blob = shadow.run("hash-object", "-w", "--stdin", data=_manifest(seen)).decode().strip()
    rows = f"040000 tree {tree}\ttree\n100644 blob {blob}\tmeta\n".encode()
    root = shadow.run("mktree", data=rows).decode().strip()
    now = time.time()
    made = Checkpoint(
        time.strftime("%Y%m%d-%H%M%S-", time.localtime(now)) + secrets.token_hex(3),
        os.fsdecode(shadow.workspace).encode("utf-8", "replace").decode(),
        " ".join(label.encode("utf-8", "replace").decode().split())[:200],
        now,
        len(seen.files),
        seen.bytes,
        len(seen.skipped),
        tuple(_shown(f"{path}: {why}") for path, why in list(seen.skipped.items())[:10]),
    )
    message = msgspec.json.encode(made)
    commit = shadow.run("commit-tree", root, data=message).decode().strip()
    shadow.run("update-ref", _REFS + made.id, commit)
    return made


def _manifest(seen: Survey) -> bytes:
    """What git does not keep. Plain json: it can carry names that are no text."""
    data = {"modes": seen.modes, "folders": seen.folders, "skipped": list(seen.skipped)}
    return json.dumps(data, sort_keys=True).encode()


def _all(shadow: Shadow) -> list[tuple[str, Checkpoint]]:
    form = "--format=%(objectname) %(contents:subject)"
    words = ("for-each-ref", "--sort=-refname", form, _REFS)
    found = []
    for line in shadow.run(*words, bare=True).splitlines():
        commit, _, message = line.partition(b" ")
        found.append((commit.decode(), msgspec.json.decode(message, type=Checkpoint)))
    return sorted(found, key=lambda pair: pair[1].created, reverse=True)


def _find(shadow: Shadow, id: str) -> tuple[str, Checkpoint]:
    found = [(commit, c) for commit, c in _all(shadow) if id and c.id.startswith(id)]
    exact = [pair for pair in found if pair[1].id == id]
    match exact or found:
        case [one]:
            return one
        case []:
            raise ToolError(f"There is no checkpoint {id!r} of {shadow.workspace}.")
        case _:
            raise ToolError(f"{id!r} fits several checkpoints; give more of the id.")


def _state(shadow: Shadow, commit: str) -> _State:
    meta: dict[str, Any] = json.loads(shadow.run("cat-file", "blob", f"{commit}:meta"))
    entries: dict[str, Entry] = {}
    for row in _split(shadow.run("ls-tree", "-r", "-z", f"{commit}:tree")):
        head, _, path = row.partition("\t")
        kind, _, object_ = head.split(" ")
        usual = 0o755 if kind == "100755" else 0o644
        mode = 0 if kind == _LINK else meta["modes"].get(path, usual)
        entries[path] = (kind, object_, mode)
    return _State(entries, meta["folders"], frozenset(meta["skipped"]))


def _blobs(shadow: Shadow, objects: Sequence[str]) -> Iterator[bytes]:
    """The contents in order; held in a file, not in memory."""
    if not objects:
        return
    with tempfile.TemporaryFile(dir=shadow.folder) as file:
        data = "\n".join(objects).encode()
        shadow.run("cat-file", "--batch", data=data, out=file)
        file.seek(0)
        for _ in objects:
            size = int(file.readline().split()[2])
            yield file.read(size)
            file.read(1)


def _prune(shadow: Shadow, keep: int, days: float) -> int:
    oldest = time.time() - days * 86400
    old = [c for n, (_, c) in enumerate(_all(shadow)) if n >= keep or c.created < oldest]
    if old:
        rows = "".join(f"delete {_REFS}{c.id}\n" for c in old)
        shadow.run("update-ref", "--stdin", data=rows.encode(), bare=True)
    if shadow.crowded():
        shadow.pack()
    return len(old)


def _split(data: bytes) -> list[str]:
    return [os.fsdecode(item) for item in data.split(b"\0") if item]


def _parents(path: str) -> Iterator[str]:
    while path := path.rpartition("/")[0]:
        yield path


def _inside(workspace: Path, path: str) -> str:
    """Relative to the workspace; "" is all of it."""
    full = Path(os.path.normpath(workspace / path))
    if not full.is_relative_to(workspace):
        raise ToolError(f"{path} is not in {workspace}.")
    relative = full.relative_to(workspace).as_posix()
    return "" if relative == "." else relative


def _shown(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
