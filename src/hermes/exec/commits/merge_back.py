"""Validates what a command changed in an overlay and writes it into the repository."""

import hashlib
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, NamedTuple

from msgspec import structs

from hermes.exec.commits import overlay
from hermes.exec.commits.overlay import GitOverlay, hash_content, read_regular
from hermes.exec.launcher.placeholders import PLACEHOLDER, hold_name, release_name
from hermes.exec.snapshots.safe_git import run_safe_git

_SHA = r"[0-9a-f]{40}(?:[0-9a-f]{24})?"
_REF_KIND = r"refs/(?:stash$|(?:heads|tags|remotes)/)"
"""Other references change what git shows (refs/replace), or belong to programs."""
_OTHER_KIND = (
    "only branches, tags, the stash and remote branches are taken from the sandbox, not {!r}"
)
_REFERENCE = re.compile(rf"(?:{_SHA}|ref: (?={_REF_KIND})[^\x00-\x20\x7f]{{1,500}})\n?")
_SHA_LINES = re.compile(rf"(?:{_SHA}\b[^\n\0]*\n?)*")
_PACKED_REFS = re.compile(rf"(?:#[^\n\0]*\n|\^{_SHA}\n|{_SHA} refs/[^\x00-\x20\x7f]+\n)*")
_REF_NAME = re.compile(
    rf"(?:(?={_REF_KIND})|logs/(?=HEAD$|{_REF_KIND}))"
    r"(?!.*(?:\.\.|//|/[.-]|@\{|\.lock(?:/|$)))[^\x00-\x20\x7f~^:?*\[\\]+"
)
_HEAD_FILES = frozenset(
    "ORIG_HEAD MERGE_HEAD CHERRY_PICK_HEAD REVERT_HEAD FETCH_HEAD AUTO_MERGE "
    "MERGE_AUTOSTASH".split()
)
_MESSAGE_FILES = frozenset("COMMIT_EDITMSG MERGE_MSG SQUASH_MSG MERGE_MODE".split())
_TOP_FILES = (*_HEAD_FILES, *_MESSAGE_FILES, "HEAD", "index", "packed-refs")
_MAX_BYTES_OF = {"index": 256 << 20, "packed-refs": 64 << 20}
_MAX_LOG_BYTES = 64 << 20
_MAX_OTHER_BYTES = 1 << 20
_OBJECT_NAME = re.compile(
    rf"[0-9a-f]{{2}}/[0-9a-f]{{38}}(?:[0-9a-f]{{24}})?|pack/pack-{_SHA}\.(?:pack|idx)"
)
_MISSING_LINKS = 2
"""Exit status of `git fsck` when an object refers to others that are not there."""
_SUBMODULE_MODE, _LINK_MODE = b"160000", b"120000"
_INDEX_ENTRY = re.compile(rb"(\S) (\d+) ([0-9a-f]+) \d\t([^\0]+)\0((?:  [^\n]*\n)*)")
_ADDED_LATER = b"flags: 2"
"""Of an entry that has a name and no content yet (`git add -N`)."""
_MAX_SINGLE_SYNCS = 200
"""Objects that are synced one by one; more than that are synced together."""
_LOCK_SECONDS = 3.0
_GIT_SECONDS = 120.0


class ChangesRejected(Exception):
    """The reason why none of the changes are kept."""


class NoRepository(ChangesRejected):
    """There was no repository, and the command has not created one."""

    def __init__(self) -> None:
        super().__init__("this folder has no repository of its own")


class _IndexEntry(NamedTuple):
    """`facts`: what git remembers of the file, so that it need not read it again."""

    tag: bytes
    mode: bytes
    object: bytes
    path: bytes
    facts: bytes

    @property
    def hides_changes(self) -> bool:
        return self.tag == b"S" or self.tag.islower()


def merge_overlay(copy: GitOverlay) -> None:
    """Write a command's changes into the repository and remove the overlay; blocking. Raises
    ChangesRejected, and then nothing was changed."""
    try:
        _merge_changes(copy)
    finally:
        overlay.remove_copy(copy)


def _merge_changes(copy: GitOverlay) -> None:
    if not copy.is_new_repository:
        _merge_existing(copy)
        return
    if not os.path.lexists(copy.folder / "HEAD"):
        raise NoRepository
    path = os.fsencode(copy.git)
    try:
        lock = hold_name(path)
    except OSError as error:
        raise ChangesRejected(_explain_write_error(error)) from None
    if lock < 0:
        raise ChangesRejected("another program created .git meanwhile")
    try:
        _merge_existing(_init_repository(copy))
    except ChangesRejected:
        for entry in copy.git.iterdir():  # all of it was created just now
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        copy.git.chmod(PLACEHOLDER & 0o777)
        release_name(path, lock)
        raise
    os.close(lock)


