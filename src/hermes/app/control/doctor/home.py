"""Checks of the home: configuration, permissions, database, disk, clock, and leftover files."""

import os
import re
import shutil
import socket
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import hermes.app  # noqa: F401 - adds the tools of other packages
from hermes.app.control.doctor.check import Check
from hermes.config import paths
from hermes.config.instances import is_locked, list_stale_files
from hermes.config.load import Setup, read_source
from hermes.config.validate import validate_config
from hermes.config.yaml_source import parse_yaml
from hermes.core.errors import ConfigError, HermesError, StoreError
from hermes.core.text import format_plural
from hermes.exec.process.background_records import remove_old
from hermes.store.sqlite import SqliteStore
from hermes.tools.registry import describe_unknown_name, list_unknown_names

_MIN_FREE_BYTES = 100 * 2**20
_LOW_FREE_BYTES = 2**30
_LISTED = 20
_HOUR = 3600.0


def describe_broken_config(home: Path, error: ConfigError) -> Check:
    """Every problem of config.yaml, each with its line."""
    details: tuple[str, ...] = ()
    try:
        problems = validate_config(parse_yaml(read_source(home) or b"")).problems
        details = tuple(f"config.yaml {problem}" for problem in problems[:_LISTED])
    except ConfigError:
        pass  # not even YAML: the error says where
    return Check("configuration", "failed", str(error), details if len(details) > 1 else ())


def check_configuration(setup: Setup) -> Check:
    file = paths.config_file(setup.home)
    source = read_source(setup.home)
    if source is None:
        return Check("configuration", "ok", f"{file} does not exist; the defaults apply")
    notes = [f"config.yaml {note}" for note in validate_config(parse_yaml(source)).notes]
    unknown = list_unknown_names(setup.config.tools)
    notes += [f"tools: {describe_unknown_name(word)}" for word in unknown]
    return Check("configuration", "note" if notes else "ok", f"{file} is valid", tuple(notes))


def check_permissions(home: Path, repaired: tuple[str, ...]) -> Check:
    """`repaired` says what reading the configuration has already made private."""
    try:
        exposed = [(path, _file_mode(path)) for path in list_exposed_files(home)]
        found = [f"{path} is open to other users ({mode:04o})" for path, mode in exposed]
        foreign = [p for p in _list_private(home) if p.lstat().st_uid != os.geteuid()]
        found += [f"{path} belongs to somebody else" for path in foreign]
    except OSError as error:
        return Check("home", "failed", f"{home} cannot be read: {error.strerror}", repaired)
    if not os.access(home, os.W_OK):
        return Check("home", "failed", f"{home} is not writable", (*repaired, *found))
    if found:
        text = f"{home} is not private; to repair it, run: hermes doctor --fix"
        return Check("home", "note", text, (*repaired, *found[:_LISTED]))
    return Check("home", "note" if repaired else "ok", f"{home} is private (0700)", repaired)


def _file_mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def list_exposed_files(home: Path) -> list[Path]:
    """Files that other users could read, were it not for the folder around them."""
    return [path for path in _list_private(home) if _file_mode(path) & 0o077]


def _list_private(home: Path) -> Iterator[Path]:
    yield home
    for folder in (home, home / "logs", home / "logins", home / "run", home / "cache"):
        if folder.is_dir():
            inside = sorted(folder.iterdir())
            yield from (p for p in inside if not p.is_symlink() and p.name != "models")


async def check_sessions(home: Path) -> Check:
    file = paths.database_file(home)
    if not file.exists():
        return Check("sessions", "ok", "none yet")
    store = SqliteStore(file)
    try:
        notices = await store.wait_until_open()
        problems = await store.maintenance.check_integrity()
        problems = problems or await store.maintenance.list_unreadable()
    except HermesError as error:
        return Check("sessions", "failed", str(error))
    finally:
        await store.close()
    if problems:
        text = f"{file} is damaged; to keep what can be read, run: hermes doctor --fix"
        return Check("sessions", "failed", text, tuple(problems[:_LISTED]))
    size = file.stat().st_size
    text = f"database OK ({file}, {size / 2**20:.1f} MB)"
    return Check("sessions", "note" if notices else "ok", text, notices)


async def _has_damage(store: SqliteStore) -> bool:
    try:
        if await store.maintenance.check_integrity():
            return True
        return bool(await store.maintenance.list_unreadable())
    except StoreError as error:
        return error.code == "damaged"


