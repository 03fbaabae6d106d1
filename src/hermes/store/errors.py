"""Failures of SQLite and of the disk in words: what failed, what was lost, what to do."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from hermes.core.errors import StoreError

_KINDS = {
    "BusyError": "busy",
    "LockedError": "busy",
    "FullError": "full",
    "ReadOnlyError": "readonly",
    "PermissionsError": "readonly",
    "AuthError": "readonly",
    "CantOpenError": "unopened",
    "CorruptError": "damaged",
    "NotADBError": "damaged",
    "TooBigError": "too_big",
    "UnicodeDecodeError": "damaged",
}
_ERRNOS = {
    errno.ENOSPC: "full",
    errno.EDQUOT: "full",
    errno.EFBIG: "full",
    errno.ETIMEDOUT: "busy",
    errno.EROFS: "readonly",
    errno.EACCES: "readonly",
    errno.EPERM: "readonly",
}
_LONGEST = 300
_SENTENCES = {
    "busy": "The session database is busy: another process has kept it locked for 5 seconds. "
    "This was not saved; earlier messages are safe. Try again, or end the other process.",
    "full": "The disk is full: {path} could not grow. This was not saved; earlier messages are "
    "safe. Free some space and try again.",
    "readonly": "{path} cannot be written by this user ({detail}). Nothing was lost. Make its "
    "folder writable, or set HERMES_HOME to one that is.",
    "unopened": "{path} cannot be opened ({detail}). Nothing was lost. Check the folder and its "
    "permissions, or set HERMES_HOME to another one.",
    "damaged": "The session database {path} is damaged ({detail}). It was left as it is. `hermes "
    "doctor --fix` saves what can be read of it and keeps the file; or restore a backup.",
    "too_big": "A message is too large for the session database. It was not saved; earlier "
    "messages are safe.",
    "io": "The disk failed while reading or writing {path} ({detail}). This may not have been "
    "saved; earlier messages are safe. Check the disk, then try again.",
}


def explain(error: Exception, path: Path, system_errno: int = 0) -> StoreError:
    """`error` is an apsw.Error, an OSError, a text that is none, or a StoreError already."""
    if isinstance(error, StoreError):
        return error
    name = type(error).__name__
    detail = str(error)
    if isinstance(error, OSError) and error.errno:
        kind = _ERRNOS.get(error.errno, "io")
        detail = error.strerror or detail
    else:
        kind = _KINDS.get(name, "io")
        if kind in ("io", "unopened"):
            kind = _ERRNOS.get(system_errno, kind)
        if kind == "unopened" and not _writable(path):
            kind, detail = "readonly", "read-only"
    return fault(kind, path, detail or name)


def fault(kind: str, path: Path, detail: str = "") -> StoreError:
    room = _LONGEST - len(_SENTENCES[kind].format(path=_short(path), detail=""))
    text = _SENTENCES[kind].format(path=_short(path), detail=detail[: max(0, min(room, 80))])
    return StoreError(text, {"unopened": "io", "too_big": "io"}.get(kind, kind))


def newer(path: Path, found: int, known: int) -> StoreError:
    return StoreError(
        f"The session database {_short(path)} was made by a newer Hermes (schema {found}, this "
        f"one knows {known}). It was left as it is; nothing was lost. Update Hermes to use it.",
        "newer",
    )


def foreign(path: Path) -> StoreError:
    return StoreError(
        f"{_short(path)} is a database of another program. It was left as it is; nothing was "
        "lost. Move it away, or set HERMES_HOME to another folder.",
        "foreign",
    )


def in_use(session_id: str) -> StoreError:
    return StoreError(
        f"Session {session_id} is in use by another process. Nothing was saved or lost. "
        "Wait for its turn to end, or end that process.",
        "in_use",
    )


def missing(session_id: str) -> StoreError:
    return StoreError(f"There is no session {session_id}; nothing was saved.", "missing")


def exists(session_id: str) -> StoreError:
    return StoreError(f"Session {session_id} exists already; it was left as it is.", "exists")


def _writable(path: Path) -> bool:
    return os.access(path.parent, os.W_OK) and (not path.exists() or os.access(path, os.W_OK))


def _short(path: Path) -> str:
    text = str(path)
    return text if len(text) <= 90 else "…" + text[-89:]
