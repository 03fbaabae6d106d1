"""Time limits that end when a test says so, however slow the machine is."""

from __future__ import annotations

import asyncio
import contextlib
from types import ModuleType, SimpleNamespace

import pytest


class Deadline:
    """Stands for `asyncio.timeout` in a module: there, no time is over before `expire`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: ModuleType) -> None:
        self._timeouts: list[asyncio.Timeout] = []
        names = {**vars(asyncio), "timeout": self._open_timeout}
        monkeypatch.setattr(module, "asyncio", SimpleNamespace(**names))

    def _open_timeout(self, seconds: float | None) -> asyncio.Timeout:
        self._timeouts.append(asyncio.timeout(None))
        return self._timeouts[-1]

    def expire(self) -> None:
        for timeout in self._timeouts:
            with contextlib.suppress(RuntimeError):  # that one has ended already
                timeout.reschedule(asyncio.get_running_loop().time())
