"""The step of the schema that adds what nodes have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hermes.store.postgres.shared.event_blocks import renew_partitions

if TYPE_CHECKING:
    from psycopg import Connection

_TENANT = "tenant int NOT NULL DEFAULT current_setting('hermes.tenant')::int"
_TABLES = f"""
CREATE TABLE singletons (
    name text PRIMARY KEY,
    owner text NOT NULL,
    since timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE TABLE snapshots (
    {_TENANT},
    session text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    node text NOT NULL,
    made timestamptz NOT NULL DEFAULT clock_timestamp(),
    missing text NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (tenant, session)
);
CREATE TABLE calls (
    {_TENANT},
    session text COLLATE "C" NOT NULL,
    call text COLLATE "C" NOT NULL,
    started timestamptz NOT NULL DEFAULT clock_timestamp(),
    epoch bigint NOT NULL,
    state text NOT NULL DEFAULT 'started',
    PRIMARY KEY (tenant, session, call)
);
CREATE TABLE event_blocks (
    {_TENANT},
    stream text COLLATE "C" NOT NULL,
    first bigint NOT NULL,
    last bigint NOT NULL,
    made timestamptz NOT NULL DEFAULT clock_timestamp(),
    body bytea NOT NULL,
    PRIMARY KEY (tenant, stream, first, made)
) PARTITION BY RANGE (made);
CREATE TABLE event_blocks_rest PARTITION OF event_blocks DEFAULT;
CREATE OR REPLACE FUNCTION delete_events() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    DELETE FROM public.events WHERE tenant = old.tenant AND stream = old.id;
    DELETE FROM public.event_blocks WHERE tenant = old.tenant AND stream = old.id;
    RETURN NULL;
END $$;
CREATE TABLE logins (
    name text PRIMARY KEY,
    changed timestamptz NOT NULL DEFAULT clock_timestamp(),
    body bytea NOT NULL
);
"""
_SHOWN = ("snapshots", "calls", "event_blocks")


def add_shared_tables(db: Connection[Any]) -> None:
    db.execute(_TABLES)
    renew_partitions(db)
    for table in _SHOWN:
        db.execute(
            f"CREATE VIEW hermes.{table} AS SELECT * FROM public.{table}"
            " WHERE tenant = current_setting('hermes.tenant')::int"
        )
