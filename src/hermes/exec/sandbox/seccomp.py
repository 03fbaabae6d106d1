"""Seccomp programs: which system calls a sandboxed command may not make, on x86_64 and aarch64."""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterable
from functools import cache
from typing import Literal, TypeAlias

from hermes.exec.launcher import file_broker as making
from hermes.exec.launcher.syscall_broker import CALLS as _ASKED

Machine: TypeAlias = Literal["x86_64", "aarch64"]
MACHINES: dict[str, tuple[Machine, int]] = {
    "x86_64": ("x86_64", 317),
    "amd64": ("x86_64", 317),
    "aarch64": ("aarch64", 277),
    "arm64": ("aarch64", 277),
}
"""What uname says -> which table, and the number of seccomp(2)."""
_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_NEWEST = 470
"""Calls that are younger than this table are unknown to it: a program is told they do not exist."""

_LOAD, _EQUAL, _ABOVE, _AT_LEAST, _ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x25, 0x35, 0x45, 0x54, 0x06
_ALLOW, _ERRNO, _ASK = 0x7FFF0000, 0x00050000, 0x7FC00000

_NAMESPACES = 0x7E020000
_CREAT, _TRUNC, _ACCESS_MODE = 0o100, 0o1000, 0o3
_TMPFILE = 0o20000000
_SET_ID = 0o6000
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_KIND, _STREAM, _SEQPACKET, _TCP = 0xF, 1, 5, 6
_FASTOPEN = 0x20000000
_CONNECT = "connect"
_SENDING = {"sendto": 3, "sendmsg": 2, "sendmmsg": 3}
"""Calls that can connect, and the position of the flags that make them."""
_LOOKED_AT = ("open", "openat", "creat")
"""Calls whose arguments tell the filter whether they concern the keeper."""
_SERVING = ("bind", "listen", "accept", "accept4")
_IOCTLS = {
    "TIOCSTI": 0x5412,
    "TIOCLINUX": 0x541C,
    "FS_IOC_SETFLAGS": 0x40086602,
    "FS_IOC_FSSETXATTR": 0x401C5820,
    "FS_IOC_SETVERSION": 0x40087602,
}
_UNKNOWN = ("clone3", "openat2", "io_uring_setup", "io_uring_enter", "io_uring_register")
"""Answered with "no such call", so that libraries take the older one, whose arguments we see."""
_NEVER = """
    mount umount2 pivot_root chroot unshare setns open_tree move_mount fsopen fsconfig fsmount
    fspick mount_setattr open_tree_attr file_setattr swapon swapoff reboot sethostname setdomainname
    init_module finit_module delete_module kexec_load kexec_file_load bpf perf_event_open
    userfaultfd keyctl add_key request_key open_by_handle_at process_vm_readv process_vm_writev
    process_madvise pidfd_getfd kcmp acct quotactl quotactl_fd settimeofday clock_settime
    clock_adjtime adjtimex iopl ioperm modify_ldt uselib nfsservctl vhangup lookup_dcookie syslog
    fanotify_init move_pages migrate_pages
""".split()
_NOT_WITHOUT_NAMESPACES = """
    ptrace shmget shmat semget msgget mq_open
""".split()
"""Harmless where a namespace keeps the command to itself."""
_ATTRIBUTES = """
    setxattr lsetxattr fsetxattr removexattr lremovexattr fremovexattr setxattrat removexattrat
""".split()
"""Answered as by a file system without them, which programs that copy files put up with."""
_NUMBERS: dict[str, tuple[int, int]] = {
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "unshare": (272, 97), "setns": (308, 268), "open_tree": (428, 428), "move_mount": (429, 429),
    "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "mount_setattr": (442, 442), "open_tree_attr": (467, 467), "file_setattr": (469, 469),
    "swapon": (167, 224), "swapoff": (168, 225), "reboot": (169, 142), "sethostname": (170, 161),
    "setdomainname": (171, 162), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "kexec_load": (246, 104), "kexec_file_load": (320, 294),
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282),
    "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218),
    "open_by_handle_at": (304, 265), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271), "process_madvise": (440, 440), "pidfd_getfd": (438, 438),
    "kcmp": (312, 272), "acct": (163, 89), "quotactl": (179, 60), "quotactl_fd": (443, 443),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "clock_adjtime": (305, 266),
    "adjtimex": (159, 171), "iopl": (172, -1), "ioperm": (173, -1), "modify_ldt": (154, -1),
    "uselib": (134, -1), "nfsservctl": (180, 42), "vhangup": (153, 58),
    "lookup_dcookie": (212, 18), "syslog": (103, 116), "fanotify_init": (300, 262),
    "move_pages": (279, 239), "migrate_pages": (256, 238),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "clone": (56, 220), "clone3": (435, 435), "openat2": (437, 437), "ioctl": (16, 29),
    "socket": (41, 198), "open": (2, -1), "openat": (257, 56), "creat": (85, -1),
    "mknod": (133, -1), "mknodat": (259, 33), "truncate": (76, 45), "prlimit64": (302, 261),
    "ptrace": (101, 117), "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16),
    "setxattrat": (463, 463), "removexattrat": (466, 466), "shmget": (29, 194),
    "shmat": (30, 196), "semget": (64, 190), "msgget": (68, 186), "mq_open": (240, 180),
    "socketpair": (53, 199), "bind": (49, 200), "listen": (50, 201), "accept": (43, 202),
    "accept4": (288, 242), "sendto": (44, 206), "sendmsg": (46, 211), "sendmmsg": (307, 269),
    **{name: (x86, arm) for name, (x86, arm, _) in _ASKED.items()}, **making.CALLS,
}  # fmt: skip
"""Name -> number on x86_64 and on aarch64; -1: there is none."""

