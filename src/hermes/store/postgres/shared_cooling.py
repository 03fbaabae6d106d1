"""Keys of providers that cool down or pause, as all nodes know them."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from hermes.core.errors import StoreError
from hermes.store.postgres.connection import PostgresConnection
from hermes.store.postgres.database import PostgresDatabase

log = logging.getLogger(__name__)
_PUT = (
    "INSERT INTO public.cooling AS c (digest, kind, until, why, owner)"
    " VALUES (%s, %s, clock_timestamp() + make_interval(secs => %s), %s, %s)"
    " ON CONFLICT (digest, kind) DO UPDATE SET until = greatest(c.until, excluded.until),"
    " why = excluded.why, owner = excluded.owner"
)
_GET = (
    "SELECT digest, kind, extract(epoch FROM until - clock_timestamp())::float8, why"
    " FROM public.cooling WHERE digest = ANY(%s) AND until > clock_timestamp() AND owner <> %s"
)


class PostgresCooling:
    """Implements `llm.auth.cooldown.SharedCooling`. Times are those of the database's clock."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    def tell_nodes(self, digest: str, kind: str, seconds: float, why: str) -> None:
        values = (digest, kind, seconds, why, self._database.lease.name)

        def put_row(db: PostgresConnection) -> None:
            db.db.execute(_PUT, values)

        self._database.writer.submit(put_row).add_done_callback(
            lambda done: done.cancelled() or done.exception()
        )

    async def ask_nodes(self, digests: Sequence[str]) -> list[tuple[str, str, float, str]]:
        values = (list(digests), self._database.lease.name)
        try:
            return await self._database.read(lambda db: db.db.execute(_GET, values).fetchall())
        except StoreError as error:  # the limit is hit again, that is all
            log.warning("what other nodes know of keys could not be read: %s", error)
            return []
