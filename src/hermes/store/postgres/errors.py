"""Failures of PostgreSQL as sentences: what failed, what was lost, what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes.core.errors import StoreError

if TYPE_CHECKING:
    from psycopg import Error

_CODES = {
    "53100": "full",
    "53200": "full",
    "53300": "away",
    "25006": "readonly",
    "42501": "readonly",
    "40001": "busy",
    "40P01": "busy",
    "55P03": "busy",
    "3D000": "missing_database",
    "3F000": "uninitialized",
    "42P01": "uninitialized",
}
"""SQLSTATE -> kind."""
_AWAY = ("08", "57")
"""Classes of SQLSTATE that mean: the server is gone, stops or does not serve yet."""
_KNOWN = ("full", "readonly", "busy", "away", "io")
_NO_ENTRY = (
    ("denied", "authentication failed"),
    ("denied", "no pg_hba.conf entry"),
    ("denied", "no password supplied"),
    ("denied", "role "),
    ("missing_database", "does not exist"),
)
"""Kind, and what the server says before there is a connection."""
_MAX_DETAIL = 140
_SENTENCES = {
    "away": "The database cannot be reached ({detail}). This was not saved; earlier messages are "
    "safe. Try again when it is back.",
    "full": "The disk or memory of the database is full. This was not saved; earlier messages are "
    "safe. Free some space and try again.",
    "readonly": "The database refuses to be written ({detail}). This was not saved; earlier "
    "messages are safe. Make it writable for this user and try again.",
    "busy": "The database was busy with the same rows. This was not saved; earlier messages are "
    "safe. Try again.",
    "denied": "The database does not let this user in ({detail}). Nothing was changed or lost. "
    "Check the user and the password in its address.",
    "address": "The address of the database cannot be read. Nothing was changed or lost. Write "
    "postgresql://user:password@host/name.",
    "missing_database": "The database does not exist ({detail}). Nothing was lost. Create it, then "
    "run `hermes cluster init`.",
    "uninitialized": "The database has no tables of Hermes. Nothing was lost. Run `hermes cluster "
    "init`.",
    "io": "The database failed ({detail}). This may not have been saved; earlier messages are "
    "safe. Look into its log, then try again.",
}


def translate_error(error: Error) -> StoreError:
    state = error.sqlstate or ""
    kind = _CODES.get(state, "io")
    if not state:
        kind = _explain_no_connection(error)
    elif state[:2] in _AWAY:
        kind = "away"
    # Clients of the server see it: where the database is, is not for them.
    detail = " ".join(str(error).partition("\n")[0].split()).rpartition(" failed: ")[2]
    code = kind if kind in _KNOWN else "io"
    found = StoreError(_SENTENCES[kind].format(detail=detail[:_MAX_DETAIL]), code)
    found.__cause__ = error
    return found


def _explain_no_connection(error: Error) -> str:
    """The kind of a failure that has no SQLSTATE: the connection could not be opened, or broke."""
    from psycopg import ProgrammingError

    if isinstance(error, ProgrammingError):
        return "address"
    return next((kind for kind, words in _NO_ENTRY if words in str(error)), "away")


def fenced_error(session_id: str) -> StoreError:
    return StoreError(
        f"Session {session_id} was taken over by another node. This was not saved; the session "
        "goes on there. Nothing needs to be done.",
        "fenced",
    )
