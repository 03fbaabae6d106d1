"""What subsystems must do before the process ends, whoever started them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

Closer: TypeAlias = Callable[[], Awaitable[None]]
_closers: list[Closer] = []


def register_closer(closer: Closer) -> None:
    """Have `closer` awaited when a runtime ends. A module registers its own when it is imported."""
    _closers.append(closer)


async def run_closers() -> None:
    """Await every registered closer, the latest first."""
    for closer in reversed(_closers):
        await closer()
