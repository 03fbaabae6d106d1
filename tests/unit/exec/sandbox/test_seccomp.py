"""Seccomp filters, run by an interpreter of our own: so also those of the other machine."""

import errno
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.exec.sandbox import (
    seccomp,
)

ALLOW, ASK = 0x7FFF0000, 0x7FC00000


def verdict(program: bytes, arch: int, number: int, *args: int) -> int:
    data = struct.pack("=iIQ6Q", number, arch, 0, *args, *[0] * (6 - len(args)))
    code = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    accumulator, position = 0, 0
    while True:
        op, yes, no, value = code[position]
        position += 1
        match op:
            case 0x20:
                (accumulator,) = struct.unpack_from("=I", data, value)
            case 0x54:
                accumulator &= value
            case 0x06:
                return value
            case 0x15 | 0x25 | 0x35 | 0x45:
                holds = {
                    0x15: accumulator == value,
                    0x25: accumulator > value,
                    0x35: accumulator >= value,
                    0x45: bool(accumulator & value),
                }[op]
                position += yes if holds else no
            case _:
                raise AssertionError(f"unknown instruction {op:#x}")


def no(number: int) -> int:
    return 0x00050000 | number


MACHINES: dict[str, tuple[int, dict[str, int]]] = {
    "x86_64": (
        0xC000003E,
        {"read": 0, "socket": 41, "clone": 56, "clone3": 435, "mount": 165, "ptrace": 101}
        | {"bpf": 321, "openat": 257, "fchmodat": 268, "io_uring_setup": 425, "ioctl": 16}
        | {"prlimit64": 302, "unshare": 272, "execve": 59, "fsetxattr": 190, "socketpair": 53}
        | {"connect": 42, "bind": 49, "listen": 50, "accept": 43, "accept4": 288, "sendto": 44}
        | {"sendmsg": 46, "sendmmsg": 307, "setsockopt": 54},
    ),
    "aarch64": (
        0xC00000B7,
        {"read": 63, "socket": 198, "clone": 220, "clone3": 435, "mount": 40, "ptrace": 117}
        | {"bpf": 280, "openat": 56, "fchmodat": 53, "io_uring_setup": 425, "ioctl": 29}
        | {"prlimit64": 261, "unshare": 97, "execve": 221, "fsetxattr": 7, "socketpair": 199}
        | {"connect": 203, "bind": 200, "listen": 201, "accept": 202, "accept4": 242, "sendto": 206}
        | {"sendmsg": 211, "sendmmsg": 269, "setsockopt": 208},
    ),
}


@pytest.mark.parametrize("machine", MACHINES)
def test_what_the_filters_refuse(machine: seccomp.Machine) -> None:
    arch, numbers = MACHINES[machine]
    isolated = seccomp.build_namespace_filter(machine)
    confined = seccomp.build_landlock_filter(machine, truncation=False)

    def both(name: str, *args: int) -> tuple[int, int]:
        number = numbers[name]
        return verdict(isolated, arch, number, *args), verdict(confined, arch, number, *args)

    assert both("read") == both("execve") == both("socketpair", 1, 0o2000001) == (ALLOW, ALLOW)
    assert both("socketpair", 1, 2) == both("socketpair", 1, 0o4003) == (no(1), no(1))
    assert both("connect") == both("bind") == both("listen") == (ALLOW, ASK)
    assert both("accept4") == (ALLOW, ALLOW)
    assert both("mount") == both("bpf") == both("unshare") == (no(1), no(1))
    assert both("clone", 17) == (ALLOW, ALLOW)
    for flag in (0x20000, 0x02000000, 0x10000000, 0x20000000, 0x40000000):
        assert both("clone", 17 | flag) == (no(1), no(1))
    assert both("clone3") == both("io_uring_setup") == (no(errno.ENOSYS), no(errno.ENOSYS))
    assert both("ptrace") == (ALLOW, no(1))
    assert both("socket", 1, 1, 0) == both("socket", 2, 1, 0) == (ALLOW, ALLOW)
    assert both("socket", 1, 0o2000005) == both("socket", 10, 1, 6) == (ALLOW, ALLOW)
    assert both("socket", 1, 2) == both("socket", 1, 3) == (no(1), no(1))
    assert both("socket", 16, 3, 0) == (ALLOW, ALLOW)
    for family in (16, 17, 38, 40, 44, 3, 0):
        assert both("socket", family, 3, 4) == (no(1), no(1))
    assert both("ioctl", 0, 0x5401) == (ALLOW, ALLOW)
    assert both("ioctl", 0, 0x5412) == both("ioctl", 0, 0xFFFFFFFF00005412) == (no(1), no(1))
    assert both("openat", 0, 0, 0, 0o4755) == (ALLOW, ALLOW)
    assert both("openat", 0, 0, 0o100, 0o644) == (ALLOW, ASK)
    assert both("openat", 0, 0, 0o100, 0o4755) == (no(1), no(1))
    assert both("openat", 0, 0, 0o1000, 0) == (ALLOW, no(errno.EACCES))
    assert both("openat", 0, 0, 0o1001, 0) == (ALLOW, ASK)
    assert both("fchmodat", 0, 0, 0o755) == (ALLOW, ASK)
    assert both("fchmodat", 0, 0, 0o4755) == (no(1), ASK)
    assert both("prlimit64", 0) == (ALLOW, ALLOW)
    assert both("prlimit64", 4711) == (ALLOW, no(1))
    assert both("fsetxattr") == (ALLOW, no(errno.EOPNOTSUPP))


