"""A home in one file: consistent databases, no secrets unless they are asked for."""

from __future__ import annotations

import hashlib
import io
import os
import stat
import tarfile
import tempfile
import time
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import IO, Any

import msgspec
from msgspec import Struct

from hermes.config import paths
from hermes.core.errors import ConfigError
from hermes.store.migrations import SCHEMA_VERSION
from hermes.version import VERSION

FORMAT = 1
HEADER, MANIFEST = "hermes-backup.json", "manifest.json"
DATABASE = "hermes.db"
_LEFT_OUT = frozenset({"cache", "run", "models", "logs", "processes", "aside"})
"""Made again, too large, or only true while something runs."""
_PASSING = ("*.lock", "*.tmp", "*.new", "*.part", ".*.new", "hermes-backup-*.tar.gz", "hermes.db*")
SECRET = frozenset({".env", "logins", "auth.json", "credentials.json", "tokens", "secrets"})
_SECRET_FILES = ("*.pem", "*.key", "*.p12", ".env.*")
REDACTED = "[redacted]"


class Header(Struct, frozen=True):
    """The first member: what comes behind it."""

    format: int
    version: str
    schema: int
    created: float
    secrets: bool


class Made(Struct, frozen=True):
    file: Path
    count: int
    size: int
    left_out: tuple[str, ...]
    """Secrets that stayed behind, and what could not be read: a sentence each."""


async def make(home: Path, file: Path, *, secrets: bool) -> Made:
    """The file is there whole, or not at all. ConfigError when it exists already."""
    _refuse_existing(file)
    part = file.with_name(f".{file.name}.{os.getpid()}.part")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    size = 0
    try:
        handle = os.open(part, flags, 0o600)
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}.") from None
    try:
        with os.fdopen(handle, "wb") as out:
            writing = _Writing(out, home, secrets=secrets)
            await writing.everything()
            out.flush()
            os.fsync(out.fileno())
            size = out.tell()
        os.link(part, file)
    except FileExistsError:
        raise ConfigError(f"{file} exists already; nothing was written.") from None
    except OSError as error:
        raise ConfigError(f"The backup could not be written: {error.strerror}.") from None
    finally:
        part.unlink(missing_ok=True)
    return Made(file, len(writing.members), size, tuple(writing.left_out))


def _refuse_existing(file: Path) -> None:
    if os.path.lexists(file):
        raise ConfigError(f"{file} exists already; nothing was written. Choose another name.")


class _Writing:
    def __init__(self, out: IO[bytes], home: Path, *, secrets: bool) -> None:
        self._tar = tarfile.open(fileobj=out, mode="w:gz", compresslevel=6)  # noqa: SIM115 - closed below
        self._home = home
        self._secrets = secrets
        self.members: dict[str, tuple[int, str]] = {}
        self.left_out: list[str] = []

    async def everything(self) -> None:
        header = Header(FORMAT, VERSION, SCHEMA_VERSION, time.time(), self._secrets)
        self._bytes(HEADER, msgspec.json.encode(header))
        for home in self._homes():
            prefix = "" if home == self._home else f"profiles/{home.name}/"
            if paths.database_file(home).exists():
                await self._database(home, prefix)
            for file in self._files(home):
                self._add(file, prefix + file.relative_to(home).as_posix())
        # Last, so that a file cut short has none.
        self._bytes(MANIFEST, msgspec.json.encode(self.members))
        self._tar.close()

    def _homes(self) -> Iterator[Path]:
        yield self._home
        folder = self._home / "profiles"
        if folder.is_dir():
            yield from sorted(f for f in folder.iterdir() if f.is_dir() and not f.is_symlink())

    def _files(self, home: Path) -> Iterator[Path]:
        for folder, inner, names in os.walk(home):
            here = Path(folder)
            top = here == home
            if top:
                inner[:] = [n for n in inner if n not in _LEFT_OUT and n != "profiles"]
            inner.sort()
            for name in [n for n in inner if self._private(n)]:
                inner.remove(name)
                self._stays(here / name)
            for name in sorted(names):
                if any(fnmatch(name, pattern) for pattern in _PASSING):
                    continue
                if self._private(name):
                    self._stays(here / name)
                else:
                    yield here / name

    def _private(self, name: str) -> bool:
        if self._secrets:
            return False
        return name in SECRET or any(fnmatch(name, pattern) for pattern in _SECRET_FILES)

    def _stays(self, path: Path) -> None:
        self.left_out.append(f"{path.relative_to(self._home)} holds secrets and is left out")

    async def _database(self, home: Path, prefix: str) -> None:
        from hermes.store.sqlite import SqliteStore

        run = home / "run"
        paths.make_private_folder(run)
        with tempfile.TemporaryDirectory(prefix="backup-", dir=run) as folder:
            copy = Path(folder) / "database"
            store = SqliteStore(paths.database_file(home))
            try:
                await store.maintenance.back_up(str(copy))
            finally:
                await store.close()
            self._add(copy, prefix + DATABASE)

    def _add(self, file: Path, name: str) -> None:
        try:
            handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            link = file.is_symlink()
            why = "is a link" if link else f"cannot be read ({error.strerror})"
            self.left_out.append(f"{name} {why} and is left out")
            return
        with os.fdopen(handle, "rb") as opened:
            about = os.fstat(opened.fileno())
            if not stat.S_ISREG(about.st_mode):
                return
            if file.name == "config.yaml" and not self._secrets:
                self._bytes(name, self._without_secrets(opened.read(), name))
                return
            info = tarfile.TarInfo(name)
            info.size, info.mtime = about.st_size, int(about.st_mtime)
            info.mode = 0o700 if about.st_mode & 0o100 else 0o600
            source = _Hashed(opened)
            self._tar.addfile(info, source)
        self.members[name] = info.size, source.digest.hexdigest()

    def _bytes(self, name: str, data: bytes) -> None:
        info = tarfile.TarInfo(name)
        info.size, info.mtime, info.mode = len(data), int(time.time()), 0o600
        self._tar.addfile(info, io.BytesIO(data))
        if name not in (HEADER, MANIFEST):
            self.members[name] = len(data), hashlib.sha256(data).hexdigest()

    def _without_secrets(self, source: bytes, name: str) -> bytes:
        """Secrets that stand in the file against advice."""
        from hermes.config.yaml_source import parse_yaml

        try:
            values = set(_plain_secrets(parse_yaml(source).data))
        except ConfigError:
            return source
        from hermes.core.text import counted

        for value in sorted(values, key=len, reverse=True):
            source = source.replace(value.encode(), REDACTED.encode())
        if values:
            self.left_out.append(f"{name} had {counted(len(values), 'secret')}, now {REDACTED}")
        return source


def _plain_secrets(value: Any, name: str = "") -> Iterator[str]:
    from hermes.config.secrets import is_secret_name

    match value:
        case dict():
            for key, item in value.items():
                yield from _plain_secrets(item, str(key))
        case list():
            for item in value:
                yield from _plain_secrets(item, name)
        case str() if (
            len(value) > 3 and is_secret_name(name) and not name.endswith(("_env", "_envs"))
        ):
            yield value


class _Hashed(io.RawIOBase):
    """A file that is read once, and its digest."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.digest = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self.digest.update(data)
        return data