def _init_repository(copy: GitOverlay) -> GitOverlay:
    """Create the repository ourselves: its settings are git's defaults, not the command's. It is
    created in the placeholder, on which other commands may rely: to them it stays read-only."""
    copy.git.chmod(0o755)
    _run_git(copy, "init", "--quiet", location={})
    top = {name: read_regular(copy.git / name) for name in ("HEAD", "index")}
    before = {name: hash_content(data) for name, data in top.items() if data is not None}
    return structs.replace(copy, before=before)


def _merge_existing(copy: GitOverlay) -> None:
    try:
        new, removed = _find_changes(copy)
        if new or removed:
            incoming = _copy_objects(copy)
            _check_objects(copy, incoming)
            _check_connectivity(copy, new, incoming)
            _store_objects(copy, incoming)
            _replace_files(copy, new, removed)
    except OSError as error:
        raise ChangesRejected(_explain_write_error(error)) from None


def _explain_write_error(error: OSError) -> str:
    return f"the repository cannot be written ({error.strerror})"


# Finding and validating changes


def _find_changes(copy: GitOverlay) -> tuple[dict[str, bytes], list[str]]:
    """Name -> new content, and the names that were removed, all of which may be merged."""
    for name in overlay.UNFINISHED_OPERATIONS:
        if os.path.lexists(copy.folder / name):
            raise ChangesRejected(
                f"git stopped in the middle of an operation ({name}), whose plan cannot be taken "
                "from the sandbox: finish it within one command, or leave it to the user"
            )
    found: dict[str, bytes] = {}
    present = set()
    other_refs: dict[str, bytes] = {}
    for name, data in _read_files(copy.folder):
        present.add(name)
        if data is None or copy.before.get(name) != hash_content(data):
            found[name] = _validate_file(copy, name, data)
        other_refs.update(_list_other_refs(name, data))
    gone = [name for name in copy.before if name not in present]
    removed = [name for name in gone if name in _TOP_FILES or _REF_NAME.fullmatch(name)]
    if "HEAD" in removed:
        raise ChangesRejected("HEAD was removed")
    if "packed-refs" in found or set(gone) - set(removed):
        _check_other_refs(copy, other_refs)
    return found, removed


def _read_files(git: Path) -> Iterator[tuple[str, bytes | None]]:
    """The files of a repository or an overlay that may be merged, packed references first."""
    for name in _TOP_FILES:
        if os.path.lexists(git / name):
            yield name, read_regular(git / name, _max_bytes(name))
    for tree in overlay.COPIED_TREES:
        for name, folder in overlay.walk_files(git, tree):
            yield name, read_regular(name.rpartition("/")[2], _max_bytes(name), folder=folder)


def _list_other_refs(name: str, data: bytes | None) -> Iterator[tuple[str, bytes]]:
    """Name and value of references in this file that are never merged."""
    refs: list[tuple[str, bytes]] = []
    if data and name == "packed-refs":
        lines = (line for line in data.splitlines() if line[:1] not in (b"#", b"^"))
        refs = [(os.fsdecode(line[line.find(b" ") + 1 :]), line.split(b" ")[0]) for line in lines]
    elif data and name.startswith("refs/"):
        refs = [(name, data.rstrip(b"\n"))]
    yield from (ref for ref in refs if not re.match(_REF_KIND, ref[0]))


def _check_other_refs(copy: GitOverlay, now: Mapping[str, bytes]) -> None:
    before = dict(r for file in _read_files(copy.git) for r in _list_other_refs(*file))
    if changed := sorted(ref for ref, _ in before.items() ^ now.items()):
        raise ChangesRejected(_OTHER_KIND.format(changed[0][:100]))


def _max_bytes(name: str) -> int:
    return _MAX_BYTES_OF.get(name, _MAX_LOG_BYTES if name.startswith("logs/") else _MAX_OTHER_BYTES)


