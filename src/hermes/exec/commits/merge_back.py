"""What a command did to a stand-in, looked at and written into the repository."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

from msgspec import structs

from hermes.exec.commits.overlay import TREES, UNDERWAY, Copy, digest, missing, opened, read, walk
from hermes.exec.snapshots.shadow_repo import find_git

_SHA = r"[0-9a-f]{40}(?:[0-9a-f]{24})?"
_REFERENCE = re.compile(rf"(?:{_SHA}|ref: refs/[^\x00-\x20\x7f]{{1,500}})\n?")
_SHAS = re.compile(rf"(?:{_SHA}\b[^\n\0]*\n?)*")
_PACKED = re.compile(rf"(?:#[^\n\0]*\n|\^{_SHA}\n|{_SHA} refs/[^\x00-\x20\x7f]+\n)*")
_NAME = re.compile(
    r"(?:refs|logs)/(?!.*(?:\.\.|//|/[.-]|@\{|\.lock(?:/|$)))[^\x00-\x20\x7f~^:?*\[\\]+"
)
_HEADS = frozenset(
    "ORIG_HEAD MERGE_HEAD CHERRY_PICK_HEAD REVERT_HEAD FETCH_HEAD AUTO_MERGE "
    "MERGE_AUTOSTASH".split()
)
_TEXTS = frozenset("COMMIT_EDITMSG MERGE_MSG SQUASH_MSG MERGE_MODE".split())
_LONGEST = {"index": 256 << 20, "packed-refs": 64 << 20}
_LONGEST_LOG = 64 << 20
_LONGEST_OTHER = 1 << 20
_LOOSE = re.compile(r"[0-9a-f]{2}/[0-9a-f]{38}(?:[0-9a-f]{24})?")
_PACK = re.compile(r"pack/pack-[0-9a-f]{40}(?:[0-9a-f]{24})?\.(?:pack|idx|rev)")
_LINK = b"160000"
_SYNCED_ALONE = 200
"""Objects: more of them go to disk together."""
NO_REPOSITORY = "this folder has no repository of its own"
_LOCK_SECONDS = 3.0
_GIT_SECONDS = 120.0
_QUIET = """
    core.hooksPath=/dev/null core.fsmonitor=false core.untrackedCache=false core.pager=cat
    gc.auto=0 maintenance.auto=false submodule.recurse=false protocol.allow=never