async def salvage_sessions(home: Path) -> list[Check]:
    """Replaces a damaged database by what can be read of it; does nothing to an intact one."""
    file = paths.database_file(home)
    if not file.exists():
        return []
    store = SqliteStore(file)
    try:
        if not await _has_damage(store):
            return []
        salvaged = await store.maintenance.salvage()
    except HermesError as error:
        return [Check("sessions", "failed", str(error))]
    finally:
        await store.close()
    file = salvaged.damaged_file
    kept = f"the damaged file is kept as {file}; a backup may hold more (hermes import)"
    return [Check("sessions", "note", salvaged.summary, (kept,))]


def check_disk(home: Path) -> Check:
    free = shutil.disk_usage(home).free
    text = f"{free / 1e9:.1f} GB free in {home}"
    if free < _MIN_FREE_BYTES:
        return Check("disk", "failed", f"{text}; soon conversations can no longer be stored")
    return Check("disk", "note" if free < _LOW_FREE_BYTES else "ok", text)


def check_clock(home: Path) -> Check:
    """Compares the clock with the times of files: of the home, and of this program."""
    now = time.time()
    text = time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(now))
    files = [p for p in (paths.database_file(home), paths.config_file(home), home) if p.exists()]
    newest = max((p.stat().st_mtime for p in files), default=0.0)
    installed = Path(__file__).stat().st_mtime
    if newest > now + _HOUR:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(newest))
        return Check("clock", "note", f"{text}, but files in the home were written on {when}")
    if now < installed - 86400:
        text += " is before this program was installed; set the clock"
        return Check("clock", "failed", text)
    return Check("clock", "ok", text)


def check_leftovers(home: Path) -> Check:
    found = list_leftovers(home)
    if not found:
        return Check("leftovers", "ok", "none")
    text = f"{len(found)} left by killed processes; to remove them, run: hermes doctor --fix"
    return Check("leftovers", "note", text, tuple(str(path) for path in found[:_LISTED]))


_STALE_SECONDS = 600.0
"""After which a temporary file is abandoned."""
_LOCK_NAME = re.compile(r"[0-9a-f]{32}\.lock")
_TEMPORARY = (
    ".*.tmp .*.new *.new .*.part cache/.*.tmp cache/.*.new .import-* run/backup-* "
    "profiles/.*.deleted"
).split()
_ENGINE_PREFIX = "hermes-model-"


def list_leftovers(home: Path) -> list[Path]:
    """Locks nobody holds, sockets nobody listens on, and unfinished files."""
    locks = [file for file in home.glob("run/*.lock") if _LOCK_NAME.fullmatch(file.name)]
    stale = [path for pattern in _TEMPORARY for path in home.glob(pattern) if _is_stale(path)]
    free = [file for file in locks if not is_locked(file)]
    return sorted({*free, *stale, *_stale_sockets(home), *list_stale_files(home)})


def _is_stale(path: Path) -> bool:
    try:
        return time.time() - path.lstat().st_mtime > _STALE_SECONDS
    except OSError:
        return False


def _stale_sockets(home: Path) -> Iterator[Path]:
    """Folders named after a process that has ended, and those of models that do not run."""
    for folder in (home / "run" / "ssh").glob("*-*"):
        number = folder.name.partition("-")[0]
        if number.isdecimal() and not _is_alive(int(number)) and _is_stale(folder):
            yield folder
    for folder in Path(tempfile.gettempdir()).glob(f"{_ENGINE_PREFIX}*"):
        about = folder.lstat()
        ours = stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid()
        if ours and _is_stale(folder) and not _is_listening(folder / "model.sock"):
            yield folder


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError as error:
        return not isinstance(error, ProcessLookupError)  # another user's is alive
    return True


def _is_listening(socket_file: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(0.2)
        try:
            probe.connect(str(socket_file))
        except OSError:
            return False
    return True


def repair_home(home: Path) -> Check:
    """Makes the home private and removes leftovers; the details are a line for each thing done."""
    done = list(paths.make_home(home))
    for path in list_leftovers(home):
        try:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
            done.append(f"removed {path}")
        except OSError as error:
            done.append(f"could not remove {path}: {error.strerror}")
    for path in list_exposed_files(home):
        mode = _file_mode(path)
        try:
            path.chmod(mode & 0o700)
            done.append(f"{path}: {mode:04o} changed to {mode & 0o700:04o}")
        except OSError as error:
            done.append(f"could not make {path} private: {error.strerror}")
    remove_old(home / "processes")
    text = format_plural(len(done), "change") if done else "nothing to repair"
    return Check("mended", "ok", text, tuple(done))
