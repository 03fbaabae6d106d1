"""Failures of SQLite and of the disk as sentences: what failed, what was lost, what to do."""

import errno
import os
from pathlib import Path

from hermes.core.errors import StoreError

_KINDS = {
    **dict.fromkeys(("BusyError", "LockedError"), "busy"),
    "FullError": "full",
    **dict.fromkeys(("ReadOnlyError", "PermissionsError", "AuthError"), "readonly"),
    "CantOpenError": "unopened",
    **dict.fromkeys(("CorruptError", "NotADBError", "UnicodeDecodeError"), "damaged"),
    "TooBigError": "too_big",
}
_ERRNOS = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "full"),
    errno.ETIMEDOUT: "busy",
    **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), "readonly"),
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), "files"),
}
_MAX_LENGTH = 300
_FILES_OF_DATABASE = 8
"""That a reader and a writer need together."""
_SENTENCES = {
    "busy": "The session database is busy: another process has kept it locked for 5 seconds. "
    "This was not saved; earlier messages are safe. Try again, or end the other process.",
    "full": "The disk is full: {path} could not grow. This was not saved; earlier messages are "
    "safe. Free some space and try again.",
    "readonly": "{path} cannot be written by this user ({detail}). Nothing was lost. Make its "
    "folder writable, or set HERMES_HOME to one that is.",
    "files": "Too many files are open: {path} could not be opened. This was not saved; earlier "
    "messages are safe. End other work, or raise the limit (ulimit -n), and try again.",
    "gone": "The session database {path} was removed or replaced while Hermes was running. This "
    "was not saved. Put the file back, or start Hermes again to begin a new one.",
    "unopened": "{path} cannot be opened ({detail}). Nothing was lost. Check the folder and its "
    "permissions, or set HERMES_HOME to another one.",
    "damaged": "The session database {path} is damaged ({detail}). It was left as it is. `hermes "
    "doctor --fix` saves whatever can be read and keeps the file; or restore a backup.",
    "newer": "The session database {path} was made by a newer Hermes ({detail}). It was not "
    "changed; nothing was lost. Update Hermes to use it.",
    "foreign": "{path} belongs to another program. It was not changed; nothing was lost. Move it "
    "away, or set HERMES_HOME to another folder.",
    "too_big": "A message is too large for the session database. It was not saved; earlier "
    "messages are safe.",
    "io": "The disk failed while reading or writing {path} ({detail}). This may not have been "
    "saved; earlier messages are safe. Check the disk, then try again.",
}


def translate_error(error: Exception, path: Path, system_errno: int = 0) -> StoreError:
    """`error`: an apsw.Error, an OSError or a UnicodeError; a StoreError comes back as it is."""
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
            kind = _ERRNOS.get(system_errno) or ("files" if _is_short_of_files() else kind)
        if kind == "unopened" and not _is_writable(path):
            kind, detail = "readonly", "read-only"
    return error_of_kind(kind, path, detail or name)


def error_of_kind(kind: str, path: Path, detail: str = "") -> StoreError:
    room = _MAX_LENGTH - len(_SENTENCES[kind].format(path=_shorten_path(path), detail=""))
    text = _SENTENCES[kind].format(path=_shorten_path(path), detail=detail[: max(0, min(room, 80))])
    return StoreError(text, {"unopened": "io", "too_big": "io"}.get(kind, kind))


def session_missing_error(session_id: str) -> StoreError:
    return StoreError(f"There is no session {session_id}; nothing was saved.", "missing")


def session_in_use_error(session_id: str) -> StoreError:
    return StoreError(
        f"Session {session_id} is in use by another process. Nothing was saved or lost. "
        "Wait for its turn to end, or end that process.",
        "in_use",
    )


def session_exists_error(session_id: str) -> StoreError:
    return StoreError(f"Session {session_id} already exists; it was not changed.", "exists")


def _is_writable(path: Path) -> bool:
    return os.access(path.parent, os.W_OK) and (not path.exists() or os.access(path, os.W_OK))


def _is_short_of_files() -> bool:
    """Whether this process can open only a few more files; SQLite does not always say so."""
    opened: list[int] = []
    try:
        for _ in range(_FILES_OF_DATABASE):
            opened.append(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return _ERRNOS.get(error.errno or 0) == "files"
    finally:
        for descriptor in opened:
            os.close(descriptor)
    return False


def _shorten_path(path: Path) -> str:
    text = str(path)
    return text if len(text) <= 90 else "…" + text[-89:]