""".split()


class _Refused(Exception):
    """The sentence why nothing of it is kept."""


def publish(copy: Copy) -> str:
    """Empty, or why nothing was taken over."""
    if not copy.fresh:
        return _publish(copy)
    if not os.path.lexists(copy.folder / "HEAD"):
        return NO_REPOSITORY
    try:
        begun = _begin(copy)
    except _Refused as refusal:
        return str(refusal)
    why = _publish(begun)
    if why:
        shutil.rmtree(copy.git, ignore_errors=True)  # made just now, and empty
    return why


def _begin(copy: Copy) -> Copy:
    """A repository of our own making: its settings are git's own, not the command's."""
    until = time.monotonic() + _LOCK_SECONDS
    while os.path.lexists(copy.git):
        if not missing(copy.git) or time.monotonic() > until:
            raise _Refused("something else took the place of .git meanwhile")
        time.sleep(0.02)
    _git(copy, "init", "--quiet", place={})
    top = {name: read(copy.git / name) for name in ("HEAD", "index")}
    before = {name: digest(data) for name, data in top.items() if data is not None}
    return structs.replace(copy, before=before)


def _publish(copy: Copy) -> str:
    try:
        new, gone = _changes(copy)
        if new or gone:
            _take_objects(copy)
            _connected(copy, new)
            _replace(copy, new, gone)
    except _Refused as why:
        return str(why)
    except OSError as error:
        return f"the repository cannot be written ({error.strerror})"
    return ""


# What changed, and whether it may


def _changes(copy: Copy) -> tuple[dict[str, bytes], list[str]]:
    """Name -> new content, and the names that are gone; all of it may be taken over."""
    for name in UNDERWAY:
        if os.path.lexists(copy.folder / name):
            raise _Refused(
                f"git stopped in the middle of something ({name}), and its plan cannot be kept "
                "from the sandbox: end it within one command, or leave it to the user"
            )
    found: dict[str, bytes] = {}
    here = set()
    for name, data in _files(copy):
        here.add(name)
        if data is None or copy.before.get(name) != digest(data):
            found[name] = _accepted(copy, name, data)
    gone = [n for n in copy.before if n not in here and _ours(n)]
    if "HEAD" in gone:
        raise _Refused("HEAD is gone")
    return found, gone


def _files(copy: Copy) -> Iterator[tuple[str, bytes | None]]:
    """What is in the stand-in under the names that count."""
    for name in (*_HEADS, *_TEXTS, "HEAD", "index", "packed-refs"):
        if os.path.lexists(copy.folder / name):
            yield name, read(copy.folder / name, _longest(name))
    for tree in TREES:
        for name, folder in walk(copy.folder, tree):
            yield name, read(name.rpartition("/")[2], _longest(name), folder=folder)


def _ours(name: str) -> bool:
    return name in _HEADS | _TEXTS | {"HEAD", "index", "packed-refs"} or bool(_NAME.fullmatch(name))


def _longest(name: str) -> int:
    return _LONGEST.get(name, _LONGEST_LOG if name.startswith("logs/") else _LONGEST_OTHER)


def _accepted(copy: Copy, name: str, data: bytes | None) -> bytes:
    if data is None:
        raise _Refused(f"{name} is no ordinary file")
    text = data.decode("utf-8", "replace")
    if name == "index":
        _check_index(copy, data)
    elif name in _HEADS:
        _must(_SHAS.fullmatch(text), name)
    elif name == "packed-refs":
        _must(_PACKED.fullmatch(text), name)
    elif name == "HEAD" or name.startswith("refs/"):
        _must(_REFERENCE.fullmatch(text), name)
    if "/" in name:
        _must(_NAME.fullmatch(name), name)
    return data


def _must(fine: object, name: str) -> None:
    if not fine:
        raise _Refused(f"{name[:100]!r} is not what git would write")


def _check_index(copy: Copy, data: bytes) -> None:
    """No path leads into .git, and no folder becomes a repository of its own: for those git reads
    settings that anybody could have written."""
    links = set()
    for mode, path in _entries(copy, data):
        for part in path.lower().split(b"/"):
            if part in (b"", b".", b"..", b".git") or part.startswith(b".git:"):
                raise _Refused(f"the index names {os.fsdecode(path)[:100]!r}")
        if mode == _LINK:
            links.add(path)
    if not links:
        return
    old = read(copy.git / "index")
    known = {path for mode, path in _entries(copy, old) if mode == _LINK} if old else set()
    if new := sorted(links - known):
        raise _Refused(
            f"{os.fsdecode(new[0])[:100]} is a repository of its own: remove its .git, ignore it, "
            "or leave it to the user to add it"
        )


def _entries(copy: Copy, index: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Mode and path of everything in an index, read by git from a file nobody else can change."""
    file = copy.folder.parent / "index-to-look-at"
    file.write_bytes(index)
    listed = _git(
        copy, "ls-files", "--stage", "-z", "--full-name", env={"GIT_INDEX_FILE": str(file)}
    )
    for entry in listed.split(b"\0"):
        if entry:
            about, _, path = entry.partition(b"\t")
            yield about.split(b" ", 1)[0], path


