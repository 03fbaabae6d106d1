"""A home as one file: written without secrets unless asked, and restored only when it is intact."""

import asyncio
import hashlib
import io
import os
import shutil
import stat
import tarfile
import tempfile
import time
import zlib
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import IO, Any

import msgspec
from msgspec import Struct

from hermes.config import paths
from hermes.config.secrets import is_secret_name
from hermes.config.yaml_source import parse_yaml
from hermes.core.errors import ConfigError, HermesError, StoreError
from hermes.core.text import format_plural
from hermes.store.migrations import SCHEMA_VERSION
from hermes.store.recovery.backup import merge_wal
from hermes.store.sqlite import SqliteStore
from hermes.version import VERSION

FORMAT = 1
HEADER, MANIFEST = "hermes-backup.json", "manifest.json"
DATABASE = "hermes.db"
_SKIPPED_FOLDERS = frozenset({"cache", "run", "models", "logs", "processes", "aside"})
"""Recreated, too large, or only meaningful while something runs."""
_SKIPPED_FILES = "*.lock *.tmp *.new *.part hermes-backup-*.tar.gz hermes.db*".split()
SECRET_NAMES = frozenset({".env", "logins", "auth.json", "credentials.json", "tokens", "secrets"})
_SECRET_FILES = ("*.pem", "*.key", "*.p12", ".env.*")
REDACTED = "[redacted]"
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class ArchiveHeader(Struct, frozen=True):
    """The first member: how and by what the archive was written."""

    format: int
    version: str
    schema: int
    created: float
    secrets: bool


class WrittenArchive(Struct, frozen=True):
    file: Path
    count: int
    size: int
    left_out: tuple[str, ...]
    """A sentence for each secret and each unreadable file that is not in it."""


async def write_archive(home: Path, file: Path, *, secrets: bool) -> WrittenArchive:
    """The file is written completely or not at all. ConfigError when it already exists."""
    if _list_existing(file.parent, [file.name]):
        raise ConfigError(f"{file} already exists; nothing was written. Choose another name.")
    part = file.with_name(f".{file.name}.{os.getpid()}.part")
    try:
        handle = os.open(part, _NEW_FILE, 0o600)
    except OSError as error:
        raise ConfigError(f"Could not write {file}: {error.strerror}.") from None
    try:
        with os.fdopen(handle, "wb") as out:
            writer = _ArchiveWriter(out, home, secrets=secrets)
            await writer.write_all()
            out.flush()
            os.fsync(out.fileno())
            size = out.tell()
        os.link(part, file)
    except FileExistsError:
        raise ConfigError(f"{file} already exists; nothing was written.") from None
    except OSError as error:
        raise ConfigError(f"Could not write the backup: {error.strerror}.") from None
    finally:
        part.unlink(missing_ok=True)
    return WrittenArchive(file, len(writer.members), size, tuple(writer.left_out))


