"""What only the store on PostgreSQL does: epochs, leases, tenants, a server that goes away."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from hermes.core.errors import StoreError
from hermes.core.message import user_message
from hermes.core.store import SessionMeta
from hermes.store.postgres.connection import PostgresConnection, open_connection
from hermes.store.postgres.database import PostgresDatabase, TenantDatabase
from hermes.store.postgres.engine import BATCH, SINGLETONS, TURNS, Wake, defer_wake
from hermes.store.postgres.inbox import PostgresInbox
from hermes.store.postgres.lease import NodeLease
from hermes.store.postgres.schema import SCHEMA_VERSION, migrate_database
from hermes.store.postgres.shared_limits import SharedLimits
from hermes.store.postgres.store import PostgresStore
from tests.kit.postgres import create_database, run_postgres
from tests.unit.store.stores import run_python

Open = Callable[..., PostgresStore]


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Open]:
    stores: list[PostgresStore] = []

    def make(node: str, tenant: int = 0, **options: Any) -> PostgresStore:
        database = PostgresDatabase(url, node=node, **{"lease_seconds": 36_000, **options})
        stores.append(PostgresStore(database, tenant=tenant))
        return stores[-1]

    try:
        yield make
    finally:
        for store in stores:
            await store.close()


@pytest.fixture
def url(postgres_server: str) -> Any:
    with create_database(postgres_server) as made:
        yield made


def end_lease(url: str, node: str) -> None:
    """As if the node had not been heard of for longer than its lease."""
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("UPDATE nodes SET lease = 0 WHERE name = %s", (node,))


async def test_a_stale_owner_writes_nothing(url: str) -> None:
    async with opened(url) as make:
        old, new = make("old"), make("new")
        await old.sessions.append(
            "s", [user_message("1")], state="running", create=SessionMeta("s")
        )
        with pytest.raises(StoreError) as refused:
            await new.sessions.append("s", [user_message("x")], state="running")
        assert refused.value.code == "in_use"
        end_lease(url, "old")
        meta = await new.sessions.get_meta("s")
        assert meta is not None and meta.state == "interrupted"
        await new.sessions.append("s", [user_message("2")], state="running")
        for change in (
            old.sessions.append("s", [user_message("stale")]),
            old.sessions.set_state("s", "running"),
        ):
            with pytest.raises(StoreError) as refused:
                await change
            assert refused.value.code in ("fenced", "in_use")
        await new.sessions.append("s", [user_message("3")], state="idle")
        assert [m.text for m in await old.sessions.load_messages("s")] == ["1", "2", "3"]
        with psycopg.connect(url) as db:
            row = db.execute("SELECT owner, epoch FROM sessions WHERE id = 's'").fetchone()
        assert row == ("", 3)


async def test_a_stale_owner_is_told_that_it_was_fenced(url: str) -> None:
    async with opened(url) as make:
        old, new = make("old"), make("new")
        await old.sessions.append("s", [], state="running", create=SessionMeta("s"))
        end_lease(url, "old")
        await new.sessions.append("s", [user_message("taken")], state="running")
        await new.sessions.set_state("s", "idle")
        with pytest.raises(StoreError) as refused:
            await old.sessions.append("s", [user_message("stale")])
        assert refused.value.code == "fenced"
        assert "taken over by another node" in str(refused.value)
        assert old.sessions.fenced_writes == 1


async def test_no_tenant_sees_anything_of_another(url: str) -> None:
    async with opened(url) as make:
        one, two = make("one", 1), make("two", 2)
        for store, word in ((one, "apple"), (two, "pear")):
            await store.sessions.append("s", [user_message(word)], create=SessionMeta("s"))
            await store.objects.put("run", "r", word.encode(), owner="o")
        assert [m.text for m in await one.sessions.load_messages("s")] == ["apple"]
        assert [m.text for m in await two.sessions.load_messages("s")] == ["pear"]
        assert await two.search.find_messages("apple") == []
        assert len(await two.search.find_messages("pear")) == 1
        found = await two.objects.get("run", "r", owner="o")
        assert found is not None and found.body == b"pear"
        await one.sessions.delete("s")
        assert await one.sessions.get_meta("s") is None
        assert await two.sessions.get_meta("s") is not None


async def test_what_waits_is_neither_deleted_nor_counted_among_what_was_used(url: str) -> None:
    """However much waits, the latest runs can be asked for, and looking for old ones is no work."""
    async with opened(url) as make:
        store = make("a")
        inbox = PostgresInbox(
            TenantDatabase(store.database, 0), defer_wake, limit=100, stays_at_node=False
        )
        for number in range(4):
            await store.objects.put("run", f"ended-{number}", b"x", owner="me")
        for number in range(5):
            name = f"waits-{number}"
            assert await inbox.add(f"s{number}", "run", name, owner="me", body=b"x")
        await inbox.trim_objects("run", 2, owner="me")
        kept = {found.id for found in await store.objects.list_all("run", owner="me")}
        assert kept == {"ended-2", "ended-3", *(f"waits-{number}" for number in range(5))}
        (row,) = await inbox.list_rows("s0")
        await store.objects.put("run", "waits-0", b"y", owner="me")
        assert await inbox.remove("s0", row.id)
        await inbox.trim_objects("run", 2, owner="me")
        kept = {found.id for found in await store.objects.list_all("run", owner="me")}
        assert kept == {"ended-3", *(f"waits-{number}" for number in range(5))}


def test_a_session_that_is_named_like_something_else_has_its_own_wake(url: str) -> None:
    """Otherwise it would wait for workers that do not answer sessions."""
    with open_connection(url) as db:
        for queue, name in ((BATCH, "batch/run/0"), (SINGLETONS, "gateway")):
            other = Wake(0, name, queue)
            defer_wake(db, other)
            for session in (name, other.key):
                defer_wake(db, Wake(0, session))
        rows = db.execute("SELECT queue_name, lock FROM public.procrastinate_jobs").fetchall()
    assert len(set(rows)) == len({lock for _, lock in rows}) == 6
    assert sum(queue == TURNS for queue, _ in rows) == 4


async def test_two_nodes_of_one_name_do_not_run_at_once(url: str) -> None:
    async with opened(url) as make:
        first, second = make("same"), make("same")
        await first.sessions.append("a", [], state="running", create=SessionMeta("a"))
        with pytest.raises(StoreError) as refused:
            await second.sessions.append("b", [], state="running", create=SessionMeta("b"))
        assert "Another node named same" in str(refused.value)


async def test_what_was_acknowledged_survives_crashes_of_the_server_once() -> None:
    with run_postgres() as server, create_database(server.url()) as url:
        async with opened(url) as make:
            store = make("node", patience=90)
            await store.sessions.create(SessionMeta("s"))
            acknowledged: list[str] = []
            crashes = 3

            async def append_until_done(writer: int) -> None:
                number = 0
                while crashes or number == 0:
                    text = f"{writer}-{number}"
                    await store.sessions.append("s", [user_message(text)])
                    acknowledged.append(text)
                    number += 1

            writers = [asyncio.create_task(append_until_done(n)) for n in range(4)]
            while crashes:
                before = len(acknowledged)
                while len(acknowledged) < before + 20:
                    assert not any(writer.done() for writer in writers)
                    await asyncio.sleep(0.01)
                await asyncio.to_thread(server.stop)
                await asyncio.to_thread(server.start)
                crashes -= 1
            await asyncio.gather(*writers)
            stored = [m.text for m in await store.sessions.load_messages("s")]
            assert sorted(stored) == sorted(acknowledged)


@pytest.mark.timeout(60)
@pytest.mark.heavy
async def test_a_session_whose_turn_could_not_be_written_is_free_afterwards() -> None:
    with run_postgres() as server:
        with open_connection(server.url()) as db:
            migrate_database(db)
        async with opened(server.url()) as make:
            left, other = make("left", patience=0.0), make("other")
            await left.sessions.append(
                "s", [user_message("1")], state="running", create=SessionMeta("s")
            )
            await other.sessions.get_meta("s")
            await asyncio.to_thread(server.stop)
            with pytest.raises(StoreError):
                await left.sessions.append("s", [user_message("lost")])
            await asyncio.to_thread(server.start)
            async with asyncio.timeout(90):
                while True:
                    with suppress(StoreError):
                        await other.sessions.append("s", [user_message("2")], state="running")
                        break
                    await asyncio.sleep(0.1)
            with pytest.raises(StoreError):
                await left.sessions.append("s", [user_message("stale")], state="running")
            assert [m.text for m in await other.sessions.load_messages("s")] == ["1", "2"]


async def wait_for_room(limits: SharedLimits) -> None:
    """Wait until a turn of a tenant that may have one at a time can run."""
    async with asyncio.timeout(90):
        while True:
            with suppress(StoreError):
                async with limits.hold_turn(7, 1) as is_held:
                    if is_held:
                        return
            await asyncio.sleep(0.1)


@pytest.mark.heavy
async def test_a_turn_of_a_tenant_counts_no_longer_than_it_runs() -> None:
    with run_postgres() as server:
        with open_connection(server.url()) as db:
            migrate_database(db)
        async with opened(server.url()) as make:
            limits = SharedLimits(make("a", patience=0.0).database, lambda db, session: None)
            async with limits.hold_turn(7, 1) as is_held:
                assert is_held
                async with limits.hold_turn(7, 1) as is_second:
                    assert not is_second
                await asyncio.to_thread(server.stop)
            await asyncio.to_thread(server.start)
            await wait_for_room(limits)

            async def hold_in_vain() -> None:
                async with limits.hold_turn(7, 1):
                    raise AssertionError

            with open_connection(server.url(), autocommit=False) as db:
                db.execute("SELECT pg_advisory_xact_lock(7, hashtext('turns'))")
                holding = asyncio.create_task(hold_in_vain())
                await wait_until_blocked(server.url())
                holding.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await holding
            await wait_for_room(limits)


async def wait_until_blocked(url: str) -> None:
    """Wait until a transaction waits for what another one holds."""
    sql = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    async with asyncio.timeout(90):
        while True:
            with psycopg.connect(url) as db:
                if db.execute(sql).fetchone() is not None:
                    return
            await asyncio.sleep(0.05)


def test_a_group_with_a_large_message_does_not_wait_for_itself(url: str) -> None:
    """The socket has no room for all of it, and results are read before the end of the group."""
    body = os.urandom(5_000_000)
    with open_connection(url) as raw:
        db = PostgresConnection(raw).use_tenant(0)
        with db.open_group():
            for id in ("a", "b"):
                sql = "INSERT INTO objects VALUES (0, 'k', ?, '', 0, 0, ?) RETURNING body"
                assert db.execute(sql, (id, body)).fetchall() == [(body,)]
        sizes = db.execute("SELECT octet_length(body) FROM objects").fetchall()
    assert sizes == [(len(body),)] * 2


REFUSALS = (
    ("postgresql://x@/y?host={folder}", "away", "cannot be reached"),
    ("not an address, hunter2", "io", "address of the database cannot be read"),
    ("{nowhere}", "io", "The database does not exist"),
    ("{stranger}", "io", "does not let this user in"),
)


@pytest.mark.parametrize(("address", "code", "said"), REFUSALS)
def test_why_a_database_cannot_be_opened(
    tmp_path: Path, postgres_server: str, address: str, code: str, said: str
) -> None:
    if address == "{nowhere}":
        address = make_conninfo(postgres_server, dbname="nowhere")
    elif address == "{stranger}":
        address = make_conninfo(postgres_server, user="stranger")
    lease = NodeLease(lambda: open_connection(address.format(folder=tmp_path)), "a", 10)
    with pytest.raises(StoreError) as refused:
        lease.describe_node({"roles": "worker"})
    text = str(refused.value)
    assert refused.value.code == code and said in text
    assert len(text) <= 300 and "hunter2" not in text


def test_a_connection_notices_a_server_that_is_gone(postgres_server: str) -> None:
    with open_connection(postgres_server) as db:
        assert db.info.get_parameters()["tcp_user_timeout"] == "15000"
        assert db.info.get_parameters()["connect_timeout"] == "5"
    with open_connection(make_conninfo(postgres_server, connect_timeout=9)) as db:
        assert db.info.get_parameters()["connect_timeout"] == "9"


async def test_a_server_that_is_away_is_said_to_be(tmp_path: Path) -> None:
    async with opened(f"postgresql://x@/y?host={tmp_path}") as make:
        store = make("node", patience=0)
        with pytest.raises(StoreError) as refused:
            await store.sessions.create(SessionMeta("s"))
        assert refused.value.code == "away" and "was not saved" in str(refused.value)
        problem = store.maintenance.find_problem()
        assert problem is not None and problem.code == "away"


async def test_a_node_refuses_tables_that_do_not_fit(postgres_server: str) -> None:
    with create_database(postgres_server, tables=False) as url:
        async with opened(url) as make:
            with pytest.raises(StoreError, match="hermes cluster init"):
                await make("a").wait_until_open()
            with open_connection(url) as db:
                assert migrate_database(db) == 0
                assert migrate_database(db) == SCHEMA_VERSION
            await make("b").wait_until_open()
            with psycopg.connect(url, autocommit=True) as db:
                db.execute("UPDATE schema SET version = 99, oldest_reader = 99")
            with pytest.raises(StoreError, match="Update Hermes"):
                await make("c").wait_until_open()


def test_one_machine_imports_nothing_of_it(tmp_path: Path) -> None:
    code = (
        "import asyncio, pathlib, sys\n"
        "from hermes.store.sqlite import SqliteStore\n"
        "import hermes.app.runtime, hermes.server.app\n"
        "async def main():\n"
        "    store = SqliteStore(pathlib.Path(sys.argv[1]) / 'x.db')\n"
        "    await store.wait_until_open()\n"
        "    await store.close()\n"
        "asyncio.run(main())\n"
        "bad = ('psycopg', 'procrastinate', 'hermes.store.postgres', 'hermes.app.cluster')\n"
        "print([n for n in sys.modules if n.startswith(bad)])\n"
    )
    done = run_python(code, tmp_path)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.heavy
async def test_a_dead_node_is_found_when_its_lease_ends(url: str) -> None:
    """Not at the next sign of life of the node that finds it, which may be long after."""

    def connect() -> Any:
        return open_connection(url)

    loop, found = asyncio.get_running_loop(), asyncio.Event()
    finder = NodeLease(connect, "finder", 30)
    finder.on_dead = lambda: loop.call_soon_threadsafe(found.set)
    await asyncio.to_thread(finder.acquire)
    try:
        with psycopg.connect(url, autocommit=True) as db:
            db.execute("INSERT INTO nodes (name, owner, lease) VALUES ('dead', 'dead#1', 31)")
            async with asyncio.timeout(90):
                await found.wait()
            row = db.execute(
                "SELECT extract(epoch FROM clock_timestamp() - beat)::float8 - lease FROM nodes"
                " WHERE name = 'dead'"
            ).fetchone()
        assert finder.take_dead() == ["dead#1"]
        assert row is not None and 0 <= row[0] < 4, "it gives a sign of life every 6 s"
    finally:
        await asyncio.to_thread(finder.release)
