"""Work that must be finished: shielded from cancellation, or done when the last runtime ends."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TypeAlias, TypeVar

Closer: TypeAlias = Callable[[], Awaitable[None]]
_closers: list[Closer] = []
_runtimes: Counter[asyncio.AbstractEventLoop] = Counter()


def register_closer(closer: Closer) -> None:
    """Have `closer` awaited when the last runtime ends. A module registers its own when it is
    imported."""
    _closers.append(closer)


def hold_closers() -> None:
    """Put the closers off until this runtime has released them."""
    _runtimes[asyncio.get_running_loop()] += 1


async def release_closers() -> None:
    """Await every registered closer, the latest first, unless another runtime of this event loop
    holds them."""
    loop = asyncio.get_running_loop()
    _runtimes[loop] -= 1
    if _runtimes[loop] > 0:
        return
    del _runtimes[loop]
    for closer in reversed(_closers):
        await closer()


T = TypeVar("T")


async def run_shielded(work: Awaitable[T]) -> tuple[T, asyncio.CancelledError | None]:
    """Run `work` to its end whatever is cancelled meanwhile; its result, and the cancellation that
    had to wait."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            if task.cancelled():
                raise
            cancelled = error
    return task.result(), cancelled