class _ArchiveWriter:
    def __init__(self, out: IO[bytes], home: Path, *, secrets: bool) -> None:
        self._tar = tarfile.open(fileobj=out, mode="w:gz", compresslevel=6)  # noqa: SIM115 - closed below
        self._home = home
        self._secrets = secrets
        self.members: dict[str, tuple[int, str]] = {}
        self.left_out: list[str] = []

    async def write_all(self) -> None:
        header = ArchiveHeader(FORMAT, VERSION, SCHEMA_VERSION, time.time(), self._secrets)
        self._add_bytes(HEADER, msgspec.json.encode(header))
        profiles = sorted(self._home.glob("profiles/*"))
        for home in (self._home, *(f for f in profiles if f.is_dir() and not f.is_symlink())):
            prefix = "" if home == self._home else f"profiles/{home.name}/"
            if paths.database_file(home).exists():
                await self._add_database(home, prefix)
            for file in self._list_files(home):
                self._add_file(file, prefix + file.relative_to(home).as_posix())
        # Last, so that a truncated file has none.
        self._add_bytes(MANIFEST, msgspec.json.encode(self.members))
        self._tar.close()

    def _list_files(self, home: Path) -> Iterator[Path]:
        for folder, inner, names in os.walk(home):
            here = Path(folder)
            if here == home:
                inner[:] = [n for n in inner if n not in _SKIPPED_FOLDERS and n != "profiles"]
            inner.sort()
            for name in [n for n in inner if self._is_secret(n)]:
                inner.remove(name)
                self._leave_out(here / name)
            for name in sorted(names):
                if any(fnmatch(name, pattern) for pattern in _SKIPPED_FILES):
                    continue
                if self._is_secret(name):
                    self._leave_out(here / name)
                else:
                    yield here / name

    def _is_secret(self, name: str) -> bool:
        if self._secrets:
            return False
        return name in SECRET_NAMES or any(fnmatch(name, pattern) for pattern in _SECRET_FILES)

    def _leave_out(self, path: Path) -> None:
        self.left_out.append(f"{path.relative_to(self._home)} holds secrets and was left out")

    async def _add_database(self, home: Path, prefix: str) -> None:
        run = home / "run"
        paths.make_private_folder(run)
        with tempfile.TemporaryDirectory(prefix="backup-", dir=run) as folder:
            copy = Path(folder) / "database"
            store = SqliteStore(paths.database_file(home))
            try:
                await store.maintenance.back_up(str(copy))
            finally:
                await store.close()
            self._add_file(copy, prefix + DATABASE)

    def _add_file(self, file: Path, name: str) -> None:
        try:
            handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            why = "is a link" if file.is_symlink() else f"could not be read ({error.strerror})"
            self.left_out.append(f"{name} {why} and was left out")
            return
        with os.fdopen(handle, "rb") as opened:
            about = os.fstat(opened.fileno())
            if not stat.S_ISREG(about.st_mode):
                return
            if file.name == "config.yaml" and not self._secrets:
                self._add_bytes(name, self._redact_config(opened.read(), name))
                return
            info = tarfile.TarInfo(name)
            info.size, info.mtime = about.st_size, int(about.st_mtime)
            info.mode = 0o700 if about.st_mode & 0o100 else 0o600
            source = _HashingReader(opened)
            self._tar.addfile(info, source)
        self.members[name] = info.size, source.digest.hexdigest()

    def _add_bytes(self, name: str, data: bytes) -> None:
        info = tarfile.TarInfo(name)
        info.size, info.mtime, info.mode = len(data), int(time.time()), 0o600
        self._tar.addfile(info, io.BytesIO(data))
        if name not in (HEADER, MANIFEST):
            self.members[name] = len(data), hashlib.sha256(data).hexdigest()

    def _redact_config(self, source: bytes, name: str) -> bytes:
        """The configuration without secrets, which do not belong there but may be."""
        try:
            values = set(_find_secrets(parse_yaml(source).data))
        except ConfigError:
            return source
        for value in sorted(values, key=len, reverse=True):
            source = source.replace(value.encode(), REDACTED.encode())
        if values:
            count = format_plural(len(values), "secret")
            self.left_out.append(f"{name}: {count} replaced by {REDACTED}")
        return source


def _find_secrets(value: Any, name: str = "") -> Iterator[str]:
    match value:
        case dict():
            for key, item in value.items():
                yield from _find_secrets(item, str(key))
        case list():
            for item in value:
                yield from _find_secrets(item, name)
        case str() if len(value) > 3 and is_secret_name(name):
            if not name.endswith(("_env", "_envs")):
                yield value