@pytest.mark.parametrize("machine", MACHINES)
def test_nothing_but_connect_opens_a_connection(machine: seccomp.Machine) -> None:
    arch, numbers = MACHINES[machine]
    confined = seccomp.build_landlock_filter(machine, truncation=True)

    def got(name: str, *args: int) -> int:
        return verdict(confined, arch, numbers[name], *args)

    assert got("socket", 2, 0o2004001, 0) == got("socket", 2, 1, 6) == ALLOW
    for other in ((2, 3, 1), (2, 1, 132), (2, 1, 262), (2, 5, 0), (1, 2, 0)):
        assert got("socket", *other) == no(1)
    assert got("socket", 2, 2, 0) == got("socket", 10, 0o2000002, 17) == ASK  # answered with no
    assert got("socket", 16, 3, 0) == ALLOW and got("socket", 16, 3, 4) == no(1)
    assert got("sendto", 3, 0, 9, 0x4000) == got("sendmsg", 3, 0, 0x4000) == ALLOW
    assert got("sendto", 3, 0, 9, 0x20000000) == got("sendmmsg", 3, 0, 1, 0x20000000) == no(1)
    assert got("sendmsg", 3, 0, 0x20000000) == no(1)
    assert got("setsockopt", 3, 6, 1) == got("setsockopt", 3, 1, 30) == ALLOW
    for option in (23, 30, 34):
        assert got("setsockopt", 3, 6, option) == no(errno.ENOPROTOOPT)


@pytest.mark.parametrize("machine", MACHINES)
def test_in_namespaces_connections_are_reported(machine: seccomp.Machine) -> None:
    arch, numbers = MACHINES[machine]
    first = seccomp.build_connect_filter(machine)
    assert verdict(first, arch, numbers["connect"]) == ASK
    assert all(verdict(first, arch, n) == ALLOW for name, n in numbers.items() if name != "connect")


@pytest.mark.parametrize("machine", MACHINES)
@given(number=st.integers(471, 2**31 - 1), other=st.integers(0, 2**32 - 1))
def test_what_a_filter_does_not_know_does_not_exist(
    machine: seccomp.Machine, number: int, other: int
) -> None:
    arch, numbers = MACHINES[machine]
    for program in (
        seccomp.build_namespace_filter(machine),
        seccomp.build_landlock_filter(machine, truncation=True),
    ):
        assert verdict(program, arch, number) == no(errno.ENOSYS)
        assert verdict(program, arch, numbers["read"] | 0x40000000) == no(errno.ENOSYS)
        if other != arch:
            assert verdict(program, other, numbers["read"]) == no(errno.ENOSYS)
        assert len(program) // 8 < 4096
