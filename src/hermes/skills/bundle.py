"""The files of a skill before they are trusted: read from folders, archives and git, in bounds."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
import os
import stat
import subprocess
import tarfile
import tempfile
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from msgspec import Struct

from hermes.config.env import get_environment
from hermes.core.errors import ConfigError
from hermes.core.untrusted_text import reveal_hidden

MAX_FILES = 200
MAX_FILE_BYTES = 1 << 20
MAX_BYTES = 5 << 20
_MAX_RATIO = 100
_MAX_PACKED = 20 << 20
_MAX_PART = 255
"""Bytes of a file's or a folder's name that file systems take."""
_SKIPPED = frozenset({".git", "__pycache__", ".DS_Store"})
_GIT_SECONDS = 300


class SkillBundle(Struct, frozen=True):
    """A skill that was fetched: its files by their relative names, and where they came from."""

    name: str
    files: dict[str, bytes]
    source: str
    commit: str = ""

    @property
    def digest(self) -> str:
        return hash_files(self.files)


class BundleKind(Struct, frozen=True):
    """What is installed: skills, or something else that comes as a folder."""

    noun: str
    marker: str
    """The file that makes a folder one of them."""
    validate: Callable[[Path], Sequence[str]]
    """What is wrong with a folder."""
    find_name: Callable[[Mapping[str, bytes], str, str], str]
    """Its name, by its files, the name of its folder, and that of the archive or repository that
    holds it without a folder."""
    is_taken: Callable[[str], bool] = lambda name: False
    """Whether a new one of this name would be taken for another one."""
    find_path: Callable[[Path, str], Path | None] = lambda folder, name: (
        folder / name if (folder / name).exists() else None
    )
    """Where the one of this name is below a folder."""


class BundleRefused(ConfigError):
    """The files cannot be anything that is safe to look at."""


def hash_files(files: dict[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name, data in sorted(files.items()):
        digest.update(f"{len(name.encode())} {name} {len(data)} ".encode())
        digest.update(data)
    return digest.hexdigest()


class _Collector:
    """Takes files one by one and refuses what no skill needs."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self._size = 0
        self._spelled: dict[str, str] = {}
        """How each file and folder is written, by what names have in common that differ by case."""

    def check_name(self, name: str) -> str:
        """The name without what is harmless in it."""
        path = PurePosixPath(name.replace("\\", "/"))
        is_drive = PureWindowsPath(name).drive != ""
        if path.is_absolute() or is_drive or ".." in path.parts or "\0" in name:
            raise BundleRefused(f"{name!r} leads out of its folder; nothing was installed.")
        is_usable = path.parts and len(name) <= 300 and name.splitlines() == [name]
        if not is_usable or any(_is_too_long(part) for part in path.parts):
            raise BundleRefused(f"{name[:60]!r} is no usable file name; nothing was installed.")
        if reveal_hidden(name) != name:
            shown = reveal_hidden(name)[:60]
            raise BundleRefused(f"{shown!r} has hidden characters; nothing was installed.")
        return str(path)

    def add(self, name: str, data: bytes) -> None:
        path = self.check_name(name)
        if any(part in _SKIPPED for part in PurePosixPath(path).parts):
            return
        self._take_place(PurePosixPath(path).parts)
        self._size += len(data)
        if len(data) > MAX_FILE_BYTES:
            raise BundleRefused(f"{path} is larger than 1 MB; nothing was installed.")
        if self._size > MAX_BYTES:
            raise BundleRefused("It is larger than 5 MB; nothing was installed.")
        if len(self.files) == MAX_FILES:
            raise BundleRefused(f"It has more than {MAX_FILES} files; nothing was installed.")
        self.files[path] = data

    def _take_place(self, parts: Sequence[str]) -> None:
        """Refuse a file that would be in the place of another one, here or on other systems."""
        for count in range(1, len(parts) + 1):
            path = "/".join(parts[:count])
            folded = unicodedata.normalize("NFC", path).casefold()
            is_taken = folded in self._spelled
            if self._spelled.setdefault(folded, path) != path:
                raise BundleRefused(
                    f"Two files are named {path!r} but for case; nothing was installed."
                )
            if is_taken if count == len(parts) else path in self.files:
                raise BundleRefused(f"{path!r} is there twice; nothing was installed.")


def _is_too_long(part: str) -> bool:
    """Whether it is longer than names may be, or is no text."""
    try:
        return len(part.encode()) > _MAX_PART
    except UnicodeEncodeError:
        return True


