"""Things beside the sessions: whose they are, how many stay, and that they are still there."""

from __future__ import annotations

from typing import Any

import pytest

from hermes.store.sqlite import SqliteStore
from tests.unit.store.conftest import MakeStore
from tests.unit.store.stores import on_both_databases

pytestmark = on_both_databases


@pytest.fixture
def store(make_store: MakeStore) -> Any:
    now = iter(range(1, 10_000))
    return make_store(clock=lambda: float(next(now)))


async def test_what_belongs_to_one_is_not_there_for_another(store: SqliteStore) -> None:
    objects = store.objects
    await objects.put("response", "r1", b"mine", owner="a")
    assert await objects.get("response", "r1", owner="b") is None
    assert await objects.get("run", "r1", owner="a") is None
    assert not await objects.remove("response", "r1", owner="b")
    await objects.put("response", "r1", b"stolen", owner="b")
    found = await objects.get("response", "r1", owner="a")
    assert found is not None and found.body == b"mine"
    assert await objects.remove("response", "r1", owner="a")
    assert await objects.get("response", "r1", owner="a") is None


async def test_the_least_recently_used_goes_first_and_its_events_with_it(
    store: SqliteStore,
) -> None:
    objects = store.objects
    for name in ("r1", "r2", "r3"):
        await objects.put("response", name, name.encode(), keep_latest=3)
        await objects.append_events(name, 1, [b"one", b"two"])
    await objects.get("response", "r1", owner="", touch=True)
    await objects.put("response", "r4", b"", keep_latest=3)
    assert [o.id for o in await objects.list_all("response")] == ["r1", "r3", "r4"]
    assert await objects.read_events("r2") == []
    assert await objects.read_events("r1") == [b"one", b"two"]


async def test_only_the_first_of_two_is_added(store: SqliteStore) -> None:
    assert await store.objects.add("key", "k", b"first")
    assert not await store.objects.add("key", "k", b"second")
    found = await store.objects.get("key", "k", owner="")
    assert found is not None and found.body == b"first"


async def test_events_keep_their_numbers_and_their_bytes(make_store: MakeStore) -> None:
    store = make_store()
    await store.objects.append_events("run", 1, [b"a", b"b"])
    await store.objects.append_events("run", 2, [b"never", b"c"])
    await store.close()
    again = make_store()
    assert await again.objects.read_events("run") == [b"a", b"b", b"c"]
    assert await again.objects.read_events("run", after=1, limit=1) == [b"b"]
    assert await again.objects.read_events("other") == []
    await again.close()
