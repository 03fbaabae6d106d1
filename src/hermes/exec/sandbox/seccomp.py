"""Builds seccomp filters: the system calls that a sandboxed command may not make."""

import errno
import os
import re
import struct
from collections.abc import Iterable
from functools import cache
from typing import Literal, TypeAlias

from hermes.exec.launcher.syscalls import CALL_GROUPS, CALL_NUMBERS

Machine: TypeAlias = Literal["x86_64", "aarch64"]
MACHINES: dict[str, tuple[Machine, int]] = {
    "x86_64": ("x86_64", 317),
    "amd64": ("x86_64", 317),
    "aarch64": ("aarch64", 277),
    "arm64": ("aarch64", 277),
}
"""Name of the machine as in uname -> column of the table, and the number of seccomp(2)."""
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_LAST_CALL = 470
"""Calls newer than this table are answered as if they did not exist."""

_LOAD, _EQUAL, _ABOVE, _AT_LEAST, _ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x25, 0x35, 0x45, 0x54, 0x06
_ERRNO = 0x00050000
_RETURN_ALLOW = (_RETURN, 0, 0, 0x7FFF0000)
_RETURN_NOTIFY = (_RETURN, 0, 0, 0x7FC00000)

_NAMESPACES = 0x7E020000
_CREAT, _TRUNC, _ACCESS_MODE = 0o100, 0o1000, 0o3
_TMPFILE = 0o20000000
_SET_ID = 0o6000
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_SOCKET_TYPE, _STREAM, _DATAGRAM, _SEQPACKET, _TCP = 0xF, 1, 2, 5, 6
_FASTOPEN = 0x20000000
_FASTOPEN_OPTIONS = (23, 30, 34)
"""Options of TCP with which data, and not connect, opens a connection."""
_SEND_FLAGS = {"sendto": 3, "sendmsg": 2, "sendmmsg": 3}
"""Calls that can connect a socket, and the position of their flags."""
_MODE_CHANGES = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2}
"""Calls that change a mode, and the position of the mode."""
_BROKERED = ("files", "sockets", "segments", "attributes")
_FILTERED_CALLS = ("open", "openat", "creat", "socket")
"""Calls whose arguments decide whether the broker is notified."""
_IOCTLS = {
    "TIOCSTI": 0x5412,
    "TIOCLINUX": 0x541C,
    "FS_IOC_SETFLAGS": 0x40086602,
    "FS_IOC_FSSETXATTR": 0x401C5820,
    "FS_IOC_SETVERSION": 0x40087602,
}


FilterCode: TypeAlias = list[tuple[int, int, int, int]]


@cache
def can_broker_sockets() -> bool:
    """Whether a supervisor can make calls on the sockets of a command: since Linux 5.6."""
    release = re.findall(r"\d+", os.uname().release)
    return tuple(map(int, release[:2])) >= (5, 6)


@cache
def build_connect_filter(machine: Machine) -> bytes:
    """The filter that goes before that of `build_namespace_filter`: it reports connections."""
    number = CALL_NUMBERS["connect"][0 if machine == "x86_64" else 1]
    code: FilterCode = [(_LOAD, 0, 0, 0), (_EQUAL, 0, 1, number), _RETURN_NOTIFY, _RETURN_ALLOW]
    return _pack_code(code)


@cache
def build_namespace_filter(machine: Machine) -> bytes:
    """The filter for a command in its own namespaces."""
    blocks = _socket_blocks(only_tcp=False) + _common_blocks()
    blocks += [(name, _refuse_bits(at, _SET_ID)) for name, at in _MODE_CHANGES.items()]
    return _assemble_program(machine, CALL_GROUPS["forbidden"], blocks, notified=())


@cache
def build_landlock_filter(machine: Machine, *, truncation: bool) -> bytes:
    """The filter for a command that only Landlock confines: the broker is notified before sockets
    are bound or connected, and before files are changed. `truncation`: whether Landlock controls
    it; if not, the filter refuses truncation that needs no write permission."""
    blocks = _socket_blocks(only_tcp=True)
    brokered = (name for group in _BROKERED for name in CALL_GROUPS[group])
    notified = [name for name in brokered if name not in _FILTERED_CALLS]
    blocks += [(name, _refuse_bits(at, _FASTOPEN)) for name, at in _SEND_FLAGS.items()]
    options: FilterCode = [_load_argument(1), (_EQUAL, 1, 0, _TCP), _RETURN_ALLOW]
    options.append(_load_argument(2))
    for option in _FASTOPEN_OPTIONS:
        options += [(_EQUAL, 0, 1, option), _return_errno(errno.ENOPROTOOPT)]
    blocks.append(("setsockopt", [*options, _RETURN_ALLOW]))
    blocks.append(("prlimit64", _allow_values(0, 0)))
    unsupported = [_return_errno(errno.EOPNOTSUPP)]
    blocks += [(name, unsupported) for name in CALL_GROUPS["extended attributes"]]
    forbidden = [*CALL_GROUPS["forbidden"], *CALL_GROUPS["forbidden without namespaces"]]
    if not truncation:
        forbidden.append("truncate")
    common = _common_blocks(truncation=truncation, brokered=True)
    return _assemble_program(machine, forbidden, blocks + common, notified=notified)


