"""What the tables need of a database: its connection, its threads, and which processes live."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class SqlConnection(Protocol):
    """A connection inside a transaction. Parameters are `?`, or `?1` and so on."""

    def execute(self, sql: str, values: Any = ..., /) -> Any:
        """The rows: to be iterated, or `fetchall`, `fetchone`, and `get` for a single value."""

    def executemany(self, sql: str, rows: Iterable[Any], /) -> Any: ...

    def changes(self) -> int:
        """How many rows the last statement changed."""

    def readonly(self, name: str, /) -> bool:
        """Whether the database of this name, `main`, cannot be written."""


class SqlWriter(Protocol):
    def submit(self, run: Callable[[SqlConnection], T], /) -> asyncio.Future[T]:
        """Run in a transaction; the result is on disk when it arrives."""


class Processes(Protocol):
    """Who owns what runs, and whether they are alive."""

    @property
    def name(self) -> str: ...

    def acquire(self) -> str:
        """The name of this process, which counts as alive from now on."""

    def is_alive(self, name: str) -> bool: ...


class SqlDatabase(Protocol):
    @property
    def writer(self) -> SqlWriter: ...

    @property
    def process(self) -> Processes: ...

    async def read(self, run: Callable[[SqlConnection], T], /) -> T: ...
