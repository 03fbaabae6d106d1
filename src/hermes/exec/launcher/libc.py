"""System calls that Python has no function for."""

import os
from typing import Any


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
