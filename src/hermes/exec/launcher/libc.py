"""Calls into the kernel that Python has no function for."""

from __future__ import annotations

import os
from typing import Any


def libc() -> Any:
    import ctypes

    return ctypes.CDLL(None, use_errno=True)


def call(number: int, *args: Any) -> int:
    """A system call by its number; integers are as wide as the kernel takes them."""
    import ctypes

    given = [ctypes.c_long(arg) if isinstance(arg, int) else arg for arg in args]
    return check(libc().syscall(ctypes.c_long(number), *given))


def check(result: int) -> int:
    """What a call returned; OSError when that says that it failed."""
    import ctypes

    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