def _validate_file(copy: GitOverlay, name: str, data: bytes | None) -> bytes:
    if data is None:
        raise ChangesRejected(f"{name} is not an ordinary file")
    text = data.decode("utf-8", "replace")
    if name == "index":
        data = _check_index(copy, data)
    elif name in _HEAD_FILES:
        _require_valid(_SHA_LINES.fullmatch(text), name)
    elif name == "packed-refs":
        _require_valid(_PACKED_REFS.fullmatch(text), name)
    elif name == "HEAD" or name.startswith("refs/"):
        _require_valid(_REFERENCE.fullmatch(text), name)
    if "/" in name and not re.match(rf"logs/HEAD$|(?:logs/)?{_REF_KIND}", name):
        raise ChangesRejected(_OTHER_KIND.format(name[:100]))
    if "/" in name:
        _require_valid(_REF_NAME.fullmatch(name), name)
    return data


def _require_valid(valid: object, name: str) -> None:
    if not valid:
        raise ChangesRejected(f"{name[:100]!r} is not what git would write")


def _check_index(copy: GitOverlay, data: bytes) -> bytes:
    """Reject paths that lead into .git, folders that become repositories of their own (git would
    read settings in them that the command may have written), and marks that hide changes. Returns
    the index without facts about files that have another content than it says."""
    file = copy.folder.parent / "index-to-check"
    old = read_regular(copy.git / "index")
    known = set(_list_index_entries(copy, file, old) if old else ())
    new = set(_list_index_entries(copy, file, data)) - known
    for entry in new:
        for part in entry.path.lower().split(b"/"):
            if part in (b"", b".", b"..", b".git") or part.startswith(b".git:"):
                raise ChangesRejected(f"the index names {os.fsdecode(entry.path)[:100]!r}")
    marks = {(entry.path, entry.hides_changes, entry.mode) for entry in known}
    for entry in sorted(new):
        path = os.fsdecode(entry.path)[:100]
        if (entry.path, entry.hides_changes, entry.mode) in marks:
            continue
        if entry.hides_changes:
            raise ChangesRejected(
                f"the index marks {path} as unchanged (skip-worktree or assume-unchanged), which "
                "would hide changes from the user"
            )
        if entry.mode == _SUBMODULE_MODE:
            raise ChangesRejected(
                f"{path} is a repository of its own: remove its .git, ignore it, or leave it to "
                "the user to add it"
            )
    ordinary = (e for e in new if e.tag == b"H" and e.mode != _SUBMODULE_MODE)
    doubtful = [e for e in ordinary if _ADDED_LATER not in e.facts and not _has_content(copy, e)]
    rows = b"".join(b"%b %b 0\t%b\0" % (e.mode, e.object, e.path) for e in doubtful)
    # The trees that the index names for its folders would be in the next commit unseen.
    env = {"GIT_INDEX_FILE": str(file), "GIT_TEST_CHECK_CACHE_TREE": "1"}
    _run_git(copy, "update-index", "-z", "--force-write-index", "--index-info", env=env, data=rows)
    return file.read_bytes()


def _has_content(copy: GitOverlay, entry: _IndexEntry) -> bool:
    """Whether the file has the content that the entry names."""
    path = copy.workspace / os.fsdecode(entry.path)
    is_link = path.is_symlink()
    data = os.fsencode(path.readlink()) if is_link else read_regular(path)
    if data is None or is_link != (entry.mode == _LINK_MODE):
        return False
    hashing = hashlib.sha1 if len(entry.object) == 40 else hashlib.sha256
    return hashing(b"blob %d\0" % len(data) + data).hexdigest().encode() == entry.object


def _list_index_entries(copy: GitOverlay, file: Path, index: bytes) -> Iterator[_IndexEntry]:
    """All entries of an index, read by git from a file only we can change."""
    file.write_bytes(index)
    words = ("ls-files", "--stage", "--debug", "-v", "-z", "--full-name")
    listed = _run_git(copy, *words, env={"GIT_INDEX_FILE": str(file)})
    return (_IndexEntry(*found.groups()) for found in _INDEX_ENTRY.finditer(listed))


def _run_git(
    copy: GitOverlay,
    *words: str,
    env: Mapping[str, str] | None = None,
    data: bytes = b"",
    location: Mapping[str, str] | None = None,
    accepted: int = 0,
) -> bytes:
    """Run git on the repository itself. `accepted`: an exit status that is no failure."""
    if location is None:
        location = {"GIT_DIR": str(copy.git), "GIT_WORK_TREE": str(copy.workspace)}
    return run_safe_git(
        *words,
        purpose="merging",
        failure=ChangesRejected,
        cwd=copy.workspace,
        env={"GIT_OPTIONAL_LOCKS": "0", **location, **(env or {})},
        seconds=_GIT_SECONDS,
        data=data,
        accepted=(0, accepted),
    )