Code: TypeAlias = list[tuple[int, int, int, int]]


@cache
def isolated(machine: Machine) -> bytes:
    """For a command in namespaces of its own."""
    blocks: list[tuple[str, Code]] = [("socket", _families(_UNIX, _INET, _INET6, _NETLINK))]
    for name in ("chmod", "fchmod"):
        blocks.append((name, _refuse_bits(1, _SET_ID)))
    for name in ("fchmodat", "fchmodat2"):
        blocks.append((name, _refuse_bits(2, _SET_ID)))
    return _program(machine, _NEVER, blocks + _common(), asked=())


@cache
def confined(
    machine: Machine, *, ask: bool, truncation: bool, online: bool = False, makes: bool = False
) -> bytes:
    """For a command that only Landlock confines.

    `ask`: changes of modes and times are left to the keeper, else refused. `truncation`: whether
    Landlock knows of it; if not it is refused here wherever it needs no permission to write.
    `online`: there may be TCP sockets, which the keeper connects to where they may go. `makes`: the
    keeper is asked before anything is written, made, moved or removed.
    """
    blocks: list[tuple[str, Code]] = [("socket", _families(_NETLINK, tcp=online))]
    # A pair of datagram sockets is connected, yet sends to any address it is given.
    blocks.append(("socketpair", _kinds(_STREAM, _SEQPACKET)))
    asked = [name for name in _ASKED if online or name != _CONNECT]
    if makes:
        asked += [name for name in making.CALLS if name not in _LOOKED_AT]
    if online:
        blocks += [(name, _refuse_bits(at, _FASTOPEN)) for name, at in _SENDING.items()]
    blocks.append(("prlimit64", [_load(0), (_EQUAL, 1, 0, 0), _no(errno.EPERM), _yes()]))
    blocks += [(name, [_no(errno.EOPNOTSUPP)]) for name in _ATTRIBUTES]
    never = [*_NEVER, *_NOT_WITHOUT_NAMESPACES]
    if online:
        never += _SERVING
    if not ask:
        never += asked
    if not truncation:
        never.append("truncate")
    common = _common(truncation=truncation, makes=makes)
    return _program(machine, never, blocks + common, asked=asked if ask else ())


def _common(*, truncation: bool = True, makes: bool = False) -> list[tuple[str, Code]]:
    ioctl: Code = [_load(1)]
    for number in _IOCTLS.values():
        ioctl += [(_EQUAL, 0, 1, number), _no(errno.EPERM)]
    return [
        ("clone", _refuse_bits(0, _NAMESPACES)),
        ("ioctl", [*ioctl, _yes()]),
        ("open", _opening(1, truncation=truncation, makes=makes)),
        ("openat", _opening(2, truncation=truncation, makes=makes)),
        ("creat", _refuse_bits(1, _SET_ID, _asks() if makes else _yes())),
        ("mknod", _refuse_bits(1, _SET_ID)),
        ("mknodat", _refuse_bits(2, _SET_ID)),
    ]


