"""What commands start with: the home, its configuration, and whether an agent may run them."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Collection, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from hermes.cli.main import print_stderr
from hermes.config import paths
from hermes.config.env import get_environment, is_inside_agent

if TYPE_CHECKING:
    import asyncio

    from hermes.config.load import Setup
    from hermes.store.sqlite import SqliteStore
    from hermes.store.tables.mailbox import MessengerStore

T = TypeVar("T")


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Runs asynchronous work to its end; a command that only explains itself needs no asyncio."""
    import asyncio

    async def run() -> T:
        with _wake_on_signals(asyncio.get_running_loop()):
            return await work

    return asyncio.run(run())


@contextmanager
def _wake_on_signals(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """A signal that comes just before the loop begins to wait would wait with it."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    loop.add_reader(reader, os.read, reader, 4096)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(-1)
        loop.remove_reader(reader)
        os.close(reader)
        os.close(writer)


def locate_home(profile: str) -> Path:
    return paths.find_home(get_environment(), profile)


def create_home(profile: str) -> Path:
    """The home of the profile, created if it does not exist and made private."""
    home = locate_home(profile)
    for warning in paths.make_home(home):
        print_stderr(warning)
    return home


def load_checked_setup(profile: str, keys: Collection[str] = ()) -> Setup:
    """The configuration of the profile; its warnings are shown."""
    from hermes.config.load import load_setup

    setup = load_setup(profile, keys=keys)
    for warning in setup.warnings:
        print_stderr(warning)
    return setup


@asynccontextmanager
async def open_shared_store(setup: Setup) -> AsyncIterator[MessengerStore]:
    """The store of the cluster, or without one that of the home."""
    if not setup.database_url:
        async with open_store(setup.home) as own:
            yield own
        return
    from hermes.app.cluster.node import require_database

    url = require_database(setup)
    from hermes.store.postgres.store import open_postgres

    store = open_postgres(url)
    try:
        await store.wait_until_open()
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def open_store(home: Path) -> AsyncIterator[SqliteStore]:
    """The stored sessions of a home; what is found wrong with them is shown. On a disk that is full
    or cannot be written they can still be read."""
    from hermes.core.errors import StoreError
    from hermes.store.sqlite import SqliteStore

    file = paths.database_file(home)
    store = SqliteStore(file)
    try:
        try:
            for notice in await store.wait_until_open():
                print_stderr(notice)
        except StoreError as error:
            if error.code not in ("full", "readonly") or not file.exists():
                raise
            await store.close()
            store = SqliteStore(file, read_only=True)
        yield store
    finally:
        await store.close()


def refuse_agent(action: str) -> None:
    """ConfigError when a tool of an agent runs this command: that is for people only."""
    if is_inside_agent():
        from hermes.core.errors import ConfigError  # brings msgspec

        raise ConfigError(f"An agent's tool may not {action}; run this command yourself.")
