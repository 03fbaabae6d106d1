"""A damaged session database: found out, set aside, and replaced by what can be read of it."""

import os
from pathlib import Path

from hermes.core.errors import StoreError
from hermes.gateway import texts
from hermes.store.sqlite import SqliteStore

CHECKED_SIZE = 16 * 2**20
"""Bytes of a database that is checked completely, in about 30 ms."""


class DamageWatch:
    """Looks at the file of the store. A log receives what is written, so that the file itself
    changes rarely: now and then by SQLite, otherwise by somebody else."""

    def __init__(self, store: SqliteStore, file: Path) -> None:
        self.store = store
        self._file = file
        self._seen: tuple[int, int, int] | None = None

    async def find_damage(self) -> bool:
        """Whether the database is damaged. StoreError when it cannot be used for another reason."""
        try:
            await self.store.wait_until_open()
            found = os.stat(self._file)  # noqa: PTH116
            state = (found.st_ino, found.st_size, found.st_mtime_ns)
            if state == self._seen or found.st_size > CHECKED_SIZE:
                return False
            self._seen = state
            return bool(await self.store.maintenance.check_integrity())
        except StoreError as error:
            if error.code != "damaged":
                raise
        return True


async def salvage_store(store: SqliteStore) -> str:
    """Replace the damaged database; what the owner should be told."""
    saved = await store.maintenance.salvage()
    return texts.DATABASE_DAMAGED.format(
        sessions=saved.sessions,
        messages=saved.messages,
        lost=saved.lost,
        name=saved.damaged_file.name,
    )
