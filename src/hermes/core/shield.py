"""Work that a cancellation must not leave half done."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

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
