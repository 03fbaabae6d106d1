"""Pools of keys: whose turn it is, who rests, and who remembers that."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes.core.errors import Failure, Kind
from hermes.llm.auth.cooldown import Cooldowns
from hermes.llm.auth.key_pool import Credential, KeyPool, PoolStrategy

KEYS = [Credential("A", "key-a"), Credential("B", "key-b"), Credential("C", "key-c")]
URL = "https://api.example/v1"
BROKE = Failure(Kind.BILLING, "no credit")


def taken(pool: KeyPool, times: int) -> str:
    return "".join(pool.take_next_key().source for _ in range(times))


@pytest.mark.parametrize(
    ("strategy", "turns"),
    [("fill-first", "AAAA"), ("round-robin", "ABCA"), ("least-used", "ABCA")],
)
def test_whose_turn_it_is(strategy: PoolStrategy, turns: str) -> None:
    assert taken(KeyPool(URL, KEYS, Cooldowns(), strategy), 4) == turns


def test_chance_takes_them_all() -> None:
    assert set(taken(KeyPool(URL, KEYS, Cooldowns(), "random"), 200)) == set("ABC")


@pytest.mark.parametrize("strategy", ["fill-first", "round-robin", "least-used", "random"])
def test_a_key_set_aside_is_left_alone_until_it_is_back(strategy: PoolStrategy) -> None:
    now = [1000.0]
    pool = KeyPool(URL, KEYS, Cooldowns(clock=lambda: now[0]), strategy)
    assert pool.set_aside(KEYS[0], BROKE)
    assert "A" not in taken(pool, 50)
    assert pool.set_aside(KEYS[1], Failure(Kind.RATE_LIMITED, "", retry_after=30))
    assert taken(pool, 5) == "CCCCC"
    assert not pool.set_aside(KEYS[2], BROKE)
    assert pool.pick_key().source == "B"  # back first
    now[0] += 31
    assert taken(pool, 3) == "BBB"
    now[0] += 4000
    assert set(taken(pool, 200)) >= {"A"}


def test_the_next_process_knows_and_the_file_holds_no_key(tmp_path: Path) -> None:
    file = tmp_path / "cache" / "cooling.json"
    now = [1000.0]
    KeyPool(URL, KEYS, Cooldowns(file, lambda: now[0])).set_aside(KEYS[0], BROKE)
    later = KeyPool(URL, KEYS, Cooldowns(file, lambda: now[0]))
    assert later.pick_key().source == "B"
    assert (
        KeyPool("https://other.example", KEYS, Cooldowns(file, lambda: now[0])).pick_key().source
        == "A"
    )
    assert "key-a" not in file.read_text() and file.stat().st_mode & 0o077 == 0
    file.write_text("garbage")
    assert KeyPool(URL, KEYS, Cooldowns(file)).pick_key().source == "A"


def test_processes_that_run_learn_of_each_other(tmp_path: Path) -> None:
    file = tmp_path / "cooling.json"
    pools = [KeyPool(URL, KEYS, Cooldowns(file)) for _ in range(2)]
    assert [pool.pick_key().source for pool in pools] == ["A", "A"]
    pools[0].set_aside(KEYS[0], BROKE)
    assert pools[1].pick_key().source == "B"
    pools[1].set_aside(KEYS[1], BROKE)
    assert [pool.pick_key().source for pool in pools] == ["C", "C"]


def test_one_key_is_never_set_aside() -> None:
    pool = KeyPool(URL, KEYS[:1], Cooldowns())
    assert not pool.set_aside(KEYS[0], BROKE) and pool.take_next_key().source == "A"
