"""Confines the process that becomes a command, and cleans up after the command has ended."""

# Only the standard library: the launcher runs without anything else. `hermes.exec.sandbox` decides
# what to do; here it is carried out, and a step that fails keeps the command from running.

# ruff: noqa: PTH102, PTH103, PTH104, PTH108, PTH113, PTH120, PTH123, PTH208, PTH211
import contextlib
import fcntl
import marshal
import os
import re
import resource
import signal
import socket
import struct

from hermes.exec.launcher import (
    cgroup,
    libc,
    placeholders,
    protocol,
    session_namespaces,
    syscall_broker,
)
from hermes.exec.launcher.file_broker import WorkspaceArea
from hermes.exec.launcher.ipc_broker import SharedSegments
from hermes.exec.launcher.process_tree import list_below, read_command_line
from hermes.exec.launcher.socket_broker import SocketGrants

_MS_READ_ONLY_BIND, _MS_RELATIME = 0x1021, 0x200000
_SAME_FLAGS = os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC | os.ST_NOATIME | os.ST_NODIRATIME
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_PR_CAPBSET_DROP, _PR_SET_SECUREBITS, _PR_SET_NO_NEW_PRIVS = 24, 28, 38
_NO_ROOT_PRIVILEGES = 0x2F
"""Being root grants no capabilities, and this cannot be undone."""
_CAPABILITY_VERSION = 0x20080522
_FILTER, _NEW_LISTENER = 1, 8
_FOLDER_WITHOUT_LINK = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW
_ESCAPE = re.compile(rb"\\(\d{3})")


