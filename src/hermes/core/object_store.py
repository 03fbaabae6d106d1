"""The protocol for stored values that are no conversations: responses, runs, events."""

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
    """Whatever was written is on disk when the call returns. A kind is a namespace; only its
    `owner` gets an object."""

    async def put(
        self, kind: str, id: str, body: bytes, *, owner: str = "", keep_latest: int | None = None
    ) -> None:
        """Add or replace. `keep_latest`: how many of this kind and owner remain; the least recently
        used are deleted first, with their events."""
        ...

    async def trim(
        self, kind: str, keep_latest: int, *, owner: str, spare: Collection[str]
    ) -> None:
        """Delete all but the most recently used; those in `spare` remain in any case."""
        ...

    async def add(self, kind: str, id: str, body: bytes, *, owner: str = "") -> bool:
        """Add; False, with nothing changed, when it exists already."""
        ...

    async def get(self, kind: str, id: str, *, owner: str, touch: bool = False) -> Object | None:
        """None also when another owner has it. `touch`: counts as a use."""
        ...

    async def remove(self, kind: str, id: str, *, owner: str) -> bool: ...

    async def list_all(self, kind: str, *, owner: str | None = None) -> list[Object]:
        """The oldest first."""
        ...

    async def append_events(self, stream: str, first: int, events: Sequence[bytes]) -> None:
        """Add events numbered from `first`; one that exists already stays as it is."""
        ...

    async def read_events(self, stream: str, *, after: int = 0, limit: int = 1000) -> list[bytes]:
        """Events with a higher number, in order."""
        ...
