"""What processes that were killed left behind, and what `--fix` does about it."""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from hermes.config import paths
from hermes.config.instances import alive, left_over

_OLD = 600.0
"""Seconds after which a temporary file is nobody's any more."""
_LOCK = re.compile(r"[0-9a-f]{32}\.lock")
_PASSING = (".*.tmp", ".*.new", "*.new", ".*.part", "cache/.*.tmp", "cache/.*.new")
_FOLDERS = (".import-*", "run/backup-*", "profiles/.*.deleted")
_ENGINE = "hermes-model-"


def leftovers(home: Path) -> list[Path]:
    """Locks nobody holds, sockets nobody listens on, and half-made files."""
    return sorted({*_locks(home), *_passing(home), *_sockets(home), *left_over(home)})


def _locks(home: Path) -> Iterator[Path]:
    for file in (home / "run").glob("*.lock"):
        if _LOCK.fullmatch(file.name) and not alive(file):
            yield file


def _passing(home: Path) -> Iterator[Path]:
    for pattern in (*_PASSING, *_FOLDERS):
        for path in home.glob(pattern):
            if _old(path):
                yield path


def _old(path: Path) -> bool:
    try:
        return time.time() - path.lstat().st_mtime > _OLD
    except OSError:
        return False


def _sockets(home: Path) -> Iterator[Path]:
    """Folders named after a process that is gone, and those of models nobody runs."""
    for folder in (home / "run" / "ssh").glob("*-*"):
        number = folder.name.partition("-")[0]
        if number.isdecimal() and not _lives(int(number)) and _old(folder):
            yield folder
    for folder in Path(tempfile.gettempdir()).glob(f"{_ENGINE}*"):
        about = folder.lstat()
        ours = stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid()
        if ours and _old(folder) and not _listens(folder / "model.sock"):
            yield folder


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # somebody else's
    return True


def _listens(socket_file: Path) -> bool:
    import socket

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(0.2)
        try:
            probe.connect(str(socket_file))
        except OSError:
            return False
    return True


def mend(home: Path) -> list[str]:
    """Remove what is left over, close what is open to others. What was done, a line each."""
    from hermes.cli.doctor.home import exposed

    done = []
    for path in leftovers(home):
        try:
            _remove(path)
        except OSError as error:
            done.append(f"{path} could not be removed: {error.strerror}")
        else:
            done.append(f"{path} removed")
    for path in exposed(home):
        mode = stat.S_IMODE(path.lstat().st_mode)
        try:
            path.chmod(mode & 0o700)
        except OSError as error:
            done.append(f"{path} could not be closed: {error.strerror}")
        else:
            done.append(f"{path}: {mode:04o} is now {mode & 0o700:04o}")
    from hermes.exec.process.background_records import remove_old

    remove_old(home / "processes")
    return done


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def mended_home(home: Path) -> list[str]:
    """Before anything is read: a home that is open is closed by making sure of it."""
    return [*paths.make_home(home), *mend(home)]
