"""Writes a whole file, atomically."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from pathlib import Path

from msgspec import Struct

from hermes.core.errors import ToolError
from hermes.core.tool import ToolContext, ToolResult, tool
from hermes.tools._paths import check, is_regular, name_of, resolve


class Params(Struct, frozen=True):
    path: str
    content: str


def _key(p: Params, cwd: Path) -> str:
    return str(resolve(p.path, cwd))


@tool("Write a file, replacing it if it exists; creates folders.", risk="write", key=_key)
async def write_file(p: Params, ctx: ToolContext) -> ToolResult:
    path = resolve(p.path, ctx.cwd)
    _no_surprise(p.path, path, ctx.cwd)
    check(path, ctx, write=True)
    data = p.content.encode("utf-8", "replace")
    try:
        # In a thread whatever the size: a disk may take its time to sync.
        created = await asyncio.to_thread(_write, path, data, ctx)
    except OSError as error:
        raise ToolError(f"Cannot write {path}: {error.strerror}. Nothing was changed.") from None
    verb = "Created" if created else "Replaced"
    return ToolResult(f"{verb} {path} ({len(data)} bytes)", data={"created": created})


def _no_surprise(raw: str, path: Path, cwd: Path) -> None:
    """A link inside the working folder must not lead a write out of it unsaid."""
    root = os.path.realpath(cwd)
    written = Path(os.path.normpath(root / Path(raw).expanduser()))
    if written.is_relative_to(root) and not path.is_relative_to(root):
        raise ToolError(f"{written} leads through a link to {path}; if you mean that, write there.")


def _write(path: Path, data: bytes, ctx: ToolContext) -> bool:
    """Whether the file is new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        check(name_of(folder, path.parent) / path.name, ctx, write=True)
        old = _existing(path, folder)
        _replace(path.name, data, folder, old)
        os.fsync(folder)
        return old is None
    finally:
        os.close(folder)


def _existing(path: Path, folder: int) -> os.stat_result | None:
    try:
        old = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(old.st_mode):
        raise ToolError(f"{path} is a directory; give the path of a file.")
    if not is_regular(old):
        raise ToolError(f"{path} is a link, device, pipe or socket; it is not replaced.")
    if not os.access(path.name, os.W_OK, dir_fd=folder):
        raise ToolError(f"{path} is write-protected.")
    return old


def _replace(name: str, data: bytes, folder: int, old: os.stat_result | None) -> None:
    draft = f".{name[:80]}.{os.urandom(6).hex()}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(draft, flags, 0o666, dir_fd=folder)
    try:
        with os.fdopen(fd, "wb", buffering=0) as file:
            if old:
                with contextlib.suppress(PermissionError):
                    os.fchown(fd, old.st_uid, old.st_gid)
                os.fchmod(fd, stat.S_IMODE(old.st_mode))
            rest = memoryview(data)
            while rest:
                rest = rest[file.write(rest) :]
            os.fsync(fd)
        os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(draft, dir_fd=folder)
        raise
