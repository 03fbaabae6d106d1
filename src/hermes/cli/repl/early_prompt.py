"""The first prompt: shown and typed into while the real one is being imported."""

# The terminal itself echoes and keeps what is typed; the real prompt finds it in its input.

from __future__ import annotations

import os
import termios
from typing import Any

_INPUT, _LOCAL = 0, 3


class Early:
    """On the screen from `show` to `hand_over`; without a terminal that can, it does nothing."""

    def __init__(self) -> None:
        self._before: list[Any] | None = None

    def show(self) -> None:
        try:
            before = termios.tcgetattr(0)
            mode = list(before)
            mode[_INPUT] &= ~termios.ICRNL  # Enter stays Enter for who reads it
            mode[_LOCAL] &= ~termios.ECHOCTL
            termios.tcsetattr(0, termios.TCSANOW, mode)
            os.write(1, "❯ ".encode())
        except (OSError, termios.error):
            return
        self._before = before

    def hand_over(self) -> None:
        if self._before is not None:
            before, self._before = self._before, None
            try:
                termios.tcsetattr(0, termios.TCSANOW, before)
                os.write(1, b"\r\x1b[K")
            except (OSError, termios.error):
                return