# Writing


def _copy_objects(copy: GitOverlay) -> Path:
    """Copy new objects to a repository of their own, which no command sees, and return it."""
    incoming = copy.folder.parent / "incoming"
    hashing = _run_git(copy, "rev-parse", "--show-object-format").decode().strip()
    words = ("init", "--quiet", "--bare", "--template=", f"--object-format={hashing}")
    _run_git(copy, *words, str(incoming), location={})
    for path, folder in overlay.walk_files(copy.folder, "objects"):
        name = path.removeprefix("objects/")
        if _OBJECT_NAME.fullmatch(name) and not (copy.git / "objects" / name).exists():
            source = overlay.open_regular(name.rpartition("/")[2], folder)
            if source >= 0:
                with os.fdopen(source, "rb") as file:
                    _store_object(incoming / "objects" / name, file, sync=False)
    return incoming


def _check_objects(copy: GitOverlay, incoming: Path) -> None:
    """Check that every object is what its name says, and well-formed."""
    words = ("fsck", "--full", "--no-dangling", "--no-progress")
    _run_git(copy, *words, location={"GIT_DIR": str(incoming)}, accepted=_MISSING_LINKS)


def _store_objects(copy: GitOverlay, incoming: Path) -> None:
    """Existing objects are never replaced. Git finds packs by their index, which comes last."""
    found = [path for path in (incoming / "objects").glob("*/*") if path.is_file()]
    for number, path in enumerate(sorted(found, key=lambda path: path.suffix == ".idx")):
        target = copy.git / "objects" / path.relative_to(incoming / "objects")
        with path.open("rb") as file:
            _store_object(target, file, sync=number < _MAX_SINGLE_SYNCS)
    if len(found) > _MAX_SINGLE_SYNCS:
        os.sync()


def _store_object(target: Path, source: IO[bytes], *, sync: bool) -> None:
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


def _check_connectivity(copy: GitOverlay, new: Mapping[str, bytes], incoming: Path) -> None:
    """Check, as after a fetch, that everything the new references lead to exists."""
    tips = set()
    for name, data in new.items():
        if name == "HEAD" or name.startswith("refs/") or name in ("packed-refs", *_HEAD_FILES):
            tips.update(re.findall(rf"^\^?({_SHA})", data.decode("utf-8", "replace"), re.MULTILINE))
    if tips:
        words = ("rev-list", "--objects", "--stdin", "--quiet", "--not", "--all")
        env = {"GIT_ALTERNATE_OBJECT_DIRECTORIES": str(incoming / "objects")}
        _run_git(copy, *words, data="\n".join(sorted(tips)).encode() + b"\n", env=env)


def _replace_files(copy: GitOverlay, new: Mapping[str, bytes], removed: list[str]) -> None:
    """Lock every name as git does, check that nobody else has changed it, and only then write."""
    locks: dict[str, Path] = {}
    try:
        for name in sorted({*new, *removed}):
            locks[name] = _lock_file(copy.git / name, new.get(name, b""))
        for name in locks:
            now = read_regular(copy.git / name)
            if (hash_content(now) if now is not None else None) != copy.before.get(name):
                raise ChangesRejected(f"{name} was changed by another program meanwhile; try again")
        for name in removed:
            (copy.git / name).unlink()
            locks.pop(name).unlink()
            _remove_empty_folders(copy.git, name)
        for name in sorted(new, key=lambda n: (n in ("HEAD", "index"), n)):
            locks.pop(name).rename(copy.git / name)
    finally:
        for lock in locks.values():
            lock.unlink(missing_ok=True)


def _lock_file(target: Path, data: bytes) -> Path:
    lock = target.with_name(target.name + ".lock")
    target.parent.mkdir(parents=True, exist_ok=True)
    fd = _create_exclusively(lock)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(fd)
    return lock


def _remove_empty_folders(git: Path, name: str) -> None:
    """Remove folders that hold no branches any more: their names may become branches."""
    folders = name.split("/")[:-1]
    while len(folders) > 2:
        try:
            (git / "/".join(folders)).rmdir()
        except OSError:
            return
        folders.pop()


def _create_exclusively(lock: Path) -> int:
    until = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            return os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
        except FileExistsError:
            if time.monotonic() > until:
                raise ChangesRejected(
                    "another git process is using the repository; try again"
                ) from None
            time.sleep(0.02)
