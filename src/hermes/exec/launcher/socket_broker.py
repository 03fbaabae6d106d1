"""Connects and binds the sockets of a command, so that they lead to its own session only."""

# A filter cannot see the address that a call names, and before Linux 7.1 no Landlock rule confines
# sockets in the file system. So seccomp reports these calls, and the supervisor makes them: on the
# caller's socket, with an address that it has read once and checked. With namespaces, whatever is
# in the session's network namespace belongs to the session. Without them, a socket does when a
# process below one of the session's supervisors has it open, and ports are bound to loopback only.

# ruff: noqa: PTH115, PTH116, PTH123, PTH208
import contextlib
import errno
import os
import select
import socket
import struct
import time
from collections.abc import Iterator

from hermes.exec.launcher import file_broker, libc
from hermes.exec.launcher.process_tree import list_descendants, list_processes
from hermes.exec.launcher.protocol import RefusedAddress
from hermes.exec.launcher.session_namespaces import open_diagnosis

_PIDFD_GETFD = 438
_FAMILY = struct.Struct("=H")
_MAX_ADDRESS = 128
_CONNECT_SECONDS = 1.0
"""Longest wait for a connection: the address is local, and the supervisor has other requests."""
_MAX_REFUSED = 8
_NAME_SERVICE = 53
_FIRST_FREE_PORT = 1024
_LISTENING = 10
_DIAG_HEADER = struct.Struct("=IHHII")
_DIAG_BY_FAMILY, _DIAG_DUMP = 20, 0x301
_UNIX_REQUEST, _UNIX_SOCKET = struct.Struct("=B3xIIIq"), struct.Struct("=4xI8x")
_TCP_REQUEST, _TCP_SOCKET = struct.Struct("=BB2xI48x"), struct.Struct("=4x2s62xI")
_SHOW_FILE, _FILE_ATTRIBUTE = 2, 1
_LOOPBACK, _LOOPBACK_6 = bytes([127, 0, 0, 1]), bytes(15) + b"\1"
_MAPPED = bytes(10) + b"\xff\xff"
"""What an IPv4 address in IPv6 begins with."""
_INTERNET = (socket.AF_INET, socket.AF_INET6)
_DISCONNECT = _FAMILY.pack(socket.AF_UNSPEC) + bytes(14)


class SocketGrants:
    """Where a command's sockets may lead besides its own session."""

    def __init__(
        self, proxy: tuple[str, int] | bytes | None, diagnosis: socket.socket | None
    ) -> None:
        self.proxy = proxy
        """The egress proxy: an address on loopback, or the path of a socket."""
        self.in_namespace = diagnosis is not None
        self._diagnosis = diagnosis
        self._holders: dict[int, str] = {}
        self.refused: list[RefusedAddress] = []
        """The first different ones that the command tried to reach."""

    def record_refusal(self, host: bytes, port: int) -> None:
        """Record that the command could not connect there. On loopback that is the sandbox's doing
        only if a program outside listens there."""
        if _is_loopback(host) or not any(host):
            with open_diagnosis() as outside:
                if not _find_listeners(outside, port):
                    return
        family = socket.AF_INET if len(host) == 4 else socket.AF_INET6
        self._record_address(RefusedAddress(socket.inet_ntop(family, host), port))

    def record_lookup(self) -> None:
        """Record that the command wanted to ask a name server."""
        self._record_address(RefusedAddress("", _NAME_SERVICE))

    def _record_address(self, address: RefusedAddress) -> None:
        if address not in self.refused and len(self.refused) < _MAX_REFUSED:
            self.refused.append(address)

    def check_file(self, caller: file_broker.SyscallCaller, fd: int) -> None:
        """Raise ConnectionRefusedError unless the session, or the proxy, listens there."""
        found = os.fstat(fd)
        if isinstance(self.proxy, bytes):
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(found, os.stat(self.proxy)):
                    return
        self._diagnosis = self._diagnosis or open_diagnosis()
        inode = _find_listener(self._diagnosis, *_identify_file(caller.pid, fd))
        if not inode or not (self.in_namespace or self._session_holds({inode})):
            raise ConnectionRefusedError(errno.ECONNREFUSED, "not of this session")

    def check_port(self, port: int) -> None:
        """Raise ConnectionRefusedError unless the session, and nobody else, listens there."""
        self._diagnosis = self._diagnosis or open_diagnosis()
        listeners = _find_listeners(self._diagnosis, port)
        if not listeners or not self._session_holds(listeners):
            if listeners:
                self._record_address(RefusedAddress(socket.inet_ntoa(_LOOPBACK), port))
            raise ConnectionRefusedError(errno.ECONNREFUSED, "not of this session")

    def _session_holds(self, inodes: set[int]) -> bool:
        missing = {f"socket:[{inode}]": inode for inode in inodes}
        for link, inode in list(missing.items()):
            with contextlib.suppress(OSError, KeyError):
                if os.readlink(self._holders[inode]) == link:
                    del missing[link]
        for pid in _list_session_processes() if missing else ():
            with contextlib.suppress(OSError):
                for fd in os.listdir(f"/proc/{pid}/fd"):
                    path = f"/proc/{pid}/fd/{fd}"
                    with contextlib.suppress(OSError, KeyError):
                        self._holders[missing.pop(os.readlink(path))] = path
        return not missing


