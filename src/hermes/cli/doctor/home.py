"""The home: its configuration, permissions, database, disk and what was left behind in it."""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from hermes.cli.doctor.check import Check
from hermes.cli.doctor.leftovers import leftovers
from hermes.config import paths
from hermes.config.load import Setup, read_source
from hermes.core.errors import ConfigError, HermesError, StoreError
from hermes.core.text import counted

if TYPE_CHECKING:
    from hermes.store.sqlite import SqliteStore

_LEAST = 100 * 2**20
_LITTLE = 2**30
_SHOWN = 20
_HOUR = 3600.0


def unreadable(home: Path, error: ConfigError) -> Check:
    """What is wrong with config.yaml, all of it, each with its line."""
    from hermes.config.validate import validate_config
    from hermes.config.yaml_source import parse_yaml

    details: tuple[str, ...] = ()
    try:
        problems = validate_config(parse_yaml(read_source(home) or b"")).problems
        details = tuple(f"config.yaml {problem}" for problem in problems[:_SHOWN])
    except ConfigError:
        pass  # not even YAML: the error says where
    return Check("configuration", "failed", str(error), details if len(details) > 1 else ())


def configuration(setup: Setup) -> Check:
    from hermes.cli.commands.tools import unknown_words
    from hermes.config.validate import validate_config
    from hermes.config.yaml_source import parse_yaml
    from hermes.tools.registry import unknown

    file = paths.config_file(setup.home)
    source = read_source(setup.home)
    if source is None:
        return Check("configuration", "ok", f"{file} does not exist; the defaults apply")
    notes = [f"config.yaml {note}" for note in validate_config(parse_yaml(source)).notes]
    notes += [f"tools: {unknown(word)}" for word in unknown_words(setup.config.tools)]
    return Check("configuration", "note" if notes else "ok", f"{file} is valid", tuple(notes))


def permissions(home: Path, mended: tuple[str, ...]) -> Check:
    """`mended` is what reading the configuration has closed already."""
    try:
        found = [
            *(f"{path} is open to other users ({_mode(path):04o})" for path in exposed(home)),
            *(f"{path} belongs to somebody else" for path in _foreign(home)),
        ]
    except OSError as error:
        return Check("home", "failed", f"{home} cannot be read: {error.strerror}", mended)
    if not os.access(home, os.W_OK):
        return Check("home", "failed", f"{home} is not writable", (*mended, *found))
    if found:
        text = f"{home} is not private; hermes doctor --fix closes it"
        return Check("home", "note", text, (*mended, *found[:_SHOWN]))
    return Check("home", "note" if mended else "ok", f"{home} is yours alone", mended)


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def exposed(home: Path) -> list[Path]:
    """What other users could read, were it not for the folder around it."""
    return [path for path in _private(home) if _mode(path) & 0o077]


def _foreign(home: Path) -> list[Path]:
    return [path for path in _private(home) if path.lstat().st_uid != os.geteuid()]


def _private(home: Path) -> Iterator[Path]:
    yield home
    for folder in (home, home / "logs", home / "logins", home / "run", home / "cache"):
        if folder.is_dir():
            inside = sorted(folder.iterdir())
            yield from (p for p in inside if not p.is_symlink() and p.name != "models")


async def sessions(home: Path) -> Check:
    file = paths.database_file(home)
    if not file.exists():
        return Check("sessions", "ok", "none yet")
    from hermes.store.sqlite import SqliteStore

    store = SqliteStore(file)
    try:
        told = await store.wait_until_open()
        wrong = await store.maintenance.check_integrity()
    except HermesError as error:
        return Check("sessions", "failed", str(error))
    finally:
        await store.close()
    if wrong:
        return Check("sessions", "failed", f"{file} is damaged", tuple(wrong[:_SHOWN]))
    size = file.stat().st_size
    text = f"{file} is sound ({size / 2**20:.1f} MB)"
    return Check("sessions", "note" if told else "ok", text, told)


async def _damaged(store: SqliteStore) -> bool:
    try:
        return bool(await store.maintenance.check_integrity())
    except StoreError as error:
        return error.code == "damaged"


async def saved(home: Path) -> list[Check]:
    """A damaged database replaced by what can be read of it; nothing where there is none."""
    file = paths.database_file(home)
    if not file.exists():
        return []
    from hermes.store.sqlite import SqliteStore

    store = SqliteStore(file)
    try:
        if not await _damaged(store):
            return []
        got = await store.maintenance.salvage()
    except HermesError as error:
        return [Check("sessions", "failed", str(error))]
    finally:
        await store.close()
    missing = f"; {counted(got.lost, 'message')} of them could not be read" if got.lost else ""
    text = f"{counted(got.sessions, 'session')} with {counted(got.messages, 'message')} saved"
    kept = f"the damaged file is {got.damaged_file}; a backup may have more (hermes import)"
    return [Check("sessions", "note", text + missing, (kept,))]


def disk(home: Path) -> Check:
    free = shutil.disk_usage(home).free
    text = f"{free / 1e9:.1f} GB free where {home} is"
    if free < _LEAST:
        return Check("disk", "failed", f"{text}; conversations may soon not be stored")
    return Check("disk", "note" if free < _LITTLE else "ok", text)


def clock(home: Path) -> Check:
    """By the files here: none was written in the future, and none before this program was."""
    now = time.time()
    text = time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(now))
    files = [p for p in (paths.database_file(home), paths.config_file(home), home) if p.exists()]
    newest = max((p.stat().st_mtime for p in files), default=0.0)
    made = Path(__file__).stat().st_mtime
    if newest > now + _HOUR:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(newest))
        return Check("clock", "note", f"{text}, but files here were written on {when}")
    if now < made - 86400:
        return Check("clock", "failed", f"{text} is before this program was installed: set it")
    return Check("clock", "ok", text)


def remains(home: Path) -> Check:
    found = leftovers(home)
    if not found:
        return Check("leftovers", "ok", "nothing of ended processes is left")
    text = f"{len(found)} left by ended processes; hermes doctor --fix removes them"
    return Check("leftovers", "note", text, tuple(str(path) for path in found[:_SHOWN]))
