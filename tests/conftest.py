"""What holds for every test: nobody but SQLite opens a database file."""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

_DATABASE = re.compile(r"\.db(-wal|-shm|-journal)?$")
_opened: list[str] = []
_watching = True


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if event not in ("open", "os.truncate", "sqlite3.connect") or not _watching:
        return
    path = args[0]
    if isinstance(path, str | bytes | os.PathLike) and _DATABASE.search(os.fsdecode(path)):
        where = "".join(traceback.format_stack(limit=6)[:-1])
        _opened.append(f"{event}: {os.fsdecode(path)}\n{where}")


sys.addaudithook(_audit)


@pytest.fixture(autouse=True)
def only_sqlite_opens_databases() -> Iterator[None]:
    """One open and close of the file by anybody else drops SQLite's locks for the whole process;
    rows committed after that can be lost."""
    _opened.clear()
    yield
    assert not _opened, "a database file was opened by Python:\n" + "\n".join(_opened)


@pytest.fixture
def raw_database() -> Callable[[], AbstractContextManager[None]]:
    """For tests that damage or inspect a file on purpose, with no connection open on it."""

    @contextmanager
    def allowed() -> Iterator[None]:
        global _watching
        _watching = False
        try:
            yield
        finally:
            _watching = True

    return allowed