def perform_call(
    name: str,
    args: list[int],
    caller: file_broker.SyscallCaller,
    area: file_broker.WorkspaceArea,
    grants: SocketGrants,
) -> None:
    """Perform the call on the caller's socket, whatever that is by now. Raises OSError when it
    fails or may not be made, and LeaveToKernel when Landlock decides."""
    if name == "socket":  # of datagrams, which nearly always are for a name server
        grants.record_lookup()
        raise PermissionError(errno.EPERM, "not a stream")
    with _borrow_socket(caller, args[0]) as theirs:
        if name == "listen":
            if theirs.family != socket.AF_UNIX and not _is_loopback(_find_host(theirs)):
                raise PermissionError(errno.EACCES, "not on loopback")
            theirs.listen(min(args[1] & 0x7FFFFFFF, 65535))
            return
        size = args[2] & 0xFFFFFFFF
        if not _FAMILY.size <= size <= _MAX_ADDRESS:
            raise OSError(errno.EINVAL, "address")
        raw = caller.read_memory(args[1], size)
        if name == "bind":
            _bind_socket(theirs, raw, caller, area)
        else:
            _connect_socket(theirs, raw, caller, grants)


def _connect_socket(
    theirs: socket.socket, raw: bytes, caller: file_broker.SyscallCaller, grants: SocketGrants
) -> None:
    family = _FAMILY.unpack_from(raw)[0]
    if family == socket.AF_NETLINK:
        raise PermissionError(errno.EPERM, "not needed")
    if family == socket.AF_UNIX and raw[2:3] not in (b"", b"\0"):
        with _open_in_root(caller.pid, _read_path(raw)) as fd:
            grants.check_file(caller, fd)
            caller.check_alive()
            _try_connect(theirs, _FAMILY.pack(family) + b"/proc/self/fd/%d\0" % fd)
    elif family == socket.AF_UNSPEC or (grants.in_namespace and family not in _INTERNET):
        _try_connect(theirs, raw)
    elif family not in _INTERNET:
        raise PermissionError(errno.EPERM, "an abstract address")
    elif grants.in_namespace:
        _connect_in_namespace(theirs, raw, grants)
    else:
        host, port = _parse_address(raw)
        if len(host) == 4 and grants.proxy == (socket.inet_ntoa(host), port):
            _try_connect(theirs, raw)
            return
        if any(host) and not _is_loopback(host):
            grants.record_refusal(host, port)
            raise OSError(errno.ENETUNREACH, "not granted")
        # Twice, because somebody else may have opened the port in between. A connection that is
        # still being attempted could reach whoever opens it later.
        grants.check_port(port)
        with _disconnected_on_error(theirs):
            _try_connect(theirs, raw, completely=True)
            grants.check_port(port)


def _connect_in_namespace(theirs: socket.socket, raw: bytes, grants: SocketGrants) -> None:
    """Connect within the session's network, where nothing but loopback can be reached."""
    host, port = _parse_address(raw)
    if port == _NAME_SERVICE and theirs.type == socket.SOCK_DGRAM:
        grants.record_lookup()
    try:
        _try_connect(theirs, raw)
    except OSError as error:
        if error.errno != errno.EINPROGRESS and port != _NAME_SERVICE:
            grants.record_refusal(host, port)
        raise


