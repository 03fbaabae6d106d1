"""Makes, moves and removes files for a command where Landlock, which opens whole trees, cannot."""

# Something protected in a folder closes all of that folder to Landlock, and the workspace itself
# nearly always holds something. So the calls that change folders are asked about. Wherever Landlock
# opens a folder, or nothing may be changed, the kernel goes on and decides, so that swapping what
# was looked at gains nobody anything. In between, the keeper does it itself: beneath a folder, or
# on a file, that it has opened and found to be inside the workspace and neither protected nor above
# something that is.

# ruff: noqa: PTH115, PTH120
from __future__ import annotations

import contextlib
import errno
import os
import stat
import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from hermes.exec.launcher.libc import call

CALLS: dict[str, tuple[int, int]] = {
    "open": (2, -1), "openat": (257, 56), "creat": (85, -1),
    "mkdir": (83, -1), "mkdirat": (258, 34),
    "rename": (82, -1), "renameat": (264, 38), "renameat2": (316, 276),
    "unlink": (87, -1), "unlinkat": (263, 35), "rmdir": (84, -1),
    "link": (86, -1), "linkat": (265, 37),
    "symlink": (88, -1), "symlinkat": (266, 36),
}  # fmt: skip
"""Name -> number on x86_64 and on aarch64; -1: there is none."""
_AT_FDCWD = -100
_REMOVE_FOLDER, _FOLLOW = 0x200, 0x400
_TMPFILE = 0o20000000
_RENAME = (316, 276)
_RENAME_FLAGS = 3
"""Not to replace, and to exchange."""
ADD_FD = 0x40182103
_NEW_FD = struct.Struct("=QIIII")
_KEPT = os.O_APPEND | os.O_ACCMODE | os.O_SYNC | os.O_DSYNC | os.O_NONBLOCK | os.O_NOCTTY
"""Flags that stay when a file that exists is opened."""


class Elsewhere(Exception):
    """The kernel is to decide, and to say."""


class Asker(NamedTuple):
    """Who asked, and how to look at him."""

    pid: int
    machine: int
    """0: x86_64, 1: aarch64"""
    text: Callable[[int], bytes]
    """The text at an address of his memory."""
    still_there: Callable[[], None]
    """Raises OSError when he is not: the number may be somebody else's by now."""
    give: Callable[[int, bool], int]
    """Hands him a descriptor, closed on exec or not; its number there."""


class Ground(NamedTuple):
    """Real paths, as bytes."""

    workspace: bytes
    open: list[bytes]
    """What Landlock lets him change."""
    closed: list[bytes]

    def lets(self, folder: bytes) -> bool:
        """Whether Landlock lets him make and remove things there, and change files."""
        return any(folder == root or folder.startswith(root + b"/") for root in self.open)

    def moved(self, path: bytes) -> None:
        """What Landlock opened there is gone; something else of that name it would not open."""
        self.open[:] = [r for r in self.open if r != path and not r.startswith(path + b"/")]

    def is_ours(self, path: bytes) -> bool:
        """Whether this may be changed, and the kernel would refuse it."""
        if not path.startswith(self.workspace + b"/"):
            return False
        below = path + b"/"
        return not any(
            path == one or path.startswith(one + b"/") or one.startswith(below)
            for one in self.closed
        )


def answer(name: str, args: list[int], asker: Asker, ground: Ground) -> int:
    """The call's result. Raises OSError, or Elsewhere."""
    placed = "at" in name and name != "creat"
    words = args if placed else [_AT_FDCWD, *args]
    match name:
        case "open" | "openat":
            return _open(asker, ground, (words[0], words[1]), words[2], words[3])
        case "creat":
            flags = os.O_CREAT | os.O_WRONLY | os.O_TRUNC
            return _open(asker, ground, (words[0], words[1]), flags, words[2])
        case "mkdir" | "mkdirat":
            with _place(asker, ground, (words[0], words[1])) as place, _umask(asker.pid):
                os.mkdir(place.last, words[2] & 0o1777, dir_fd=place.folder)
        case "unlink" | "rmdir" | "unlinkat":
            is_folder = name == "rmdir" or bool(placed and words[2] & _REMOVE_FOLDER)
            with _place(asker, ground, (words[0], words[1])) as place:
                (os.rmdir if is_folder else os.unlink)(place.last, dir_fd=place.folder)
                ground.moved(place.path)
        case "symlink" | "symlinkat":
            where = (args[1], args[2]) if placed else (_AT_FDCWD, args[1])
            with _place(asker, ground, where) as place:
                os.symlink(asker.text(args[0]), place.last, dir_fd=place.folder)
        case _:
            _two(
                name, args if placed else [_AT_FDCWD, args[0], _AT_FDCWD, args[1], 0], asker, ground
            )
    return 0


def _two(name: str, args: list[int], asker: Asker, ground: Ground) -> None:
    """Moving and linking, which concern two places."""
    flags = 0 if name == "renameat" else args[4] & 0xFFFFFFFF
    with (
        _resolved(asker, (args[0], args[1])) as here,
        _resolved(asker, (args[2], args[3])) as there,
    ):
        if ground.lets(here.parent) and ground.lets(there.parent):
            raise Elsewhere
        if not (ground.is_ours(here.path) and ground.is_ours(there.path)):
            raise Elsewhere
        asker.still_there()
        if name.startswith("link"):
            if flags & ~_FOLLOW or (flags & _FOLLOW and _is_link(here)):
                raise Elsewhere
            os.link(
                here.last,
                there.last,
                src_dir_fd=here.folder,
                dst_dir_fd=there.folder,
                follow_symlinks=False,
            )
            return
        if flags & ~_RENAME_FLAGS:
            raise Elsewhere
        _rename(asker.machine, here, there, flags)
        ground.moved(here.path)
        ground.moved(there.path)