class ChildSetup:
    """What a supervisor sets up for its command and releases when all of it has ended."""

    def __init__(
        self, instructions: protocol.SetupInstructions, groups: list[str], namespaces: list[int]
    ) -> None:
        self.listener = -1
        """Descriptor on which the command's seccomp filter sends requests, or -1."""
        self.status_reader = -1
        """Descriptor on which bubblewrap reports its start, or -1."""
        self._stopped = 0
        self.grace = instructions.get("grace", protocol.GRACE_SECONDS)
        """Seconds between TERM and KILL."""
        self._instructions = instructions
        self._placeholders: list[tuple[bytes, int]] = []
        self._link_folders: list[tuple[list[bytes], int]] = []
        self._groups = groups
        self._segments = SharedSegments()
        self._namespaces = namespaces
        """Those of the session; empty: the command has its own."""
        self._has_cgroup_limits = False
        self._hits = cgroup.count_hits(groups)
        self._status = (-1, -1)
        self._status_text = b""
        self._channel: tuple[socket.socket, socket.socket] | None = None
        self._grants: syscall_broker.BrokerGrants | None = None

    @property
    def is_wrapped(self) -> bool:
        """Whether the process we start is bubblewrap, which ends when the command in it does."""
        return bool(self._instructions.get("wrapped"))

    @property
    def controls_terminal(self) -> bool:
        """Whether the process we start controls its terminal; keys must not end bubblewrap."""
        return bool(self._instructions.get("pty")) and not self.is_wrapped

    def prepare(self) -> None:
        """In the supervisor, before the command is started."""
        if scratch := self._instructions.get("scratch"):
            os.mkdir(scratch, 0o700)
            for name, target in self._instructions.get("scratch_links", ()):
                os.makedirs(os.path.dirname(scratch + b"/" + name), 0o700, exist_ok=True)
                os.symlink(target, scratch + b"/" + name)
        for path in self._instructions.get("placeholders", ()):
            self._placeholders.append((path, placeholders.hold_name(path)))
        links = self._instructions.get("link_placeholders", ())
        for folder in sorted({os.path.dirname(path) for path in links}):
            paths = [path for path in links if os.path.dirname(path) == folder]
            self._link_folders.append((paths, placeholders.hold_links(folder, paths)))
        if limits := self._instructions.get("cgroup_limits"):
            self._has_cgroup_limits = cgroup.set_limits(self._groups, *limits)
        if self.is_wrapped:
            self._status = os.pipe()
        if memory := self._instructions.get("shared_memory"):
            os.mkdir(memory, 0o700)
        if "seccomp" in self._instructions:
            self._channel = socket.socketpair()

    def confine_child(self) -> None:
        """In the process that becomes the command."""
        diagnosis: list[socket.socket] = []
        limits = list(self._instructions.get("limits", ()))
        if not self._has_cgroup_limits:
            limits += self._instructions.get("fallback_limits", ())
        if self.is_wrapped:
            os.dup2(self._status[1], protocol.STATUS_FD)
            session_namespaces.join_namespaces(
                self._namespaces
            ) if self._namespaces else session_namespaces.create_namespaces()
            diagnosis = [session_namespaces.open_diagnosis()]
            self._prepare_mounts()
        for number, content in enumerate(
            self._instructions.get("memory_files", ()), protocol.FIRST_FILE_FD
        ):
            os.dup2(_create_memory_file(content), number)
        _set_limits(limits)
        if self._instructions.get("drop_privileges"):
            _drop_privileges()
        if "landlock" in self._instructions:
            granted = self._instructions["granted"]
            _restrict_by_landlock(*self._instructions["landlock"], granted)
        if "seccomp" in self._instructions:
            assert self._channel
            _install_seccomp(*self._instructions["seccomp"], self._channel[1], diagnosis)

    def _prepare_mounts(self) -> None:
        """Mount what bubblewrap cannot, in a namespace that it then copies."""
        given = self._instructions
        session_namespaces.enter_own_mounts()
        session_namespaces.limit_tmp(*given["tmp"])
        session_namespaces.bind_granted(given["granted"])
        copied = [(p, os.open(p, _FOLDER_WITHOUT_LINK)) for p in given["private_copies"]]
        _detach_pipes(given["detached"], given["scratch"])
        _cover_links(given["covered_links"])
        _overlay_folders(copied, given["copy_bytes"])

    def finish_start(self) -> None:
        """In the supervisor, once the command runs or has failed to start."""
        if self.is_wrapped:
            os.close(self._status[1])
            self.status_reader = self._status[0]
            os.set_blocking(self.status_reader, False)
        if self._channel:
            ours, theirs = self._channel
            ours.setblocking(False)
            with ours, theirs, contextlib.suppress(BlockingIOError):
                _, fds, _, _ = socket.recv_fds(ours, 1, 2)
                self.listener = fds[0] if fds else -1
                self._grants = self._build_grants(*fds[1:])
                syscall_broker.enable_sync_wakeup(self.listener)

    def _build_grants(self, diagnosis: int = -1) -> syscall_broker.BrokerGrants:
        given = self._instructions
        area = WorkspaceArea(
            given.get("workspace", b""),
            given.get("writable", []),
            given.get("readonly", []),
            given.get("shared_memory", b""),
        )
        sock = socket.socket(fileno=diagnosis) if diagnosis >= 0 else None
        sockets = SocketGrants(given.get("proxy"), sock)
        return syscall_broker.BrokerGrants(area, sockets, self._segments)

    def answer_syscall(self) -> None:
        """Answer one request of the seccomp filter."""
        assert self._grants
        if not syscall_broker.answer_request(self.listener, self._grants):
            os.close(self.listener)
            self.listener = -1

    def failed_to_start(self, status: int) -> bool:
        """Whether bubblewrap ended with this status because it could not start the command."""
        return self.is_wrapped and status == 1 and b'"exit-code"' not in self._read_status()

    def follow_status(self, bubblewrap: int) -> None:
        """When bubblewrap has reported its start, let the kernel stop it at its next report, that
        of the command's end: whatever the command left running ends with bubblewrap."""
        before = len(self._status_text)
        if b"\n" in self._read_status():
            fcntl.fcntl(self.status_reader, fcntl.F_SETOWN, bubblewrap)
            fcntl.fcntl(self.status_reader, fcntl.F_SETSIG, signal.SIGSTOP)
            fcntl.fcntl(self.status_reader, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
            self.status_reader = -1
        elif len(self._status_text) == before:  # it has ended
            self.status_reader = -1

    def count_leftovers(self) -> None:
        """Called while bubblewrap is stopped."""
        found = re.search(rb'"child-pid": *(\d+)', self._read_status())
        if found and b'"exit-code"' in self._status_text:
            words = map(read_command_line, list_below(int(found[1])))
            self._stopped = sum(
                w != [b""] and protocol.PROXY_SOCKET.encode() not in w for w in words
            )

    def _read_status(self) -> bytes:
        """What bubblewrap has reported until now."""
        with contextlib.suppress(BlockingIOError):
            self._status_text += os.read(self._status[0], 4096)
        return self._status_text

    def describe_end(self) -> bytes:
        """What has been seen of the command, for `protocol.DETAILS`."""
        killed, failed = cgroup.count_hits(self._groups)
        hits = (killed - self._hits[0], failed - self._hits[1])
        refused = self._grants.sockets.refused if self._grants else []
        return marshal.dumps((hits, self._stopped, [tuple(address) for address in refused]))

    def stop_forking(self) -> None:
        """Called before processes are killed: none may fork faster than we kill."""
        cgroup.stop_forking(self._groups)

    def release(self) -> None:
        """In the supervisor, after all processes of the command have ended."""
        for path, lock in self._placeholders:
            placeholders.release_name(path, lock)
        for paths, lock in self._link_folders:
            placeholders.release_links(paths, lock)
        for path in self._instructions.get("removed_after", ()):
            with contextlib.suppress(OSError):
                os.unlink(path)
        if (folder := self._instructions.get("not_bare")) and placeholders.is_bare_repository(
            folder
        ):
            with contextlib.suppress(OSError):
                os.rename(folder + b"/HEAD", folder + b"/" + placeholders.RENAMED_HEAD)
        self._segments.remove_all()
        given = self._instructions
        for made in (given.get("scratch"), given.get("shared_memory")):
            with contextlib.suppress(OSError, RecursionError):
                _remove_tree(made or b"")


def _overlay_folders(folders: list[tuple[bytes, int]], size: int) -> None:
    """Mount an overlay in memory on each folder; where the kernel refuses, the folder is empty."""
    mount = libc.load_libc().mount
    for folder, lower in folders:
        libc.check_result(mount(b"tmpfs", folder, b"tmpfs", 0, b"mode=0755,size=%d" % size))
        for name in (b"/upper", b"/work"):
            os.mkdir(folder + name)
        options = b"lowerdir=/proc/self/fd/%d,upperdir=%b/upper,workdir=%b/work,userxattr"
        mount(b"overlay", folder, b"overlay", 0, options % (lower, folder, folder))
        os.close(lower)


def _detach_pipes(folders: list[bytes], empty: bytes) -> None:
    """Mount a read-only overlay on each folder, where the kernel can: to it, named pipes and
    sockets in it are not those that programs outside have open. What is mounted below stays."""
    with open("/proc/self/mountinfo", "rb") as file:
        points = [
            _ESCAPE.sub(lambda m: bytes([int(m[1], 8)]), line.split(b" ", 5)[4]) for line in file
        ]
    for folder in folders:
        below: list[tuple[bytes, int]] = []
        for point in sorted(p for p in set(points) if p.startswith(folder + b"/")):
            if not any(point.startswith(other + b"/") for other, _ in below):
                with contextlib.suppress(OSError):  # in a folder that we may not enter
                    below.append((point, libc.clone_mount(point)))
        lower = os.open(folder, _FOLDER_WITHOUT_LINK)
        options = b"lowerdir=/proc/self/fd/%d:%b,userxattr" % (lower, empty)
        done = libc.load_libc().mount(b"overlay", folder, b"overlay", 1, options) == 0
        for point, tree in below:
            libc.attach_mount(tree, point) if done else os.close(tree)
        os.close(lower)


def _cover_links(links: list[bytes]) -> None:
    """Mount something on each link: what it leads to, unless that is a folder, which cannot be."""
    for link in links:
        source = link if os.path.isfile(link) else os.devnull.encode()
        libc.attach_mount(libc.clone_mount(source), link)
        _remount_read_only(link)


def _remount_read_only(path: bytes) -> None:
    """Keeps the flags of the mount: a namespace of ours may not remove any of them."""
    has = os.statvfs(path).f_flag
    flags = has & _SAME_FLAGS | (_MS_RELATIME if has & os.ST_RELATIME else 0)
    libc.check_result(libc.load_libc().mount(None, path, None, flags | _MS_READ_ONLY_BIND, None))


def _create_memory_file(content: bytes) -> int:
    fd = os.memfd_create("sandbox")
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _set_limits(limits: list[tuple[int, int]]) -> None:
    for number, most in limits:
        hard = resource.getrlimit(number)[1]
        value = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(number, (value, value))
    if limits:
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            file.write("500")  # when memory runs out, this is killed before the agent


def _drop_privileges() -> None:
    library = libc.load_libc()
    for capability in range(64):
        library.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    library.prctl(_PR_SET_SECUREBITS, _NO_ROOT_PRIVILEGES, 0, 0, 0)
    libc.check_result(library.capset(struct.pack("=Ii", _CAPABILITY_VERSION, 0), bytes(24)))
    libc.check_result(library.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))