def _try_connect(theirs: socket.socket, raw: bytes, *, completely: bool = False) -> None:
    """Connect, and wait for it unless the socket does not block."""
    fd = theirs.fileno()
    blocking = os.get_blocking(fd)
    until = time.monotonic() + _CONNECT_SECONDS
    os.set_blocking(fd, False)
    try:
        while True:
            try:
                libc.check_result(libc.load_libc().connect(fd, raw, len(raw)))
                return
            except BlockingIOError as error:
                if error.errno == errno.EINPROGRESS and (blocking or completely):
                    _await_connection(theirs)
                    return
                if not blocking or time.monotonic() > until:
                    raise
            time.sleep(0.01)  # the queue of a listening socket is full
    finally:
        os.set_blocking(fd, blocking)


def _await_connection(connecting: socket.socket) -> None:
    poll = select.poll()
    poll.register(connecting, select.POLLOUT)
    ready = poll.poll(_CONNECT_SECONDS * 1000)
    number = connecting.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if number or not ready:
        number = number or errno.ETIMEDOUT
        raise OSError(number, os.strerror(number))


@contextlib.contextmanager
def _disconnected_on_error(theirs: socket.socket) -> Iterator[None]:
    try:
        yield
    except OSError:
        libc.load_libc().connect(theirs.fileno(), _DISCONNECT, len(_DISCONNECT))
        raise


def _bind_socket(
    theirs: socket.socket,
    raw: bytes,
    caller: file_broker.SyscallCaller,
    area: file_broker.WorkspaceArea,
) -> None:
    """Bind to a path that the command may write, or to loopback where all interfaces are meant."""
    family = _FAMILY.unpack_from(raw)[0]
    fd, bind = theirs.fileno(), libc.load_libc().bind
    if family == socket.AF_NETLINK and raw[8:12] == bytes(4):
        libc.check_result(bind(fd, raw, len(raw)))
    elif family == socket.AF_UNIX and raw[2:3] not in (b"", b"\0"):
        with file_broker.resolve_path(caller, area, libc.AT_FDCWD, _read_path(raw)) as entry:
            if area.landlock_allows(entry.parent) or not area.is_broker_path(entry.path):
                raise file_broker.LeaveToKernel  # what the socket is by now must be local
            caller.check_alive()
            address = _FAMILY.pack(family) + entry.last + b"\0"
            with contextlib.chdir(entry.folder), file_broker.use_caller_umask(caller.pid):
                libc.check_result(bind(fd, address, len(address)))
    elif family in (socket.AF_INET, socket.AF_INET6):
        host, port = _parse_address(raw)
        if 0 < port < _FIRST_FREE_PORT:
            raise PermissionError(errno.EACCES, "a port of the system")
        if not any(host):
            host = _choose_loopback(theirs)
        elif not _is_loopback(host):
            raise OSError(errno.EADDRNOTAVAIL, "not on loopback")
        if len(host) == 4 and family == socket.AF_INET6:
            host = _MAPPED + host
        theirs.bind((socket.inet_ntop(family, host), port))
    else:
        raise PermissionError(errno.EPERM, "an abstract address")


def _read_path(raw: bytes) -> bytes:
    """The path in a sockaddr_un."""
    return raw[_FAMILY.size :].partition(b"\0")[0]


def _parse_address(raw: bytes) -> tuple[bytes, int]:
    """The address and port in a sockaddr_in or sockaddr_in6; 4 bytes if it means an IPv4 one."""
    is_long = _FAMILY.unpack_from(raw)[0] == socket.AF_INET6
    if len(raw) < (24 if is_long else 8):
        raise OSError(errno.EINVAL, "address")
    host = raw[8:24] if is_long else raw[4:8]
    return host.removeprefix(_MAPPED), int.from_bytes(raw[2:4], "big")


def _find_host(theirs: socket.socket) -> bytes:
    """The address a socket is bound to."""
    packed = socket.inet_pton(theirs.family, theirs.getsockname()[0].partition("%")[0])
    return packed.removeprefix(_MAPPED)


def _is_loopback(host: bytes) -> bool:
    return host[0] == 127 if len(host) == 4 else host == _LOOPBACK_6


def _choose_loopback(theirs: socket.socket) -> bytes:
    """Loopback, for a socket that asks for all interfaces: of IPv4 if it may be that."""
    only_6 = theirs.family == socket.AF_INET6 and theirs.getsockopt(
        socket.IPPROTO_IPV6, socket.IPV6_V6ONLY
    )
    return _LOOPBACK_6 if only_6 else _LOOPBACK


