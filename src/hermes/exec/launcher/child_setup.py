"""The launcher's side of a sandbox: what a process does to itself before it becomes the command."""

# Only the standard library: the launcher runs without anything else. What to do was decided by
# `hermes.exec.sandbox`; here it is merely done, and a step that fails keeps the command from
# running.

# ruff: noqa: PTH102, PTH104, PTH108, PTH110, PTH120, PTH123, PTH208
from __future__ import annotations

import contextlib
import os
import resource
import socket
import struct

from hermes.exec.launcher import cgroup
from hermes.exec.launcher import syscall_broker as broker
from hermes.exec.launcher.libc import call, check, libc
from hermes.exec.launcher.placeholders import (
    ASIDE,
    hold,
    hold_links,
    let_go,
    let_go_links,
    would_be_bare,
)
from hermes.exec.launcher.protocol import FIRST_FILE_FD, STATUS_FD, Box

_NEWNS, _NEWUSER, _MS_PRIVATE = 0x00020000, 0x10000000, 0x44000
_MS_READ_ONLY_BIND, _MS_RELATIME = 0x1021, 0x200000
_SAME_FLAGS = os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC | os.ST_NOATIME | os.ST_NODIRATIME
_OPEN_TREE, _MOVE_MOUNT, _EMPTY_PATH = 428, 429, 4
_COPY = 0o2000000 | 0x8000 | 1
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_PR_CAPBSET_DROP, _PR_SET_SECUREBITS, _PR_SET_NO_NEW_PRIVS = 24, 28, 38
_NO_ROOT_POWERS = 0x2F
"""Being root gives no capabilities, and there is no way back."""
_CAPABILITIES = 0x20080522
_FILTER, _NEW_LISTENER = 1, 8
_AT_FDCWD = -100


class Held:
    """What a keeper holds for its command, to be given back when all of it has ended."""

    def __init__(self, box: Box, groups: list[str]) -> None:
        self.listener = -1
        """Where the command's seccomp filter asks."""
        self._box = box
        self._places: list[tuple[bytes, int]] = []
        self._folders: list[tuple[list[bytes], int]] = []
        self._groups = groups
        self._counted = False
        self._status = (-1, -1)
        self._channel: tuple[socket.socket, socket.socket] | None = None

    @property
    def wrapped(self) -> bool:
        """Whether the process we start is a wrapper that ends when the command in it does."""
        return bool(self._box.get("wrapper"))

    @property
    def terminal(self) -> bool:
        """Whether the process we start controls its terminal; inside of a wrapper the command
        does, or its keys would end the wrapper."""
        return bool(self._box.get("pty")) and not self.wrapped

    def prepare(self) -> None:
        if scratch := self._box.get("scratch"):
            os.mkdir(scratch, 0o700)
        for path in self._box.get("placeholders", ()):
            self._places.append((path, hold(path)))
        links = self._box.get("links", ())
        for folder in sorted({os.path.dirname(path) for path in links}):
            paths = [path for path in links if os.path.dirname(path) == folder]
            self._folders.append((paths, hold_links(folder, paths)))
        if limits := self._box.get("cgroup"):
            self._counted = cgroup.limit(self._groups, *limits)
        if self.wrapped:
            self._status = os.pipe()
        if "writable" in self._box:
            self._channel = socket.socketpair()

    def enter(self) -> None:
        """In the command's own process."""
        limits = list(self._box.get("limits", ()))
        if not self._counted:
            limits += self._box.get("otherwise", ())
        if self.wrapped:
            os.dup2(self._status[1], STATUS_FD)
        if covers := self._box.get("covers"):
            _cover(covers)
        for number, content in enumerate(self._box.get("files", ()), FIRST_FILE_FD):
            os.dup2(_in_memory(content), number)
        _limit(limits)
        if self._box.get("bare"):
            _give_up_powers()
        if "landlock" in self._box:
            _landlock(*self._box["landlock"])
        if "seccomp" in self._box:
            _seccomp(*self._box["seccomp"], tell=self._channel and self._channel[1])

    def entered(self) -> None:
        """In the keeper, once the command runs or has failed to."""
        if self.wrapped:
            os.close(self._status[1])
            os.set_blocking(self._status[0], False)
        if self._channel:
            ours, theirs = self._channel
            ours.setblocking(False)
            with ours, theirs, contextlib.suppress(BlockingIOError):
                _, fds, _, _ = socket.recv_fds(ours, 1, 1)
                self.listener = fds[0] if fds else -1
                broker.hurry(self.listener)

    def serve(self) -> None:
        """Answer one question of the seccomp filter."""
        box = self._box
        ground = (box["writable"], box["readonly"])
        reach = broker.Reach(*ground, box.get("way"), box.get("workspace", b""))
        if not broker.answer(self.listener, reach):
            os.close(self.listener)
            self.listener = -1

    def never_ran(self, status: int) -> bool:
        """Whether bubblewrap ended like this because it could not start the command."""
        if not self.wrapped or status != 1:
            return False
        with contextlib.suppress(BlockingIOError):
            return b'"exit-code"' not in os.read(self._status[0], 4096)
        return True

    def stop_forking(self) -> None:
        """Before the processes are ended: nobody may fork faster than we kill."""
        cgroup.stop_forking(self._groups)

    def release(self) -> None:
        for path, lock in self._places:
            let_go(path, lock)
        for paths, lock in self._folders:
            let_go_links(paths, lock)
        for path in self._box.get("unwanted", ()):
            with contextlib.suppress(OSError):
                os.unlink(path)
        if (folder := self._box.get("plain")) and would_be_bare(folder):
            with contextlib.suppress(OSError):
                os.rename(folder + b"/HEAD", folder + b"/" + ASIDE)
        if scratch := self._box.get("scratch"):
            with contextlib.suppress(OSError, RecursionError):
                _remove(scratch)


