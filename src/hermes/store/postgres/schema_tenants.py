"""The tables of tenants, their keys, and the limits that all nodes share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from psycopg import Connection

_TABLES = """
CREATE SEQUENCE tenant_ids;
CREATE TABLE keys (
    digest bytea PRIMARY KEY,
    id text NOT NULL UNIQUE,
    tenant int NOT NULL REFERENCES tenants ON DELETE CASCADE,
    scopes text NOT NULL,
    created float8 NOT NULL,
    expires float8
);
CREATE INDEX keys_tenant ON keys (tenant);
CREATE INDEX sessions_id ON sessions (id);
ALTER TABLE spent ADD COLUMN reserved_usd float8 NOT NULL DEFAULT 0,
    ADD COLUMN reserved_tokens float8 NOT NULL DEFAULT 0;
CREATE OR REPLACE VIEW hermes.spent AS SELECT * FROM public.spent
    WHERE tenant = current_setting('hermes.tenant')::int;
CREATE TABLE slices (
    tenant int NOT NULL DEFAULT current_setting('hermes.tenant')::int,
    scope text COLLATE "C" NOT NULL,
    unit text NOT NULL,
    owner text NOT NULL,
    amount float8 NOT NULL,
    used float8 NOT NULL,
    PRIMARY KEY (tenant, scope, unit, owner)
) WITH (fillfactor = 50);
ALTER TABLE reservations ADD COLUMN asks text NOT NULL DEFAULT '';
CREATE OR REPLACE VIEW hermes.reservations AS SELECT * FROM public.reservations
    WHERE tenant = current_setting('hermes.tenant')::int;
CREATE VIEW hermes.slices AS SELECT * FROM public.slices
    WHERE tenant = current_setting('hermes.tenant')::int;
CREATE TABLE limits (
    tenant int NOT NULL,
    name text NOT NULL,
    amount float8 NOT NULL,
    filled timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant, name)
) WITH (fillfactor = 20);
CREATE TABLE turn_slots (
    tenant int NOT NULL, id text NOT NULL, owner text NOT NULL, PRIMARY KEY (tenant, id)
);
ALTER TABLE session_inbox ADD COLUMN woken boolean NOT NULL DEFAULT true;
CREATE INDEX session_inbox_woken ON session_inbox (tenant) WHERE woken;
CREATE INDEX session_inbox_waiting ON session_inbox (tenant, id) WHERE NOT woken;
CREATE OR REPLACE VIEW hermes.session_inbox AS SELECT * FROM public.session_inbox
    WHERE tenant = current_setting('hermes.tenant')::int;
CREATE TABLE cooling (
    digest text NOT NULL,
    kind text NOT NULL,
    until timestamptz NOT NULL,
    why text NOT NULL,
    owner text NOT NULL,
    PRIMARY KEY (digest, kind)
);
CREATE TABLE imports (
    tenant int NOT NULL,
    id text COLLATE "C" NOT NULL,
    done boolean NOT NULL DEFAULT false,
    PRIMARY KEY (tenant, id)
);
CREATE FUNCTION hermes.take_tokens(
    t int, bucket text, capacity float8, per_second float8, most float8,
    OUT taken float8, OUT remaining float8
) LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.limits (tenant, name, amount) VALUES (t, bucket, capacity)
        ON CONFLICT DO NOTHING;
    SELECT least(capacity, amount + per_second * greatest(0,
            extract(epoch FROM clock_timestamp() - filled)::float8))
        INTO remaining FROM public.limits WHERE tenant = t AND name = bucket FOR UPDATE;
    taken := greatest(0, floor(least(most, remaining)));
    remaining := remaining - taken;
    UPDATE public.limits SET amount = remaining, filled = clock_timestamp()
        WHERE tenant = t AND name = bucket;
END $$;
"""


def add_tenant_tables(db: Connection[Any]) -> None:
    db.execute(_TABLES)
