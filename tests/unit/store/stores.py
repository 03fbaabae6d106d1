"""What several tests of the store do: fill one, search it, run a program beside it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest

from hermes.core.message import user_message
from hermes.core.store import SessionMeta
from hermes.store.sqlite import SqliteStore

on_both_databases = pytest.mark.parametrize("database", ["sqlite", "postgres"], indirect=True)
"""For tests of what every store does."""
Raw = Callable[[], AbstractContextManager[None]]
"""The fixture `raw_database`."""


async def find_sessions(store: SqliteStore, query: str) -> set[str]:
    return {hit.session.id for hit in await store.search.find_messages(query)}


async def fill(store: SqliteStore, **texts: str) -> None:
    for name, text in texts.items():
        await store.sessions.append(name, [user_message(text)], create=SessionMeta(name))


def run_python(code: str, *args: object, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, args)],
        capture_output=True,
        text=True,
        timeout=50,
        **options,
    )
