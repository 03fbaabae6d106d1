"""System calls that Python has no function for."""

import os
import struct
from functools import cache
from typing import Any

AT_FDCWD = -100
_OPENAT2, _OPEN_TREE, _MOVE_MOUNT = 437, 428, 429
_AT_NO_LINK, _STATX_BIRTH = 0x100, 0x800
_CLONE_TREE, _EMPTY_SOURCE, _EMPTY_PATH = 0o2000000 | 0x8000 | 1, 0x1000, 4
RESOLVE_NO_LINKS, RESOLVE_IN_ROOT = 6, 0x10


@cache
def load_libc() -> Any:
    """The C library; ctypes is imported here because few processes of the launcher need it."""
    import ctypes

    return ctypes.CDLL(None, use_errno=True)


def make_syscall(number: int, *args: Any) -> int:
    """Make a system call by its number; integers are passed as wide as the kernel takes them."""
    import ctypes

    given = [ctypes.c_long(arg) if isinstance(arg, int) else arg for arg in args]
    return check_result(load_libc().syscall(ctypes.c_long(number), *given))


def check_result(result: int) -> int:
    """The result of a call; raises OSError when it failed."""
    import ctypes

    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def open_resolved(folder: int, path: bytes, resolve: int) -> int:
    """A descriptor that only names a path, which openat2 resolves in this way."""
    how = struct.pack("=3Q", os.O_PATH | os.O_CLOEXEC, 0, resolve)
    return make_syscall(_OPENAT2, folder, path, how, len(how))


def read_birth_time(path: str) -> int:
    """When a file was made, in nanoseconds, which no program can change; 0: nobody knows."""
    import ctypes

    found = ctypes.create_string_buffer(256)
    given = (AT_FDCWD, os.fsencode(path), _AT_NO_LINK, _STATX_BIRTH, found)
    if load_libc().statx(*given) or not struct.unpack_from("=I", found)[0] & _STATX_BIRTH:
        return 0
    seconds, nanoseconds = struct.unpack_from("=qI", found, 80)
    return int(seconds * 1_000_000_000 + nanoseconds)


def clone_mount(path: bytes, folder: int = AT_FDCWD) -> int:
    """A descriptor of a copy of what is mounted at a path; with an empty one, at the folder."""
    flags = _CLONE_TREE | (0 if path else _EMPTY_SOURCE)
    return make_syscall(_OPEN_TREE, folder, path, flags)


def attach_mount(tree: int, point: bytes) -> None:
    """Mount the copy there, and close its descriptor."""
    make_syscall(_MOVE_MOUNT, tree, b"", AT_FDCWD, point, _EMPTY_PATH)
    os.close(tree)
