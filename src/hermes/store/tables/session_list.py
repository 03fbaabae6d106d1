"""Sessions as lists show them: their records, the last used first."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from hermes.core.store import NO_FILTER, SessionEnd, SessionFilter, SessionMeta
from hermes.core.text import replace_invalid
from hermes.store import codec, errors
from hermes.store.tables.connection import SqlConnection, SqlDatabase

_LONGEST_END = 200


class SqlSessionList:
    """The part of `core.store.SessionStore` that is about records. `last_body`: a query for the
    body of the last message of the session `s` that is not a tool's."""

    def __init__(self, database: SqlDatabase, last_body: str) -> None:
        self._records = database
        self._last_body = last_body

    async def update_meta(
        self,
        session_id: str,
        *,
        title: str | None = None,
        model: str | None = None,
        pinned: bool | None = None,
        archived: bool | None = None,
    ) -> None:
        texts = [text if text is None else replace_invalid(text) for text in (title, model)]
        cleaned = replace_invalid(session_id)

        def update_columns(db: SqlConnection) -> None:
            db.execute(
                "UPDATE sessions SET title = coalesce(?, title), model = coalesce(?, model),"
                " pinned = coalesce(?, pinned), archived = coalesce(?, archived) WHERE id = ?",
                (*texts, pinned, archived, cleaned),
            )
            if not db.changes():
                raise errors.session_missing_error(cleaned)

        await self._records.writer.submit(update_columns)

    async def get_meta(self, session_id: str) -> SessionMeta | None:
        return await self._find_one("WHERE s.id = ?", replace_invalid(session_id))

    async def list_recent(
        self,
        *,
        limit: int = 50,
        cwd: str | None = None,
        source: str | None = None,
        key: str | None = None,
    ) -> list[SessionMeta]:
        where, values = _recent_first(cwd=cwd, source=source, key=key)
        return await self._list_where(f"{where} LIMIT ?", *values, limit)

    async def list_by_owner(
        self,
        owner: str,
        *,
        others: bool = False,
        limit: int = 50,
        offset: int = 0,
        only: SessionFilter = NO_FILTER,
    ) -> list[SessionMeta]:
        theirs = "s.source IN ('api', 'web') AND s.key >= ? AND s.key < ?"
        where = theirs if not others else f"s.source NOT IN ('api', 'web') OR ({theirs})"
        wanted, values = _compose_filter(only)
        order = "ORDER BY s.pinned DESC, s.used DESC, s.n DESC LIMIT ? OFFSET ?"
        return await self._list_where(
            f"WHERE s.next = '' AND ({where}) AND {wanted} {order}",
            f"{owner}/",
            f"{owner}0",  # "0" comes after "/"
            *values,
            limit,
            offset,
        )

    async def load_ends(self, session_ids: Sequence[str]) -> dict[str, SessionEnd]:
        ids = [replace_invalid(id) for id in session_ids]
        return await self._records.read(
            lambda db: {id: _load_end(db, self._last_body, id) for id in ids}
        )

    async def find_latest(
        self, *, cwd: str | None = None, source: str | None = None, key: str | None = None
    ) -> SessionMeta | None:
        where, values = _recent_first(cwd=cwd, source=source, key=key)
        return await self._find_one(f"{where} LIMIT 1", *values)

    async def find_by_prefix(self, prefix: str, *, limit: int = 20) -> list[SessionMeta]:
        where = "WHERE s.id >= ? AND s.id < ? ORDER BY s.id LIMIT ?"
        prefix = replace_invalid(prefix)
        return await self._list_where(where, prefix, prefix + codec.LAST_CHARACTER, limit)

    async def _list_where(self, where: str, *values: str | int) -> list[SessionMeta]:
        """Without their system prompts."""
        sql = f"SELECT {codec.SESSION_COLUMNS} FROM sessions s {where}"
        is_alive = cache(self._records.process.is_alive)
        return await self._records.read(
            lambda db: [codec.decode_session(row, is_alive) for row in db.execute(sql, values)]
        )

    async def _find_one(self, where: str, *values: str) -> SessionMeta | None:
        sql = (
            f"SELECT {codec.SESSION_COLUMNS}, (SELECT text FROM systems WHERE session = s.n)"
            f" FROM sessions s {where}"
        )

        def select_session(db: SqlConnection) -> SessionMeta | None:
            found: list[tuple[Any, ...]] = db.execute(sql, values).fetchall()
            if not found:
                return None
            *row, system = found[0]
            return codec.decode_session(row, self._records.process.is_alive, system or "")

        return await self._records.read(select_session)


def _compose_filter(only: SessionFilter) -> tuple[str, list[str]]:
    tests, values = [f"s.archived = {int(only.archived)}"], []
    for name in ("source", "state"):
        if wanted := getattr(only, name):
            tests.append(f"s.{name} = ?")
            values.append(replace_invalid(wanted))
    if only.title:
        tests.append("lower(s.title) LIKE lower(?) ESCAPE '\\'")
        escaped = re.sub(r"([%_\\])", r"\\\1", replace_invalid(only.title))
        values.append(f"%{escaped}%")
    return " AND ".join(tests), values


def _load_end(db: SqlConnection, last_body: str, session_id: str) -> SessionEnd:
    rows: Any = db.execute(
        "SELECT (SELECT usd FROM spent WHERE scope = 'session:' || s.id),"
        f" ({last_body}) FROM sessions s WHERE s.id = ?",
        (session_id,),
    ).fetchall()
    if not rows:
        return SessionEnd()
    cost, body = rows[0]
    text = codec.decode_message(body, 0).text if body else ""
    return SessionEnd(cost or 0.0, " ".join(text[:_LONGEST_END].split()))


def _recent_first(**wanted: str | None) -> tuple[str, list[str]]:
    """Sessions with these columns, the most recently used first; of a compressed conversation
    only the session it continues in."""
    values = {name: replace_invalid(value) for name, value in wanted.items() if value is not None}
    tests = ["s.next = ''", *(f"s.{name} = ?" for name in values)]
    where = f"WHERE {' AND '.join(tests)} ORDER BY s.used DESC, s.n DESC"
    return where, list(values.values())


CONVERSATION = """
WITH RECURSIVE
    later (id, next) AS (
        SELECT id, next FROM sessions WHERE id = ?
        UNION SELECT s.id, s.next FROM sessions s JOIN later ON s.id = later.next
    ),
    earlier (id) AS (
        SELECT id FROM sessions WHERE id = ?
        UNION SELECT s.id FROM sessions s JOIN earlier ON s.next = earlier.id AND s.next <> ''
    )
SELECT id FROM later UNION SELECT id FROM earlier"""
"""A session, those it was compressed into, and those compressed into it."""