def _git(
    copy: Copy,
    *words: str,
    env: Mapping[str, str] | None = None,
    data: bytes = b"",
    place: Mapping[str, str] | None = None,
) -> bytes:
    """On the repository itself, whose settings are the user's; with nothing that runs programs."""
    if place is None:
        place = {"GIT_DIR": str(copy.git), "GIT_WORK_TREE": str(copy.workspace)}
    argv = [find_git(), *(w for one in _QUIET for w in ("-c", one)), *words]
    environ = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": "/nonexistent",
        "LC_ALL": "C",
        **place,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        **(env or {}),
    }
    try:
        done = subprocess.run(
            argv, input=data, capture_output=True, env=environ, cwd=copy.workspace,
            timeout=_GIT_SECONDS, start_new_session=True, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise _Refused(f"git {words[0]} took too long") from None
    if done.returncode:
        why = " ".join(done.stderr.decode("utf-8", "replace").split())[:200]
        raise _Refused(f"git {words[0]}: {why}")
    return done.stdout


# Taking it over


def _take_objects(copy: Copy) -> None:
    """Objects are named by their content, and what is there already is never replaced. A pack's
    index comes last: git looks for those."""
    stored = 0
    for last in (False, True):
        for path, folder in walk(copy.folder, "objects"):
            name = path.removeprefix("objects/")
            target = copy.git / "objects" / name
            if _object(name) and name.endswith(".idx") is last and not target.exists():
                source = opened(name.rpartition("/")[2], folder)
                if source >= 0:
                    stored += 1
                    with os.fdopen(source, "rb") as file:
                        _store(target, file, sync=stored <= _SYNCED_ALONE)
    if stored > _SYNCED_ALONE:
        os.sync()


def _object(name: str) -> bool:
    return bool(_LOOSE.fullmatch(name) or _PACK.fullmatch(name))


def _store(target: Path, source: IO[bytes], *, sync: bool) -> None:
    target.parent.mkdir(exist_ok=True)
    temporary = target.with_name(f"tmp_obj_{os.urandom(6).hex()}")
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o444)
        with os.fdopen(fd, "wb") as file:
            shutil.copyfileobj(source, file, 1 << 20)
            file.flush()
            if sync:
                os.fsync(fd)
        temporary.rename(target)
    finally:
        temporary.unlink(missing_ok=True)


def _connected(copy: Copy, new: Mapping[str, bytes]) -> None:
    """Whatever a new reference leads to is there, as when something was fetched."""
    tips = set()
    for name, data in new.items():
        if name == "HEAD" or name.startswith("refs/") or name in ("packed-refs", *_HEADS):
            tips.update(re.findall(rf"^\^?({_SHA})", data.decode("utf-8", "replace"), re.MULTILINE))
    if tips:
        words = ("rev-list", "--objects", "--stdin", "--quiet", "--not", "--all")
        _git(copy, *words, data="\n".join(sorted(tips)).encode() + b"\n")


def _replace(copy: Copy, new: Mapping[str, bytes], gone: list[str]) -> None:
    """All or nothing, as far as files can: every name is locked as git would lock it, everybody
    else's changes since the copy was made are noticed, and only then anything is written."""
    locks: dict[str, Path] = {}
    try:
        for name in sorted({*new, *gone}):
            locks[name] = _lock(copy.git / name, new.get(name, b""))
        for name in locks:
            now = read(copy.git / name)
            if (digest(now) if now is not None else None) != copy.before.get(name):
                raise _Refused(f"{name} was changed by another program meanwhile; do it again")
        for name in gone:
            (copy.git / name).unlink()
            locks.pop(name).unlink()
            _leave_empty(copy.git, name)
        for name in sorted(new, key=lambda n: (n in ("HEAD", "index"), n)):
            locks.pop(name).rename(copy.git / name)
    finally:
        for lock in locks.values():
            with contextlib.suppress(FileNotFoundError):
                lock.unlink()


def _lock(target: Path, data: bytes) -> Path:
    lock = target.with_name(target.name + ".lock")
    target.parent.mkdir(parents=True, exist_ok=True)
    fd = _exclusively(lock)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(fd)
    return lock


def _leave_empty(git: Path, name: str) -> None:
    """A folder without branches goes: its name may become one."""
    folders = name.split("/")[:-1]
    while len(folders) > 2:
        try:
            (git / "/".join(folders)).rmdir()
        except OSError:
            return
        folders.pop()


def _exclusively(lock: Path) -> int:
    until = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            return os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
        except FileExistsError:
            if time.monotonic() > until:
                raise _Refused("another git is at work there; do it again") from None
            time.sleep(0.02)
