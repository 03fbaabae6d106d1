"""The folder of each session of a node, restored from and saved as snapshots in the database."""

from __future__ import annotations

import asyncio
import re
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from hermes.app.cluster.folder_archive import hash_folder, pack_folder, unpack_folder
from hermes.config.private_files import replace_file
from hermes.store.tables.tenancy import CURRENT_TENANT

if TYPE_CHECKING:
    from hermes.store.postgres.shared.snapshots import SnapshotTable

_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,80}")
_MB = 2**20


class SessionFolder(Struct):
    session: str
    path: Path
    version: int
    """Of the snapshot that it is based on; 0: none."""
    digest: str
    """Of its content when it was last saved or restored."""
    missing: tuple[str, ...] = ()
    """What its snapshot left out, if it was just restored."""


class SessionFolders:
    """A folder that this node has worked in is restored only when another node worked in it
    since."""

    def __init__(
        self, table: SnapshotTable, root: Path, records: Path, *, node: str, limit_mb: int
    ) -> None:
        """`root`: in which the folders are. `records`: in which this node keeps what they hold."""
        self._table = table
        self._root = root
        self._records = records
        self._node = node
        self._limit = limit_mb * _MB

    async def open_folder(self, session: str) -> SessionFolder:
        """The folder of a session, with what it held when a turn of it last ended on any node."""
        name = _name_folder(session)
        folder, record = self._root / name, self._records / name
        version = await self._table.find_version(session)
        missing: tuple[str, ...] = ()
        if version and await asyncio.to_thread(_read_version, record, folder) != version:
            found = await self._table.load(session)
            if found is not None:
                await asyncio.to_thread(unpack_folder, found.body, folder)
                version, missing = found.version, tuple(found.missing.splitlines())
                await asyncio.to_thread(_write_version, record, version)
        await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
        digest = await asyncio.to_thread(hash_folder, folder) if version or missing else ""
        return SessionFolder(session, folder, version, digest, missing)

    async def save_folder(self, opened: SessionFolder) -> None:
        """Keep what has changed in the folder."""
        from hermes.store.postgres.shared.snapshots import Snapshot

        digest = await asyncio.to_thread(hash_folder, opened.path)
        if digest == opened.digest:
            return
        packed = await asyncio.to_thread(pack_folder, opened.path, self._limit)
        version = opened.version + 1
        made = Snapshot(version, self._node, "\n".join(packed.missing), packed.body)
        if await self._table.save(opened.session, made):
            opened.version, opened.digest = version, digest
            record = self._records / opened.path.name
            await asyncio.to_thread(_write_version, record, version)


def _name_folder(session: str) -> str:
    """A name that no session of another tenant has."""
    name = session
    if not _PLAIN.fullmatch(session):
        name = blake2b(session.encode(errors="replace"), digest_size=16).hexdigest()
    return f"{CURRENT_TENANT.get()}-{name}"


def _read_version(record: Path, folder: Path) -> int:
    """Which snapshot the folder holds, or something newer made here; 0: none."""
    try:
        return int(record.read_text()) if folder.is_dir() else 0
    except (OSError, ValueError):
        return 0


def _write_version(record: Path, version: int) -> None:
    record.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    replace_file(record, str(version).encode())