def read_folder(folder: Path) -> dict[str, bytes]:
    """The files below a folder; links and other special files are refused."""
    folder = folder.resolve()
    taken = _Collector()
    for path in _walk_files(folder):
        name = path.relative_to(folder).as_posix()
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            taken.add(name, file.read(MAX_FILE_BYTES + 1))
    return taken.files


def _walk_files(folder: Path) -> Iterator[Path]:
    for count, path in enumerate(sorted(folder.rglob("*"))):
        if any(part in _SKIPPED for part in path.relative_to(folder).parts):
            continue
        mode = path.lstat().st_mode
        if stat.S_ISDIR(mode):
            continue
        if not stat.S_ISREG(mode):
            raise BundleRefused(f"{path.name} is a link or a special file; nothing was installed.")
        if count > MAX_FILES * 20:
            raise BundleRefused(f"It has more than {MAX_FILES} files; nothing was installed.")
        yield path


def read_archive(data: bytes) -> dict[str, bytes]:
    """The files of a zip or tar archive."""
    if len(data) > _MAX_PACKED:
        raise BundleRefused("The archive is larger than 20 MB; nothing was installed.")
    try:
        if zipfile.is_zipfile(io.BytesIO(data)):
            return _read_zip(data)
        return _read_tar(data)
    except (*_DAMAGED, EOFError, OSError, ValueError, RuntimeError):
        raise BundleRefused("It is no zip or tar archive that can be read.") from None


_DAMAGED = (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError)


def _read_zip(data: bytes) -> dict[str, bytes]:
    taken = _Collector()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        infos = [info for info in archive.infolist() if not info.is_dir()]
        if len(infos) > MAX_FILES:
            raise BundleRefused(f"The archive has more than {MAX_FILES} files.")
        for info in infos:
            kind = stat.S_IFMT(info.external_attr >> 16)
            if kind not in (0, stat.S_IFREG):
                raise BundleRefused(f"{info.filename} is a link; nothing was installed.")
            if info.file_size > _MAX_RATIO * max(1, info.compress_size) or info.flag_bits & 1:
                raise BundleRefused(f"{info.filename} is packed too tightly or encrypted.")
            with archive.open(info) as file:
                taken.add(info.filename, file.read(MAX_FILE_BYTES + 1))
    return taken.files


def _unpack(data: bytes) -> bytes:
    """A tar archive without its compression, read up to a bound: what its headers say about sizes
    is believed only after that."""
    found = [opened for magic, opened in _COMPRESSIONS if data.startswith(magic)]
    if not found:
        return data
    limit = min(_MAX_RATIO * max(len(data), 1024), 2 * MAX_BYTES) + _HEADER_BYTES
    with found[0](io.BytesIO(data)) as stream:
        unpacked: bytes = stream.read(limit + 1)
    if len(unpacked) > limit:
        raise BundleRefused("The archive unpacks to too much; nothing was installed.")
    return unpacked


_COMPRESSIONS: tuple[tuple[bytes, Callable[[io.BytesIO], Any]], ...] = (
    (b"\x1f\x8b", gzip.open),
    (b"BZh", bz2.open),
    (b"\xfd7zXZ\0", lzma.open),
)
_HEADER_BYTES = 4 * MAX_FILES * 1024
"""What a tar archive has beside the contents of its files, each padded to blocks."""


def _read_tar(data: bytes) -> dict[str, bytes]:
    taken = _Collector()
    limit = min(_MAX_RATIO * max(len(data), 1024), 2 * MAX_BYTES)
    with tarfile.open(fileobj=io.BytesIO(_unpack(data)), mode="r:") as archive:
        size = count = 0
        for member in archive:
            size, count = size + member.size, count + 1
            if size > limit or count > 4 * MAX_FILES:
                raise BundleRefused("The archive unpacks to too much; nothing was installed.")
            taken.check_name(member.name)
            if member.isdir():
                continue
            if not member.isreg():
                raise BundleRefused(f"{member.name} is a link; nothing was installed.")
            file = archive.extractfile(member)
            assert file is not None
            taken.add(member.name, file.read(MAX_FILE_BYTES + 1))
    return taken.files


