"""A backup put back: checked whole before anything is touched, what was there kept aside."""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import tempfile
import time
import zlib
from pathlib import Path, PurePosixPath
from typing import IO

import msgspec
from msgspec import Struct

from hermes.cli.backup import DATABASE, FORMAT, HEADER, MANIFEST, Header
from hermes.config import paths
from hermes.core.errors import ConfigError, HermesError
from hermes.store.migrations import SCHEMA_VERSION

_MOST_FILES = 500_000
_SPARE = 64 * 2**20
_PIECE = 1 << 20
_UNTOUCHED = "nothing was changed."


class Restored(Struct, frozen=True):
    header: Header
    count: int
    aside: Path | None
    """Where what was there before is now."""


async def restore(home: Path, file: Path, *, force: bool) -> Restored:
    """ConfigError, and then the home is as it was."""
    paths.make_home(home)
    staging = Path(tempfile.mkdtemp(prefix=".import-", dir=home))
    try:
        try:
            header, count = _unpack(file, staging)
        except (tarfile.TarError, EOFError, zlib.error, ValueError) as error:
            said = str(error) or type(error).__name__
            raise ConfigError(f"{file} is not a whole backup ({said}); {_UNTOUCHED}") from None
        except OSError as error:
            raise ConfigError(f"{file}: {error.strerror or error}; {_UNTOUCHED}") from None
        await _check_databases(staging)
        return Restored(header, count, await _place(home, staging, force=force))
    finally:
        shutil.rmtree(staging, ignore_errors=True)


# -- unpacking -----------------------------------------------------------------------------


def _unpack(file: Path, staging: Path) -> tuple[Header, int]:
    room = shutil.disk_usage(staging).free - _SPARE
    found: dict[str, tuple[int, str]] = {}
    header: Header | None = None
    manifest: dict[str, tuple[int, str]] | None = None
    with file.open("rb") as opened, tarfile.open(fileobj=opened, mode="r|gz") as tar:
        for member in tar:
            data = _checked(member, tar, first=header is None, known=found)
            room -= member.size
            if room < 0 or len(found) > _MOST_FILES:
                raise ValueError("it holds more than there is room for")
            if header is None:
                header = _header(data.read(_PIECE))
            elif member.name == MANIFEST:
                manifest = msgspec.json.decode(data.read(), type=dict[str, tuple[int, str]])
            else:
                found[member.name] = _written(data, member, staging)
    if header is None or manifest is None:
        raise ValueError("its end is missing")
    if manifest != found:
        raise ValueError("its files are not those it was made with")
    return header, len(found)


def _checked(
    member: tarfile.TarInfo, tar: tarfile.TarFile, *, first: bool, known: dict[str, tuple[int, str]]
) -> IO[bytes]:
    """Plain files with plain names only: no link, no way out, no second one of a name."""
    name = PurePosixPath(member.name)
    plain = (
        member.isreg()
        and "\0" not in member.name
        and str(name) == member.name
        and not name.is_absolute()
        and not {"..", "."} & set(name.parts)
        and name.parts[0] not in ("run", "aside")
        and not name.parts[0].startswith(".import-")
    )
    if not plain or member.name in known:
        raise ValueError(f"{member.name[:80]!r} has no place in a backup")
    if first and member.name != HEADER:
        raise ValueError("it does not begin like one")
    data = tar.extractfile(member)
    assert data is not None
    return data


def _header(data: bytes) -> Header:
    try:
        header = msgspec.json.decode(data, type=Header)
    except msgspec.DecodeError:
        raise ValueError("it does not begin like one") from None
    if header.format > FORMAT or header.schema > SCHEMA_VERSION:
        raise ConfigError(
            f"The backup was made by a newer version ({header.version}); {_UNTOUCHED} "
            "See hermes update."
        )
    return header


def _written(data: IO[bytes], member: tarfile.TarInfo, staging: Path) -> tuple[int, str]:
    target = staging / member.name
    paths.make_private_folder(target.parent)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(target, flags, 0o700 if member.mode & 0o100 else 0o600)
    digest, size = hashlib.sha256(), 0
    with os.fdopen(handle, "wb") as out:
        while piece := data.read(_PIECE):
            digest.update(piece)
            size += len(piece)
            out.write(piece)
        out.flush()
        os.fsync(out.fileno())
    os.utime(target, (member.mtime, member.mtime))
    return size, digest.hexdigest()


async def _check_databases(staging: Path) -> None:
    """As the program itself would open them."""
    from hermes.store.sqlite import SqliteStore

    for file in _databases(staging):
        store = SqliteStore(file)
        try:
            wrong = await store.maintenance.check_integrity()
        except HermesError as error:
            raise ConfigError(f"The sessions in it cannot be used: {error}") from None
        finally:
            await store.close()
            shutil.rmtree(file.parent / "run", ignore_errors=True)
        if wrong:
            raise ConfigError(f"The sessions in it are damaged ({wrong[0]}); {_UNTOUCHED}")
        await _let_go(file)


def _databases(staging: Path) -> list[Path]:
    found = [staging / DATABASE, *staging.glob(f"profiles/*/{DATABASE}")]
    return [file for file in found if file.exists()]


# -- placing -------------------------------------------------------------------------------


async def _place(home: Path, staging: Path, *, force: bool) -> Path | None:
    units = _units(staging)
    there = _present(home, units)
    if there and not force:
        names = ", ".join(there[:6]) + (", ..." if len(there) > 6 else "")
        raise ConfigError(
            f"{home} has {names} already; {_UNTOUCHED} --force puts them aside and the backup "
            "in their place."
        )
    for unit in there:
        if PurePosixPath(unit).name == DATABASE:
            await _let_go(home / unit)
    aside = home / "aside" / time.strftime("import-%Y%m%d-%H%M%S")
    moves: list[tuple[Path, Path]] = []
    try:
        for unit in there:
            _move(home / unit, aside / unit, moves)
        for unit in units:
            _move(staging / unit, home / unit, moves)
    except OSError as error:
        for source, target in reversed(moves):
            target.rename(source)
        raise ConfigError(
            f"It could not be put in place ({error.strerror}); {_UNTOUCHED}"
        ) from None
    return aside if there else None


def _present(home: Path, units: list[str]) -> list[str]:
    return [unit for unit in units if os.path.lexists(home / unit)]


def _units(folder: Path) -> list[str]:
    """What is replaced as one: each entry of a home."""
    units = [entry.name for entry in folder.iterdir() if entry.name != "profiles"]
    for profile in folder.glob("profiles/*"):
        units += [entry.relative_to(folder).as_posix() for entry in profile.iterdir()]
    return sorted(units)


def _move(source: Path, target: Path, moves: list[tuple[Path, Path]]) -> None:
    paths.make_private_folder(target.parent)
    source.rename(target)
    moves.append((source, target))


async def _let_go(database: Path) -> None:
    """Nobody uses it, and all of it is in the one file that is moved."""
    import asyncio

    from hermes.core.errors import StoreError
    from hermes.store.backup import merge_wal

    try:
        await asyncio.to_thread(merge_wal, database)
    except StoreError as error:
        if error.code == "in_use":
            raise ConfigError(str(error)) from None
        # Damaged, or of a newer version: moved as it is, with what lies beside it.
        for beside in database.parent.glob(f"{database.name}-*"):
            beside.rename(database.parent / f"{beside.name}.aside")
