"""The stored frames of a stream: written while it runs, read by any number of clients."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import suppress

from hermes.app.knowledge.titles import SpawnTask
from hermes.core.errors import StoreError
from hermes.core.store import Objects

log = logging.getLogger(__name__)

_PAGE_FRAMES = 500
_WRITE_SECONDS = 0.05
"""The least time between two writes: a stream of single words is not a write per word."""


class FrameLog:
    """Writes frames in order, in the background. They are deleted with the object whose id is the
    name of the stream."""

    def __init__(self, objects: Objects, stream: str, spawn: SpawnTask) -> None:
        self._objects = objects
        self._stream = stream
        self._spawn = spawn
        self._unsaved: list[bytes] = []
        self._count = 0
        self._writing: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._ended = False
        self._hurry = asyncio.Event()
        """Set while somebody waits for the frames to be on disk."""
        self._next_write = 0.0

    def put(self, frame: bytes) -> None:
        """Add a frame; it is on disk a moment later."""
        if not frame:
            return
        self._unsaved.append(frame)
        if self._writing is None:
            self._writing = self._spawn(self._write_frames(), f"frames of {self._stream}")

    async def flush(self) -> None:
        """Wait until everything is on disk; what cannot be stored is not waited for."""
        self._hurry.set()
        while self._writing is not None:
            await asyncio.wait({self._writing})
        self._hurry.clear()

    async def end(self) -> None:
        """Wait until everything is on disk; readers then come to their end."""
        await self.flush()
        self._ended = True
        self._wake_readers()

    async def read_new_frames(self) -> AsyncIterator[bytes]:
        """Yield all frames, stored and new ones, until the stream has ended."""
        after = 0
        while True:
            news, ended = self._news, self._ended
            page = await self._objects.read_events(self._stream, after=after, limit=_PAGE_FRAMES)
            after += len(page)
            if page:
                yield b"".join(page)
            elif ended:
                return
            else:
                await news.wait()

    async def _write_frames(self) -> None:
        try:
            while self._unsaved:
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(self._next_write):
                        await self._hurry.wait()
                frames, self._unsaved = self._unsaved, []
                await self._objects.append_events(self._stream, self._count + 1, frames)
                self._count += len(frames)
                self._next_write = asyncio.get_running_loop().time() + _WRITE_SECONDS
                self._wake_readers()
        except StoreError as error:
            log.warning("the frames of %s were not stored: %s", self._stream, error)
            self._unsaved.clear()
        finally:
            self._writing = None

    def _wake_readers(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()


async def read_stored_frames(objects: Objects, stream: str) -> AsyncIterator[bytes]:
    """Yield the frames of a stream that has ended."""
    after = 0
    while page := await objects.read_events(stream, after=after, limit=_PAGE_FRAMES):
        after += len(page)
        yield b"".join(page)
