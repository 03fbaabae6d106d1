"""Keeps what plugins print out of the standard output, which holds answers and protocols."""

import sys
import threading
from typing import Any

THREAD_PREFIX = "plugin "
"""How the names of all threads begin in which plugins run."""


class PluginOutput:
    """Stands for `sys.stdout`: threads of plugins write to the error output instead."""

    def __init__(self) -> None:
        self._stream: Any = sys.stdout
        sys.stdout = self

    def write(self, text: str) -> int:
        is_plugin = threading.current_thread().name.startswith(THREAD_PREFIX)
        return int((sys.stderr if is_plugin else self._stream).write(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def close(self) -> None:
        """Stand for it no longer, unless something else does by now."""
        if sys.stdout is self:
            sys.stdout = self._stream