@contextlib.contextmanager
def _borrow_socket(caller: file_broker.SyscallCaller, number: int) -> Iterator[socket.socket]:
    handle = os.pidfd_open(int(file_broker.read_status(caller.pid)[b"Tgid"]))
    try:
        caller.check_alive()
        fd = libc.make_syscall(_PIDFD_GETFD, handle, number & 0x7FFFFFFF, 0)
    finally:
        os.close(handle)
    try:
        theirs = socket.socket(fileno=fd)
    except OSError:
        os.close(fd)
        raise
    with theirs:
        yield theirs


@contextlib.contextmanager
def _open_in_root(pid: int, path: bytes) -> Iterator[int]:
    """Open a path as the process would find it, whatever it sees of the file system."""
    if not path.startswith(b"/"):
        path = os.readlink(b"/proc/%d/cwd" % pid) + b"/" + path
    root = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fd = libc.open_resolved(root, path.lstrip(b"/"), libc.RESOLVE_IN_ROOT)
    finally:
        os.close(root)
    try:
        yield fd
    finally:
        os.close(fd)


# Whose socket it is


def _identify_file(pid: int, fd: int) -> tuple[int, int]:
    """The inode and device of an open file as the kernel counts them, unlike stat sometimes."""
    with open(f"/proc/self/fdinfo/{fd}") as file:
        facts = dict(line.split(":", 1) for line in file.read().splitlines())
    inode = int(facts.get("ino") or os.fstat(fd).st_ino)
    mount = facts["mnt_id"].strip()
    with open(f"/proc/{pid}/mountinfo", errors="surrogateescape") as file:
        for line in file:
            words = line.split(maxsplit=3)
            if words[0] == mount:
                major, minor = map(int, words[2].split(":"))
                return inode, major << 20 | minor
    raise ConnectionRefusedError(errno.ECONNREFUSED, "on no mount of the caller")


def _find_listener(diagnosis: socket.socket, inode: int, device: int) -> int:
    """The number of the Unix socket that listens at this file; 0: none does. Those of its
    connections have the same file, and perhaps no process yet."""
    wanted = struct.pack("=II", inode & 0xFFFFFFFF, device)
    request = _UNIX_REQUEST.pack(socket.AF_UNIX, 1 << _LISTENING, 0, _SHOW_FILE, -1)
    found = 0
    for message in _dump_sockets(diagnosis, request):
        at = _UNIX_SOCKET.size
        while at + 4 <= len(message):
            size, kind = struct.unpack_from("=HH", message, at)
            if kind == _FILE_ATTRIBUTE and message[at + 4 : at + size] == wanted:
                found = _UNIX_SOCKET.unpack_from(message)[0]
            at += max(size, 4) + 3 & ~3
    return found


def _find_listeners(diagnosis: socket.socket, port: int) -> set[int]:
    """The numbers of all sockets that listen on a TCP port of this machine."""
    return {
        number
        for family in (socket.AF_INET, socket.AF_INET6)
        for message in _dump_sockets(
            diagnosis, _TCP_REQUEST.pack(family, socket.IPPROTO_TCP, 1 << _LISTENING)
        )
        for bound, number in [_TCP_SOCKET.unpack_from(message)]
        if bound == port.to_bytes(2, "big")
    }


def _dump_sockets(diagnosis: socket.socket, request: bytes) -> Iterator[bytes]:
    """What the kernel tells about each socket that was asked for."""
    size = _DIAG_HEADER.size + len(request)
    diagnosis.send(_DIAG_HEADER.pack(size, _DIAG_BY_FAMILY, _DIAG_DUMP, 1, 0) + request)
    while True:
        answer = diagnosis.recv(1 << 17)
        while answer:
            size, kind, *_ = _DIAG_HEADER.unpack_from(answer)
            if kind != _DIAG_BY_FAMILY:  # the last one, or an error
                return
            yield answer[_DIAG_HEADER.size : size]
            answer = answer[size + 3 & ~3 :]


def _list_session_processes() -> list[int]:
    """Processes of the session's commands: below supervisors with our name and our parent."""
    own, launcher = os.getpid(), os.getppid()
    processes = list(list_processes())
    name = next(name for pid, _, name in processes if pid == own)
    return list_descendants(*(p for p, parent, n in processes if (parent, n) == (launcher, name)))