def _common_blocks(
    *, truncation: bool = True, brokered: bool = False
) -> list[tuple[str, FilterCode]]:
    ioctl: FilterCode = [_load_argument(1)]
    for number in _IOCTLS.values():
        ioctl += [(_EQUAL, 0, 1, number), _return_errno(errno.EPERM)]
    return [
        ("clone", _refuse_bits(0, _NAMESPACES)),
        ("ioctl", [*ioctl, _RETURN_ALLOW]),
        ("open", _filter_open(1, truncation=truncation, brokered=brokered)),
        ("openat", _filter_open(2, truncation=truncation, brokered=brokered)),
        ("creat", _refuse_bits(1, _SET_ID, _RETURN_NOTIFY if brokered else _RETURN_ALLOW)),
        ("mknod", _refuse_bits(1, _SET_ID)),
        ("mknodat", _refuse_bits(2, _SET_ID)),
    ]


def _filter_open(flags: int, *, truncation: bool, brokered: bool) -> FilterCode:
    """Refuse new files with a set-id bit, and truncating a file that is opened for reading."""
    code: FilterCode = []
    if not truncation:
        code = [_load_argument(flags), (_AND, 0, 0, _TRUNC | _ACCESS_MODE), (_EQUAL, 0, 1, _TRUNC)]
        code.append(_return_errno(errno.EACCES))
    code.append(_load_argument(flags))
    if not brokered:
        mode = _refuse_bits(flags + 1, _SET_ID)
        return [*code, (_ANY_BIT, 1, 0, _CREAT | _TMPFILE), _RETURN_ALLOW, *mode]
    mode = _refuse_bits(flags + 1, _SET_ID, _RETURN_NOTIFY)
    writes = (_ANY_BIT, len(mode), 0, _ACCESS_MODE)  # jumps to the last of them
    return [*code, (_ANY_BIT, 2, 0, _CREAT | _TMPFILE), writes, _RETURN_ALLOW, *mode]


def _refuse_bits(
    argument: int, bits: int, end: tuple[int, int, int, int] = _RETURN_ALLOW
) -> FilterCode:
    return [_load_argument(argument), (_ANY_BIT, 0, 1, bits), _return_errno(errno.EPERM), end]


def _socket_blocks(*, only_tcp: bool) -> list[tuple[str, FilterCode]]:
    """Sockets of the internet, those with which libraries list interfaces, and Unix sockets that
    are connected before they send: an address in a message is not reported to the broker. A pair
    of datagram sockets is connected, yet sends to any address it is given."""
    connected = _allow_values(1, _STREAM, _SEQPACKET, mask=_SOCKET_TYPE)
    internet: FilterCode = [_RETURN_ALLOW]
    if only_tcp:
        internet = [_load_argument(1), (_AND, 0, 0, _SOCKET_TYPE)]
        internet += [(_EQUAL, 0, 1, _DATAGRAM), _RETURN_NOTIFY, (_EQUAL, 1, 0, _STREAM)]
        internet += [_return_errno(errno.EPERM), *_allow_values(2, 0, _TCP)]
    code: FilterCode = [_load_argument(0)]
    for family, check in (
        (_UNIX, connected),
        (_NETLINK, _allow_values(2, 0)),
        (_INET, internet),
        (_INET6, internet),
    ):
        code += [(_EQUAL, 0, len(check), family), *check]
    return [("socket", [*code, _return_errno(errno.EPERM)]), ("socketpair", connected)]


def _allow_values(argument: int, *values: int, mask: int = 0xFFFFFFFF) -> FilterCode:
    """Allow the call if an argument, as far as the mask goes, has one of these values."""
    code: FilterCode = [_load_argument(argument), (_AND, 0, 0, mask)]
    for value in values:
        code += [(_EQUAL, 0, 1, value), _RETURN_ALLOW]
    return [*code, _return_errno(errno.EPERM)]


def _load_argument(argument: int) -> tuple[int, int, int, int]:
    """Load the lower half of a system call's argument (both machines store it first)."""
    return (_LOAD, 0, 0, 16 + 8 * argument)


def _return_errno(number: int) -> tuple[int, int, int, int]:
    return (_RETURN, 0, 0, _ERRNO | number)


def _assemble_program(
    machine: Machine,
    forbidden: Iterable[str],
    blocks: list[tuple[str, FilterCode]],
    notified: Iterable[str],
) -> bytes:
    column = 0 if machine == "x86_64" else 1
    code: FilterCode = [
        (_LOAD, 0, 0, 4),
        (_EQUAL, 1, 0, _ARCHITECTURES[machine]),
        _return_errno(errno.ENOSYS),
    ]
    code += [(_LOAD, 0, 0, 0), (_ABOVE, 0, 1, _LAST_CALL), _return_errno(errno.ENOSYS)]  # and x32
    answers: list[tuple[str, FilterCode]] = [
        (name, [_return_errno(errno.ENOSYS)]) for name in CALL_GROUPS["unsupported"]
    ]
    answers += [(name, [_return_errno(errno.EPERM)]) for name in forbidden]
    answers += [(name, [_RETURN_NOTIFY]) for name in notified]
    for name, block in [*answers, *blocks]:
        number = CALL_NUMBERS[name][column]
        if number >= 0:
            code += [(_EQUAL, 0, len(block), number), *block]
    code.append(_RETURN_ALLOW)
    return _pack_code(code)


def _pack_code(code: FilterCode) -> bytes:
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)