def read_repository(address: str, ref: str, path: str = "") -> tuple[dict[str, bytes], str]:
    """The files of a git repository, or of a folder in it, and the commit they are from. Nothing is
    checked out, so no hook, filter or submodule runs."""
    with tempfile.TemporaryDirectory(prefix="hermes-skill-") as folder:
        command = ["clone", "--quiet", "--bare", "--template=", "--no-tags"]
        if not ref or not _is_commit(ref):
            command += ["--depth=1", *(["--branch", ref] if ref else [])]
        _run_git(*command, "--", address, folder)
        wanted = ref if _is_commit(ref) else "HEAD"
        commit = _run_git("-C", folder, "rev-parse", "--verify", f"{wanted}^{{commit}}")
        name = commit.decode().strip()
        within = ["--", f"{path.strip('/')}/"] if path.strip("/") else []
        found = _run_git("-C", folder, "ls-tree", "-r", "-z", "--long", name, *within)
        listing = found.split(b"\0")
        rows = [row.split(b"\t", 1) for row in listing if row]
        if len(rows) > 50 * MAX_FILES:
            raise BundleRefused("The repository has too many files; name a folder in it.")
        blobs: dict[str, bytes] = {}
        for about, raw in rows:
            mode, kind, blob, size = about.split()
            file = raw.decode("utf-8", "replace")
            if kind != b"blob" or mode == b"120000":
                blobs[file] = _LINK
            else:
                blobs[file] = blob if int(size) <= MAX_FILE_BYTES else _LARGE
        return _load_blobs(folder, blobs), name


_LINK, _LARGE = b"\0link", b"\0large"


def _load_blobs(folder: str, blobs: dict[str, bytes]) -> dict[str, bytes]:
    """The listing with the contents of small files; links and large files stay marked."""
    files, total = {}, 0
    for path, blob in blobs.items():
        if blob in (_LINK, _LARGE):
            files[path] = blob
            continue
        data = _run_git("-C", folder, "cat-file", "blob", blob.decode())
        total += len(data)
        if total > 20 * MAX_BYTES:
            raise BundleRefused("The repository is too large; name a folder in it.")
        files[path] = data
    return files


def _is_commit(ref: str) -> bool:
    return len(ref) == 40 and all(char in "0123456789abcdef" for char in ref)


def _run_git(*words: str) -> bytes:
    environ = get_environment()
    env = {name: environ[name] for name in ("PATH", "HOME", "SSH_AUTH_SOCK") if name in environ}
    env |= {
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ALLOW_PROTOCOL": "https:file:ssh",
        "GIT_LFS_SKIP_SMUDGE": "1",
        "GIT_LITERAL_PATHSPECS": "1",
    }
    settings = ("-c", f"core.hooksPath={os.devnull}", "-c", "core.fsmonitor=false")
    try:
        ran = subprocess.run(
            ["git", *settings, *words],
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_GIT_SECONDS,
            check=False,
        )
    except FileNotFoundError:
        raise ConfigError(
            "git is not installed; install it, or give a folder or archive."
        ) from None
    except subprocess.TimeoutExpired:
        raise ConfigError("git did not answer in time; nothing was installed.") from None
    if ran.returncode:
        lines = ran.stderr.decode("utf-8", "replace").strip().splitlines() or ["no reason given"]
        raise ConfigError(f"git could not fetch it: {lines[-1][:200]}. Nothing was installed.")
    return ran.stdout


def pick_bundle(
    kind: BundleKind,
    files: dict[str, bytes],
    path: str,
    source: str,
    *,
    folder: str = "",
    holder: str = "",
) -> SkillBundle:
    """The only one of this kind among these files, or the one at `path`. They are from a folder, or
    from an archive or repository, the `holder`."""
    tops = sorted(
        name.removesuffix(kind.marker).rstrip("/")
        for name in files
        if PurePosixPath(name).name == kind.marker
    )
    wanted = [top for top in tops if top == path.strip("/")] if path else tops
    if not wanted:
        where = path or source
        raise BundleRefused(f"There is no {kind.marker} in {where}; nothing was installed.")
    if len(wanted) > 1 and "" not in wanted:
        shown = ", ".join(wanted[:20])
        raise BundleRefused(f"{source} has several {kind.noun}s; choose one with #PATH: {shown}.")
    top = "" if "" in wanted else wanted[0]
    taken = _Collector()
    for name, data in files.items():
        if top and not name.startswith(f"{top}/"):
            continue
        inner = name[len(top) + 1 :] if top else name
        if data in (_LINK, _LARGE):
            what = "a link or submodule" if data == _LINK else "larger than 1 MB"
            raise BundleRefused(f"{name} is {what}; nothing was installed.")
        taken.add(inner, data)
    name = kind.find_name(taken.files, PurePosixPath(top).name or folder, holder)
    if not name or name.startswith(".") or PurePosixPath(name).name != name:
        raise BundleRefused(f"{name!r} cannot be the name of a {kind.noun}; nothing was installed.")
    return SkillBundle(name, taken.files, source)
