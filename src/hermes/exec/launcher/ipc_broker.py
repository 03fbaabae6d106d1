"""Gives a command System V shared memory of its own where it has no namespace for that."""

# The machine's segments are found by keys and numbers that anybody can guess. So the supervisor
# creates those of a command without a key, remembers which key it asked for, and lets the kernel
# continue calls that name one of them: numbers are not in memory, so nobody can exchange them.

import errno

from hermes.exec.launcher.file_broker import LeaveToKernel
from hermes.exec.launcher.libc import check_result, load_libc

_PRIVATE, _CREATE, _EXCLUSIVE = 0, 0o1000, 0o2000
_REMOVE, _STATUS = 0, 2


class SharedSegments:
    """The segments of one command."""

    def __init__(self) -> None:
        self._keys: dict[int, int] = {}
        """Number of a segment -> the key that the command gave it."""

    def perform_call(self, name: str, args: list[int]) -> int:
        """The result of the call. Raises LeaveToKernel for the command's own segments."""
        number = args[0] & 0xFFFFFFFF
        if name == "shmget":
            return self._get_segment(number, args[1], args[2])
        if number not in self._keys:
            raise OSError(errno.EINVAL, "no segment of this command")
        if name == "shmctl":
            command = args[1] & 0xFF
            if command not in (_REMOVE, _STATUS):
                raise PermissionError(errno.EPERM, "not needed")
            if command == _REMOVE:
                del self._keys[number]
        raise LeaveToKernel

    def remove_all(self) -> None:
        """Remove what is left of them."""
        for number in self._keys:
            load_libc().shmctl(number, _REMOVE, None)

    def _get_segment(self, key: int, size: int, flags: int) -> int:
        known = next((n for n, k in self._keys.items() if k == key != _PRIVATE), None)
        if known is not None:
            if flags & _CREATE and flags & _EXCLUSIVE:
                raise FileExistsError(errno.EEXIST, "segment")
            return known
        if key != _PRIVATE and not flags & _CREATE:
            raise FileNotFoundError(errno.ENOENT, "segment")
        import ctypes

        size_ = ctypes.c_size_t(size)
        number = check_result(load_libc().shmget(_PRIVATE, size_, flags & 0o777 | _CREATE))
        self._keys[number] = key
        return number