class _HashingReader(io.RawIOBase):
    """Computes the digest of a file while it is read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.digest = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self.digest.update(data)
        return data


_MAX_FILES = 500_000
_SPARE_BYTES = 64 * 2**20
_CHUNK = 1 << 20
_UNCHANGED = "nothing was changed."


class RestoredArchive(Struct, frozen=True):
    header: ArchiveHeader
    count: int
    aside: Path | None
    """Where the previous content is now, if there was any."""


async def restore_archive(home: Path, file: Path, *, force: bool) -> RestoredArchive:
    """Replaces what the archive contains. ConfigError: the home is as it was."""
    paths.make_home(home)
    staging = Path(tempfile.mkdtemp(prefix=".import-", dir=home))
    try:
        try:
            header, count = _unpack_archive(file, staging)
        except (tarfile.TarError, EOFError, zlib.error, ValueError) as error:
            reason = str(error) or type(error).__name__
            raise ConfigError(f"{file} is not an intact backup ({reason}); {_UNCHANGED}") from None
        except OSError as error:
            raise ConfigError(f"{file}: {error.strerror or error}; {_UNCHANGED}") from None
        await _check_databases(staging)
        return RestoredArchive(header, count, await _move_into_place(home, staging, force=force))
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _unpack_archive(file: Path, staging: Path) -> tuple[ArchiveHeader, int]:
    room = shutil.disk_usage(staging).free - _SPARE_BYTES
    found: dict[str, tuple[int, str]] = {}
    header: ArchiveHeader | None = None
    manifest: dict[str, tuple[int, str]] | None = None
    with file.open("rb") as opened, tarfile.open(fileobj=opened, mode="r|gz") as tar:
        for member in tar:
            data = _open_member(member, tar, first=header is None, known=found)
            room -= member.size
            if room < 0 or len(found) > _MAX_FILES:
                raise ValueError("it is larger than the free disk space")
            if header is None:
                header = _parse_header(data.read(_CHUNK))
            elif member.name == MANIFEST:
                manifest = msgspec.json.decode(data.read(), type=dict[str, tuple[int, str]])
            else:
                found[member.name] = _write_member(data, member, staging)
    if header is None or manifest is None:
        raise ValueError("its end is missing")
    if manifest != found:
        raise ValueError("its files are not those that were backed up")
    return header, len(found)


def _open_member(
    member: tarfile.TarInfo, tar: tarfile.TarFile, *, first: bool, known: dict[str, tuple[int, str]]
) -> IO[bytes]:
    """Opens a member that is a regular file with a plain relative name, seen for the first time."""
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
        raise ValueError(f"{member.name[:80]!r} does not belong in a backup")
    if first and member.name != HEADER:
        raise ValueError("it does not begin like one")
    data = tar.extractfile(member)
    assert data is not None
    return data


def _parse_header(data: bytes) -> ArchiveHeader:
    try:
        header = msgspec.json.decode(data, type=ArchiveHeader)
    except msgspec.DecodeError:
        raise ValueError("it does not begin like one") from None
    if header.format > FORMAT or header.schema > SCHEMA_VERSION:
        text = f"The backup was made by a newer version ({header.version}); {_UNCHANGED}"
        raise ConfigError(f"{text} Run: hermes update")
    return header


def _write_member(data: IO[bytes], member: tarfile.TarInfo, staging: Path) -> tuple[int, str]:
    target = staging / member.name
    paths.make_private_folder(target.parent)
    handle = os.open(target, _NEW_FILE, 0o700 if member.mode & 0o100 else 0o600)
    digest, size = hashlib.sha256(), 0
    with os.fdopen(handle, "wb") as out:
        while piece := data.read(_CHUNK):
            digest.update(piece)
            size += len(piece)
            out.write(piece)
        out.flush()
        os.fsync(out.fileno())
    os.utime(target, (member.mtime, member.mtime))
    return size, digest.hexdigest()


async def _check_databases(staging: Path) -> None:
    """Opens them as the program itself would."""
    for file in (staging / unit for unit in _list_units(staging)):
        if file.name != DATABASE:
            continue
        store = SqliteStore(file)
        try:
            problems = await store.maintenance.check_integrity()
        except HermesError as error:
            raise ConfigError(f"The sessions in the backup cannot be used: {error}") from None
        finally:
            await store.close()
            shutil.rmtree(file.parent / "run", ignore_errors=True)
        if problems:
            why = f"damaged ({problems[0]}); {_UNCHANGED}"
            raise ConfigError(f"The sessions in the backup are {why}")
        await _release_database(file)


async def _move_into_place(home: Path, staging: Path, *, force: bool) -> Path | None:
    units = _list_units(staging)
    existing = _list_existing(home, units)
    if existing and not force:
        names = ", ".join(existing[:6]) + (", ..." if len(existing) > 6 else "")
        hint = "With --force they are set aside and replaced."
        raise ConfigError(f"{home} already has {names}; {_UNCHANGED} {hint}")
    for unit in existing:
        if PurePosixPath(unit).name == DATABASE:
            await _release_database(home / unit)
    aside = home / "aside" / time.strftime("import-%Y%m%d-%H%M%S")
    moves = [(home / unit, aside / unit) for unit in existing]
    moves += [(staging / unit, home / unit) for unit in units]
    done: list[tuple[Path, Path]] = []
    try:
        for source, target in moves:
            paths.make_private_folder(target.parent)
            source.rename(target)
            done.append((source, target))
    except OSError as error:
        for source, target in reversed(done):
            target.rename(source)
        why = f"({error.strerror}); {_UNCHANGED}"
        raise ConfigError(f"The backup could not be moved into place {why}") from None
    return aside if existing else None


def _list_existing(folder: Path, names: list[str]) -> list[str]:
    return [name for name in names if os.path.lexists(folder / name)]


def _list_units(folder: Path) -> list[str]:
    """What is replaced as a whole: each entry of a home."""
    units = [entry.name for entry in folder.iterdir() if entry.name != "profiles"]
    for profile in folder.glob("profiles/*"):
        units += [entry.relative_to(folder).as_posix() for entry in profile.iterdir()]
    return sorted(units)


async def _release_database(database: Path) -> None:
    """Makes sure that nobody uses the database and that all of it is in its one file."""
    try:
        await asyncio.to_thread(merge_wal, database)
    except StoreError as error:
        if error.code == "in_use":
            raise ConfigError(str(error)) from None
        # Damaged, or of a newer version: moved as it is, with the files beside it.
        for beside in database.parent.glob(f"{database.name}-*"):
            beside.rename(database.parent / f"{beside.name}.aside")