def _rename(machine: int, here: Place, there: Place, flags: int) -> None:
    call(_RENAME[machine], here.folder, here.last, there.folder, there.last, flags)


# Opening


def _open(asker: Asker, ground: Ground, where: tuple[int, int], flags: int, mode: int) -> int:
    if flags & (os.O_PATH | os.O_DIRECTORY | _TMPFILE):
        raise Elsewhere
    with _resolved(asker, where) as place:
        if ground.lets(place.parent):
            raise Elsewhere
        fd = _existing(asker, ground, place, flags)
        if fd < 0:
            fd = _new(asker, ground, place, flags, mode)
    try:
        return asker.give(fd, bool(flags & os.O_CLOEXEC))
    finally:
        os.close(fd)


def _existing(asker: Asker, ground: Ground, place: Place, flags: int) -> int:
    """An ordinary file, whatever link leads to it; it is the one that was looked at. -1: none."""
    how = os.O_PATH | os.O_CLOEXEC | flags & os.O_NOFOLLOW
    try:
        found = os.open(place.last, how, dir_fd=place.folder)
    except FileNotFoundError:
        return -1
    except OSError:
        raise Elsewhere from None
    try:
        path = os.readlink(b"/proc/self/fd/%d" % found)
        if ground.lets(os.path.dirname(path)) or not ground.is_ours(path):
            raise Elsewhere
        if not stat.S_ISREG(os.fstat(found).st_mode):
            raise Elsewhere
        asker.still_there()
        if flags & os.O_CREAT and flags & os.O_EXCL:
            raise FileExistsError(errno.EEXIST, "it exists")
        return os.open(f"/proc/self/fd/{found}", flags & (_KEPT | os.O_TRUNC) | os.O_CLOEXEC)
    finally:
        os.close(found)


def _new(asker: Asker, ground: Ground, place: Place, flags: int, mode: int) -> int:
    if not flags & os.O_CREAT or not ground.is_ours(place.path):
        raise Elsewhere
    asker.still_there()
    how = flags & (_KEPT | os.O_EXCL) | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with _umask(asker.pid):  # never waiting: somebody may have put a pipe there meanwhile
        fd = os.open(place.last, how | os.O_NONBLOCK, mode & 0o1777, dir_fd=place.folder)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise Elsewhere
    os.set_blocking(fd, not flags & os.O_NONBLOCK)
    return fd


# Places


class Place(NamedTuple):
    """A name in a folder that is held open."""

    folder: int
    parent: bytes
    """The path of that folder."""
    last: bytes
    """With the slash at its end that only folders may have."""

    @property
    def path(self) -> bytes:
        return self.parent + b"/" + self.last.rstrip(b"/")


@contextlib.contextmanager
def _place(asker: Asker, ground: Ground, where: tuple[int, int]) -> Iterator[Place]:
    """Where something may be made or removed by us."""
    with _resolved(asker, where) as place:
        if ground.lets(place.parent) or not ground.is_ours(place.path):
            raise Elsewhere
        asker.still_there()
        yield place


@contextlib.contextmanager
def _resolved(asker: Asker, where: tuple[int, int]) -> Iterator[Place]:
    path = asker.text(where[1])
    plain = path.rstrip(b"/")
    folder, _, last = plain.rpartition(b"/")
    if last in (b"", b".", b".."):
        raise Elsewhere
    if plain != path:
        last += b"/"
    if path.startswith(b"/"):
        folder = folder or b"/"
    with _opened(asker, where[0], folder, os.O_PATH | os.O_DIRECTORY) as fd:
        yield Place(fd, os.readlink(b"/proc/self/fd/%d" % fd), last)


@contextlib.contextmanager
def _opened(asker: Asker, base: int, path: bytes, how: int) -> Iterator[int]:
    """As the asking process would have found it."""
    for own in (b"/proc/", b"/dev/"):
        if path.startswith(own):  # ours would be meant, or no file of a workspace
            raise Elsewhere
    base = base & 0xFFFFFFFF
    base = base - (1 << 32) if base & 0x80000000 else base
    start = f"/proc/{asker.pid}/cwd" if base == _AT_FDCWD else f"/proc/{asker.pid}/fd/{base}"
    with contextlib.ExitStack() as stack:
        try:
            if path.startswith(b"/"):
                fd = os.open(path, how | os.O_CLOEXEC)
            else:
                folder = os.open(start, os.O_PATH | os.O_CLOEXEC)
                stack.callback(os.close, folder)
                fd = os.open(path or b".", how | os.O_CLOEXEC, dir_fd=folder)
        except OSError:
            raise Elsewhere from None  # he is told no more than the kernel would tell him
        stack.callback(os.close, fd)
        yield fd


def _is_link(place: Place) -> bool:
    found = os.stat(place.last, dir_fd=place.folder, follow_symlinks=False)
    return stat.S_ISLNK(found.st_mode)


@contextlib.contextmanager
def _umask(pid: int) -> Iterator[None]:
    """His. A keeper has one thread."""
    theirs = 0o077
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status", "rb") as file:  # noqa: PTH123
        for line in file:
            if line.startswith(b"Umask:"):
                theirs = int(line[6:], 8)
    before = os.umask(theirs)
    try:
        yield
    finally:
        os.umask(before)


def gift(ident: int, fd: int, cloexec: bool) -> bytes:
    """The argument of the request that puts our descriptor among those of who asked."""
    return _NEW_FD.pack(ident, 0, fd, 0, os.O_CLOEXEC if cloexec else 0)