def _cover(links: list[bytes]) -> None:
    """In a mount namespace of our own, a mount on each link. Bubblewrap's begins with a copy."""
    uid, gid = os.getuid(), os.getgid()
    check(libc().unshare(_NEWNS | _NEWUSER))
    for name, line in (
        ("setgroups", "deny"),
        ("uid_map", f"{uid} {uid} 1"),
        ("gid_map", f"{gid} {gid} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(line)
    check(libc().mount(b"none", b"/", None, _MS_PRIVATE, None))
    for link in links:
        source = link if os.path.exists(link) else os.devnull.encode()
        tree = call(_OPEN_TREE, _AT_FDCWD, source, _COPY)
        call(_MOVE_MOUNT, tree, b"", _AT_FDCWD, link, _EMPTY_PATH)
        os.close(tree)
        _remount_read_only(link)


def _remount_read_only(path: bytes) -> None:
    """With the flags it has: a namespace of ours may not take any of them away."""
    has = os.statvfs(path).f_flag
    flags = has & _SAME_FLAGS | (_MS_RELATIME if has & os.ST_RELATIME else 0)
    check(libc().mount(None, path, None, flags | _MS_READ_ONLY_BIND, None))


def _in_memory(content: bytes) -> int:
    fd = os.memfd_create("sandbox")
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _limit(limits: list[tuple[int, int]]) -> None:
    for number, most in limits:
        hard = resource.getrlimit(number)[1]
        value = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(number, (value, value))
    if limits:
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            file.write("500")  # when memory runs out, this goes before the agent


def _give_up_powers() -> None:
    library = libc()
    for capability in range(64):
        library.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    library.prctl(_PR_SET_SECUREBITS, _NO_ROOT_POWERS, 0, 0, 0)
    check(library.capset(struct.pack("=Ii", _CAPABILITIES, 0), bytes(24)))
    check(library.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))


def _landlock(handled: tuple[int, int, int], rules: list[tuple[bytes, int]]) -> None:
    attributes = struct.pack("=3Q", *handled)
    size = 8 if not any(handled[1:]) else 16 if not handled[2] else 24
    ruleset = call(_LANDLOCK_CREATE, attributes, size, 0)
    for path, access in rules:
        try:
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            continue  # what is gone, or was never ours to see, needs no permission
        call(_LANDLOCK_ADD, ruleset, 1, struct.pack("=Qi", access, fd), 0)
        os.close(fd)
    check(libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    call(_LANDLOCK_RESTRICT, ruleset, 0)
    os.close(ruleset)


def _seccomp(number: int, program: bytes, *, tell: socket.socket | None) -> None:
    import ctypes

    code = ctypes.create_string_buffer(program, len(program))
    fprog = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
    check(libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    listener = call(number, _FILTER, _NEW_LISTENER if tell else 0, fprog)
    if tell:
        socket.send_fds(tell, [b"l"], [listener])
        os.close(listener)


def _remove(folder: bytes, inside: int | None = None) -> None:
    """The folder and all in it, following no link; a mode that forbids it is changed."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=inside)
    try:
        os.fchmod(fd, 0o700)
        for name in os.listdir(fd):
            try:
                os.unlink(name, dir_fd=fd)
            except IsADirectoryError:
                os.chmod(name, 0o700, dir_fd=fd)
                _remove(os.fsencode(name), fd)
    finally:
        os.close(fd)
    os.rmdir(folder, dir_fd=inside)
