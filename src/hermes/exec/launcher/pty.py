"""Pseudo terminals for commands."""

import fcntl
import os
import struct
import termios

ROWS, COLUMNS = 24, 80
END_OF_INPUT = b"\x04"
"""Sent by Ctrl-D."""


def open_terminal() -> tuple[int, int]:
    """Open a terminal: our end, which does not block, and the command's end."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    os.set_blocking(ours, False)
    return ours, theirs
