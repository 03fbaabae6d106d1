"""The seam to durable things that are no conversation: answers, runs, their events, replays."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from msgspec import Struct


class Object(Struct, frozen=True):
    kind: str
    id: str
    owner: str
    created: float
    body: bytes


class Objects(Protocol):
    """What is returned is on disk. A kind is a namespace; `owner` is whose it is."""

    async def put(
        self, kind: str, id: str, body: bytes, *, owner: str = "", most: int | None = None
    ) -> None:
        """Add or replace. `most`: how many of this kind and owner stay, the least recently used
        going first, with their events."""
        ...

    async def trim(self, kind: str, most: int, *, owner: str, spare: Collection[str]) -> None:
        """The same as `most`; those to `spare` stay, however long ago they were used."""
        ...

    async def add(self, kind: str, id: str, body: bytes, *, owner: str = "") -> bool:
        """Add; False, and nothing changed, when it is there already."""
        ...

    async def get(self, kind: str, id: str, *, owner: str, touch: bool = False) -> Object | None:
        """None also when it is somebody else's. `touch`: this counts as use."""
        ...

    async def remove(self, kind: str, id: str, *, owner: str) -> bool: ...

    async def list_all(self, kind: str, *, owner: str | None = None) -> list[Object]:
        """The oldest first."""
        ...

    async def append_events(self, stream: str, first: int, events: Sequence[bytes]) -> None:
        """Add events numbered from `first` on; one that is there already stays as it is."""
        ...

    async def read_events(self, stream: str, *, after: int = 0, most: int = 1000) -> list[bytes]:
        """Events with a higher number, in order."""
        ...