def _restrict_by_landlock(
    handled: tuple[int, int, int], rules: list[tuple[bytes, int]], granted: list[bytes]
) -> None:
    """Allow what the rules say; a path that has become a link is not what they were made for."""
    for path in granted:
        os.close(session_namespaces.open_granted(path))
    attributes = struct.pack("=3Q", *handled)
    size = 8 if not any(handled[1:]) else 16 if not handled[2] else 24
    ruleset = libc.make_syscall(_LANDLOCK_CREATE, attributes, size, 0)
    for path, access in rules:
        try:
            fd = session_namespaces.open_without_links(path)
        except OSError:
            continue  # missing or invisible paths need no permission
        libc.make_syscall(_LANDLOCK_ADD, ruleset, 1, struct.pack("=Qi", access, fd), 0)
        os.close(fd)
    libc.check_result(libc.load_libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    libc.make_syscall(_LANDLOCK_RESTRICT, ruleset, 0)
    os.close(ruleset)


def _install_seccomp(
    number: int, program: bytes, report: socket.socket, passed_on: list[socket.socket]
) -> None:
    """Install a filter, and send the descriptor on which it reports calls to the supervisor."""
    import ctypes

    code = ctypes.create_string_buffer(program, len(program))
    fprog = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
    libc.check_result(libc.load_libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    listener = libc.make_syscall(number, _FILTER, _NEW_LISTENER, fprog)
    socket.send_fds(report, [b"l"], [listener, *(sock.fileno() for sock in passed_on)])
    os.close(listener)


def _remove_tree(folder: bytes, inside: int | None = None) -> None:
    """Remove a folder and all in it, following no link and changing modes that forbid it."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=inside)
    try:
        os.fchmod(fd, 0o700)
        for name in os.listdir(fd):
            try:
                os.unlink(name, dir_fd=fd)
            except IsADirectoryError:
                os.chmod(name, 0o700, dir_fd=fd)
                _remove_tree(os.fsencode(name), fd)
    finally:
        os.close(fd)
    os.rmdir(folder, dir_fd=inside)
