"""The folder of a run: its frozen settings, its items, its database and what it writes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from hermes.batch.dataset import Dataset, decode_items
from hermes.batch.trajectories import Format
from hermes.config.private_files import open_lock, replace_file, try_lock, wait_for_lock
from hermes.core.errors import ConfigError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_LINK = "folder"
_LOCK_SECONDS = 2.0


class RunSettings(Struct, frozen=True):
    """What holds for every item. Frozen when the run begins; a resume may change the limits."""

    name: str
    dataset: str = ""
    """The digest of the items."""
    items: int = 0
    model: str = ""
    toolsets: tuple[str, ...] | None = None
    distribution: str = ""
    seed: int = 0
    max_turns: int = 30
    max_usd: float | None = None
    item_usd: float | None = None
    item_seconds: float = 1800.0
    rpm: int | None = None
    tpm: int | None = None
    retries: int = 2
    concurrency: int = 64
    processes: int = 1
    cluster: bool = False
    """Whether the nodes of the cluster answer the items."""
    system: str = ""
    prefill: str = ""
    """The path of the file with messages that come first."""
    image: str = ""
    formats: tuple[Format, ...] = ("hermes",)
    require_reasoning: bool = False
    record: bool = False
    """Whether the bytes of model calls are kept for replays."""
    hidden: tuple[str, ...] = ()
    """Real paths of what may hold solutions: no tool of an item may read them."""


class RunFolder:
    """Everything a run has is in one folder, private to its owner."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def database(self) -> Path:
        return self.path / "run.db"

    @property
    def rate_file(self) -> Path:
        """When the next model call of any process may start. It means nothing to a later run."""
        return self.path / "run.rate"

    @property
    def items_file(self) -> Path:
        """The items as they were when the run began: a resume does not need the dataset."""
        return self.path / "items.jsonl"

    def list_hidden(self, sources: Iterable[Path]) -> tuple[str, ...]:
        """The real paths of what items may not see: where the run comes from, and what it keeps."""
        files = (self.items_file, self.database, self.path / "run.db-wal")
        return tuple(map(os.path.realpath, (*sources, *files)))

    def trajectories_file(self, form: Format) -> Path:
        if form == "parquet":
            return self.path / "trajectories.parquet"
        return self.path / f"trajectories{'' if form == 'hermes' else f'.{form}'}.jsonl"

    def read_settings(self) -> RunSettings:
        try:
            return msgspec.json.decode((self.path / "run.json").read_bytes(), type=RunSettings)
        except (OSError, msgspec.DecodeError) as error:
            raise ConfigError(f"{self.path} is no run that can be read ({error}).") from None

    def write_settings(self, settings: RunSettings) -> None:
        body = msgspec.json.format(msgspec.json.encode(settings), indent=2)
        replace_file(self.path / "run.json", body)

    def read_items(self) -> Dataset:
        try:
            return decode_items(self.items_file.read_bytes())
        except (OSError, msgspec.DecodeError) as error:
            raise ConfigError(
                f"{self.items_file} cannot be read ({error}). The same `run` on the dataset writes "
                "it anew."
            ) from None

    @contextmanager
    def lock_run(self) -> Iterator[None]:
        """One runner at a time; ConfigError names the other. Who only looks, or begins the run at
        the same moment, has it for an instant."""
        handle = open_lock(self._lock_file)
        try:
            if not wait_for_lock(handle, _LOCK_SECONDS):
                pid = os.pread(handle, 20, 0).decode().strip()
                raise ConfigError(f"The run is going on already (pid {pid}).")
            os.ftruncate(handle, 0)
            os.pwrite(handle, str(os.getpid()).encode(), 0)
            yield
        finally:
            os.close(handle)

    def find_runner(self) -> int | None:
        """The process that works on the run."""
        if not self._lock_file.exists():
            return None
        handle = open_lock(self._lock_file)
        try:
            text = os.pread(handle, 20, 0).decode().strip()
            return None if try_lock(handle) or not text.isdigit() else int(text)
        finally:
            os.close(handle)

    @property
    def running_since(self) -> float | None:
        """When the process that works on the run began; None: there is none."""
        return self._lock_file.stat().st_mtime if self.find_runner() is not None else None

    @property
    def _lock_file(self) -> Path:
        return self.path / "run.lock"


def check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{name!r} cannot be the name of a run: use letters, digits, . _ -")
    return name


def create_run(home: Path, name: str, output: str) -> RunFolder:
    """The folder of a new run, or of the one that has this name."""
    place = home / "batch" / check_name(name)
    if not output:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        return RunFolder(_follow_link(place))
    target = Path(output).expanduser().absolute()
    if (place / "run.json").exists() or _follow_link(place) not in (place, target):
        raise ConfigError(f"The run {name} is in {_follow_link(place)}; use another --name.")
    try:
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        reason = f"{target} cannot hold a run: {error.strerror}"
        raise ConfigError(f"{reason}. Nothing was started.") from None
    folder = RunFolder(target)
    if (target / "run.json").exists() and (other := folder.read_settings().name) != name:
        raise ConfigError(f"{target} holds the run {other}. Nothing was started.")
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_file(place / _LINK, str(target).encode())
    return folder


def find_run(home: Path, name: str) -> RunFolder:
    """The run with this name. ConfigError when there is none."""
    place = home / "batch" / check_name(name)
    folder = RunFolder(_follow_link(place))
    if not (folder.path / "run.json").exists():
        raise ConfigError(f"There is no run {name}; hermes batch list shows them.")
    return folder


def list_runs(home: Path) -> list[RunFolder]:
    """All runs of this home, by name."""
    places = sorted((home / "batch").iterdir()) if (home / "batch").is_dir() else []
    found = [RunFolder(_follow_link(place)) for place in places]
    return [folder for folder in found if (folder.path / "run.json").exists()]


def _follow_link(place: Path) -> Path:
    with suppress(OSError):
        return Path((place / _LINK).read_text().strip())
    return place
