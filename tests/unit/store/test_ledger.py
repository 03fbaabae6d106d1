"""The ledger's tables: nothing is counted twice, nothing is lost, the dead are accounted for."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw
import pytest
from msgspec import structs

from hermes.app.meter import (
    describe_refusal,
    describe_unpriced,
    describe_warning,
    format_amount,
    list_caps,
)
from hermes.config.schema import BudgetSection
from hermes.core.errors import StoreError
from hermes.core.ledger import Account, Cap, CapLevel, CapWarning, Entry
from hermes.core.message import user_message
from hermes.core.store import SessionMeta
from hermes.store.sqlite import SqliteStore
from tests.unit.store.conftest import MakeStore
from tests.unit.store.stores import on_both_databases

DAY = "2026-01-31"
CAP = Cap(f"day:{DAY}", "daily_usd", "usd", 10.0)


def entry(id: int = 1, cost: float | None = 1.0, **more: Any) -> Entry:
    account = Account("s", "s", more.pop("user", ""), more.pop("job", ""))
    return Entry(id, DAY, account, "p", "m", input=100, output=10, cost=cost, **more)


def look(path: Path, sql: str) -> list[Any]:
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return list(db.execute(sql))
    finally:
        db.close()


async def spent(store: SqliteStore) -> dict[str, tuple[float, int]]:
    await store.ledger.sum_calls("day", 0)
    rows = await store.sessions._records.read(
        lambda db: db.execute("SELECT scope, usd, tokens FROM spent").fetchall()
    )
    return {scope: (usd, tokens) for scope, usd, tokens in rows}


@on_both_databases
async def test_a_call_counts_to_its_day_session_user_and_job(store: SqliteStore) -> None:
    store.ledger.settle_call(entry(1, user="ann", job="nightly"))
    store.ledger.settle_call(entry(2, None))
    assert await spent(store) == {
        f"day:{DAY}": (1.0, 220),
        "session:s": (1.0, 220),
        f"user:{DAY}:ann": (1.0, 110),
        f"job:{DAY}:nightly": (1.0, 110),
    }


@on_both_databases
async def test_settling_twice_counts_once(store: SqliteStore) -> None:
    for _ in range(3):
        store.ledger.settle_call(entry())
        await store.ledger.sum_calls("day", 0)
    assert (await spent(store))["session:s"] == (1.0, 110)


async def test_a_line_waits_for_the_next_write_and_survives_one_that_fails(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes.store.tables.ledger.FLUSH_DELAY", 600.0)
    await store.sessions.create(SessionMeta("s"))
    store.ledger.settle_call(entry())
    with pytest.raises(StoreError):
        await store.sessions.append("no such session", [user_message("x")])
    assert look(store._database.path, "SELECT count(*) FROM ledger") == [(0,)]
    await store.sessions.append("s", [user_message("x")])
    assert look(store._database.path, "SELECT count(*) FROM ledger") == [(1,)]


async def test_a_line_that_nothing_else_takes_along_is_written_soon(store: SqliteStore) -> None:
    await store.wait_until_open()
    store.ledger.settle_call(entry())
    async with asyncio.timeout(90):
        while look(store._database.path, "SELECT count(*) FROM ledger") == [(0,)]:
            await asyncio.sleep(0.02)


async def test_a_short_call_is_never_written_as_running(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes.store.tables.ledger.FLUSH_DELAY", 600.0)
    await store.sessions.create(SessionMeta("s"))
    store.ledger.begin_call(entry())
    store.ledger.settle_call(entry(1, 0.5))
    await store.sessions.append("s", [user_message("x")])
    assert look(store._database.path, "SELECT cost FROM ledger") == [(0.5,)]


@on_both_databases
async def test_reservations_are_seen_by_others_and_end_with_the_call(
    make_store: MakeStore,
) -> None:
    one, two = make_store(), make_store()
    seen: list[CapLevel] = []

    def decide(levels: Any) -> Entry | None:
        seen[:] = levels
        return entry(id=len(levels) and 7, cost=4.0)

    made, levels = await one.ledger.reserve_call([CAP], decide)
    assert made is not None and levels == [CapLevel(CAP, 0.0, 0.0)]
    nothing, levels = await two.ledger.reserve_call([CAP], lambda _: None)
    assert nothing is None and levels == [CapLevel(CAP, 0.0, 4.0)] and levels[0].remaining == 6.0
    done = asyncio.Event()
    warned: list[CapWarning] = []
    one.ledger.settle_call(entry(7, 8.0), [CAP], lambda w: (warned.extend(w), done.set())[0])
    await asyncio.wait_for(done.wait(), 90)
    assert [(w.percent, w.spent) for w in warned] == [(75, 8.0)], "50 and 75 at once: the higher"
    _, levels = await two.ledger.reserve_call([CAP], lambda _: None)
    assert levels == [CapLevel(CAP, 8.0, 0.0)]


@on_both_databases
async def test_a_cancelled_wait_leaves_nothing_reserved(store: SqliteStore) -> None:
    await store.wait_until_open()
    waiting = asyncio.create_task(store.ledger.reserve_call([CAP], lambda _: entry()))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    async with asyncio.timeout(90):
        while (await store.ledger.reserve_call([CAP], lambda _: None))[1][0].running:
            await asyncio.sleep(0.01)


async def test_what_the_dead_had_reserved_counts_and_what_the_living_have_stays(
    store: SqliteStore, path: Path
) -> None:
    code = (
        "import asyncio, os, sys\n"
        "from pathlib import Path\n"
        "from hermes.store.sqlite import SqliteStore\n"
        "from hermes.core.ledger import *\n"
        "async def main():\n"
        "    store = SqliteStore(Path(sys.argv[1]))\n"
        f"    e = Entry(99, {DAY!r}, Account('s', 's'), 'p', 'm', input=5, output=5, cost=3.0)\n"
        f"    cap = Cap('day:{DAY}', 'daily_usd', 'usd', 10.0)\n"
        "    await store.ledger.reserve_call([cap], lambda _: e)\n"
        "    os.kill(os.getpid(), 9)\n"
        "asyncio.run(main())\n"
    )
    await store.ledger.reserve_call([CAP], lambda _: entry(1, 2.0))
    done = subprocess.run([sys.executable, "-c", code, str(store._database.path)], check=False)
    assert done.returncode == -9
    _, levels = await store.ledger.reserve_call([CAP], lambda _: None)
    assert levels == [CapLevel(CAP, 3.0, 2.0)]
    assert look(store._database.path, "SELECT outcome, estimated FROM ledger") == [("killed", 1)]
    assert os.listdir(path.parent / "run"), "this process is alive"


@on_both_databases
async def test_odd_names_do_no_harm(store: SqliteStore) -> None:
    odd = "x\x00\ud800'; DROP TABLE ledger; --"
    base = entry(user=odd, job=odd)
    store.ledger.settle_call(structs.replace(base, provider=odd, model=odd, tools=("a b", odd)))
    (row,) = await store.ledger.sum_calls("user", 0)
    assert row.calls == 1 and "DROP" in row.key
    assert sum(r.uses for r in await store.ledger.sum_calls("tool", 0)) >= 2


@on_both_databases
async def test_a_mixed_answer_is_shared_among_its_tools(store: SqliteStore) -> None:
    store.ledger.settle_call(entry(1, 3.0, tools=("read", "read", "write")))
    store.ledger.settle_call(entry(2, 1.0, tools=("read",)))
    store.ledger.settle_call(entry(3, 5.0))
    read, write = await store.ledger.sum_calls("tool", 0)
    assert (read.key, read.uses, read.calls, read.cost) == ("read", 3, 2, pytest.approx(3.0))
    assert (write.key, write.uses, write.calls, write.cost) == ("write", 1, 1, pytest.approx(1.0))


# -- words ---------------------------------------------------------------------------------


def test_caps_concern_who_they_are_about() -> None:
    budget = BudgetSection(daily_usd=1, session_tokens=2, user_usd=3, job_tokens=4)
    assert [c.name for c in list_caps(budget, entry())] == ["daily_usd", "session_tokens"]
    both = list_caps(budget, entry(user="u", job="j"))
    assert [c.name for c in both] == ["daily_usd", "session_tokens", "user_usd", "job_tokens"]
    assert list_caps(BudgetSection(), entry(user="u")) == ()
    assert [c.limit for c in list_caps(BudgetSection(daily_usd=0), entry())] == [0]


@pytest.mark.parametrize("name", ["daily", "session", "user", "job"])
@pytest.mark.parametrize("unit", ["usd", "tokens"])
@pytest.mark.parametrize("limit", [0, 0.0001, 5, 123_456_789])
def test_sentences_are_short_and_say_what_to_do(name: str, unit: Any, limit: float) -> None:
    cap = Cap("x", f"{name}_{unit}", unit, limit)
    for text in (
        describe_refusal(CapLevel(cap, limit, limit), 0),
        describe_warning(CapWarning(cap, 90, limit), 0),
        describe_unpriced("openrouter:" + "m" * 60, tokens=name == "user"),
    ):
        assert len(text) <= 300, text
    assert f"budget.{name}_{unit}" in describe_refusal(CapLevel(cap, 1, 0), 0)


def test_amounts() -> None:
    assert [format_amount(x, "usd") for x in (0, 0.0042, 0.5, 1234.5)] == [
        "$0.00",
        "$0.0042",
        "$0.50",
        "$1,234.50",
    ]
    assert format_amount(12_000, "tokens") == "12,000 tokens"
