"""A connection to PostgreSQL that understands the SQL of the tables and sees one tenant."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector
from typing import TYPE_CHECKING, Any, TypeAlias

from hermes.core.text import replace_invalid

if TYPE_CHECKING:
    from psycopg import Connection, Cursor, Pipeline

_MARKS = re.compile(r"'[^']*'|\?(\d*)|%|ON CONFLICT \(")
_SEARCH_PATH = "-c search_path=hermes,public -c application_name=hermes"
_LIMITS = {
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 5,
    "keepalives_count": 2,
    "tcp_user_timeout": 15_000,
}
"""A server that has gone without a word is noticed after a quarter of a minute."""
SessionKey: TypeAlias = tuple[int, str]
"""Tenant and id."""


class ResultRows:
    """The rows of one statement, as the tables read them."""

    def __init__(self, cursor: Cursor[Any], read_results: Callable[[], None]) -> None:
        self._cursor = cursor
        self._read_results = read_results

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.fetchall())

    def fetchall(self) -> list[tuple[Any, ...]]:
        self._read_results()
        return self._cursor.fetchall() if self._cursor.description else []

    def fetchone(self) -> tuple[Any, ...] | None:
        return self._cursor.fetchone()

    @property
    def get(self) -> Any:
        """The only value, or None."""
        row = self._cursor.fetchone()
        return row[0] if row else None


class PostgresConnection:
    """Implements `tables.connection.SqlConnection`: `?` is a parameter, and every key begins with
    the tenant, which the views in the schema `hermes` add."""

    def __init__(self, db: Connection[Any], epochs: dict[SessionKey, int] | None = None) -> None:
        """`epochs`: of the sessions that this process runs."""
        self.db = db
        self._epochs = {} if epochs is None else epochs
        self.new_epochs: dict[SessionKey, int | None] = {}
        """Changed by the transaction; None: not run any more."""
        self._tenant: int | None = None
        self._last: Cursor[Any] | None = None
        self._pipeline: Pipeline | None = None
        self._readers: list[Callable[[], object]] = []

    @contextmanager
    def open_group(self) -> Iterator[None]:
        """Send what is executed in the block without waiting for results that nobody reads; the
        block is a transaction."""
        self.new_epochs = {}
        try:
            with self.db.pipeline() as self._pipeline:
                self.db.execute("BEGIN")
                yield
                self.db.execute("COMMIT")
        finally:
            self._pipeline = None
            self._readers.clear()

    def read_later(self, read: Callable[[], object]) -> None:
        """Call `read` when all statements of the group were sent; now if there is no group."""
        if self._pipeline is None:
            read()
        else:
            self._readers.append(read)

    def read_rest(self) -> None:
        """Do what was left for later."""
        while self._readers:
            self._readers.pop(0)()

    def find_epoch(self, session: SessionKey) -> int | None:
        """With which this process runs the session, as far as this transaction has come."""
        if session in self.new_epochs:
            return self.new_epochs[session]
        return self._epochs.get(session)

    def note_commit(self) -> None:
        for session, epoch in self.new_epochs.items():
            if epoch is None:
                self._epochs.pop(session, None)
            else:
                self._epochs[session] = epoch
        self.new_epochs = {}

    def use_tenant(self, tenant: int) -> PostgresConnection:
        """See the rows of this tenant and no others from now on."""
        if tenant != self._tenant:
            self.db.execute("SELECT set_config('hermes.tenant', %s, false)", (str(tenant),))
            self._tenant = tenant
        return self

    @property
    def tenant(self) -> int:
        """Whose rows it sees."""
        assert self._tenant is not None
        return self._tenant

    def forget_tenant(self) -> None:
        """After a rollback it is not known which one the server has in mind."""
        self._tenant = None

    def execute(self, sql: str, values: Sequence[Any] = (), /) -> ResultRows:
        cursor = self.db.execute(_translate_sql(sql), _bind_values(sql, values))
        self._last = cursor
        return ResultRows(cursor, self._read_results)

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]], /) -> None:
        cursor = self.db.cursor()
        cursor.executemany(_translate_sql(sql), [_bind_values(sql, row) for row in rows])
        self._last = cursor

    def changes(self) -> int:
        self._read_results()
        return max(0, self._last.rowcount) if self._last is not None else 0

    def _read_results(self) -> None:
        if self._pipeline is not None:
            _send_rest(self.db)
            self._pipeline.sync()

    def readonly(self, name: str, /) -> bool:
        return self.db.read_only is True


def _send_rest(db: Connection[Any]) -> None:
    """Send what the socket had no room for: psycopg's sync waits for the results of a statement
    that the server has not received as a whole, for ever."""
    if not db.pgconn.flush():
        return
    with DefaultSelector() as selector:
        selector.register(db.fileno(), EVENT_READ | EVENT_WRITE)
        while db.pgconn.flush():
            if any(events & EVENT_READ for _, events in selector.select()):
                db.pgconn.consume_input()


def add_limits(url: str) -> str:
    """The address with limits of time, unless it has its own. One that cannot be read is left for
    the connection to complain of."""
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    try:
        given = conninfo_to_dict(url)
    except ProgrammingError:
        return url
    values: dict[str, Any] = {**_LIMITS, **given}
    return make_conninfo(**values)


def open_connection(url: str, *, autocommit: bool = True) -> Connection[Any]:
    """A connection that finds the tables of Hermes."""
    import psycopg
    from psycopg.adapt import Loader

    class WholeNumbers(Loader):
        """Sums of whole numbers are whole numbers."""

        def load(self, data: Any) -> int | float:
            text = bytes(data).decode()
            return int(text) if text.lstrip("-").isdigit() else float(text)

    db = psycopg.connect(add_limits(url), autocommit=autocommit, options=_SEARCH_PATH)
    db.adapters.register_loader("numeric", WholeNumbers)
    return db


Connect = Callable[[], "Connection[Any]"]


@cache
def _translate_sql(sql: str) -> Any:
    def translate(mark: re.Match[str]) -> str:
        text = mark[0]
        if text == "%":
            return "%%"
        if text.startswith("?"):
            return f"%(p{mark[1]})s" if mark[1] else "%s"
        if text.startswith("ON"):
            return "ON CONFLICT (tenant, "
        return text.replace("%", "%%")

    return _MARKS.sub(translate, sql)


def _bind_values(sql: str, values: Sequence[Any]) -> Any:
    """The values as PostgreSQL takes them: no truth values, no text that it refuses."""
    found = [
        replace_invalid(v) if isinstance(v, str) else int(v) if isinstance(v, bool) else v
        for v in values
    ]
    return {f"p{n}": v for n, v in enumerate(found, 1)} if "?1" in sql else found