def _opening(flags: int, *, truncation: bool, makes: bool) -> Code:
    """No new file with a set-id bit; and no emptying of a file by opening it to read."""
    code: Code = []
    if not truncation:
        code = [_load(flags), (_AND, 0, 0, _TRUNC | _ACCESS_MODE), (_EQUAL, 0, 1, _TRUNC)]
        code.append(_no(errno.EACCES))
    code.append(_load(flags))
    if not makes:
        mode = _refuse_bits(flags + 1, _SET_ID)
        return [*code, (_ANY_BIT, 1, 0, _CREAT | _TMPFILE), _yes(), *mode]
    mode = _refuse_bits(flags + 1, _SET_ID, _asks())
    writes = (_ANY_BIT, len(mode), 0, _ACCESS_MODE)  # to the last of them
    return [*code, (_ANY_BIT, 2, 0, _CREAT | _TMPFILE), writes, _yes(), *mode]


def _refuse_bits(argument: int, bits: int, end: tuple[int, int, int, int] | None = None) -> Code:
    return [_load(argument), (_ANY_BIT, 0, 1, bits), _no(errno.EPERM), end or _yes()]


def _families(*allowed: int, tcp: bool = False) -> Code:
    code: Code = [_load(0)]
    if tcp:
        check: Code = [_load(1), (_AND, 0, 0, _KIND), (_EQUAL, 1, 0, _STREAM), _no(errno.EPERM)]
        check += [_load(2), (_EQUAL, 1, 0, 0), (_EQUAL, 0, 1, _TCP), _yes(), _no(errno.EPERM)]
        code += [(_EQUAL, 0, len(check), _INET), *check]
    for family in allowed:
        if family != _NETLINK:
            code += [(_EQUAL, 0, 1, family), _yes()]
    if _NETLINK in allowed:  # its protocol 0 lists the interfaces, which libraries do
        code += [(_EQUAL, 1, 0, _NETLINK), _no(errno.EPERM), _load(2), (_EQUAL, 0, 1, 0), _yes()]
    return [*code, _no(errno.EPERM)]


def _kinds(*allowed: int) -> Code:
    """Sockets of these types, whatever flags come with them."""
    code: Code = [_load(1), (_AND, 0, 0, _KIND)]
    for kind in allowed:
        code += [(_EQUAL, 0, 1, kind), _yes()]
    return [*code, _no(errno.EPERM)]


def _load(argument: int) -> tuple[int, int, int, int]:
    """The lower half of a system call's argument (both machines store it first)."""
    return (_LOAD, 0, 0, 16 + 8 * argument)


def _no(number: int) -> tuple[int, int, int, int]:
    return (_RETURN, 0, 0, _ERRNO | number)


def _yes() -> tuple[int, int, int, int]:
    return (_RETURN, 0, 0, _ALLOW)


def _asks() -> tuple[int, int, int, int]:
    return (_RETURN, 0, 0, _ASK)


def _program(
    machine: Machine, never: Iterable[str], blocks: list[tuple[str, Code]], asked: Iterable[str]
) -> bytes:
    column = 0 if machine == "x86_64" else 1
    code: Code = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, _ARCH[machine]), _no(errno.ENOSYS)]
    code += [(_LOAD, 0, 0, 0), (_ABOVE, 0, 1, _NEWEST), _no(errno.ENOSYS)]  # and all of x32
    answers: list[tuple[str, Code]] = [(name, [_no(errno.ENOSYS)]) for name in _UNKNOWN]
    answers += [(name, [_no(errno.EPERM)]) for name in never]
    answers += [(name, [_asks()]) for name in asked]
    for name, block in [*answers, *blocks]:
        number = _NUMBERS[name][column]
        if number >= 0:
            code += [(_EQUAL, 0, len(block), number), *block]
    code.append(_yes())
    return b"".join(struct.pack("=HBBI", op, yes, no, value) for op, yes, no, value in code)
