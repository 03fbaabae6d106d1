"""The table of errors in loop.md, row by row, with what is there to go on with: nothing else, a
pool of keys, a fallback, both."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hermes.core.errors import Failure, Kind
from hermes.llm.auth.cooldown import Cooldowns
from hermes.llm.auth.key_pool import Credential, KeyPool, PoolStrategy
from hermes.llm.errors.retry_after import retry_after
from tests.kit import Provider, Received, Reply, call, reset, say, status
from tests.kit.home import KEY, SPARE_KEY
from tests.kit.rig import rig

THIRD = "sk-third-5544332211009988776655443322"
NAMES = {KEY: "a", SPARE_KEY: "b", THIRD: "c"}
ENVS = ["KIT_KEY", "SPARE_KEY", "THIRD_KEY"]
NO_MODEL = status(404, "The model `kit-model` does not exist", error="model_not_found")
OVERFLOW = status(
    400,
    "This model's maximum context length is 8192 tokens, however you requested 9000 tokens",
    error="context_length_exceeded",
)
POLICY = status(400, "The prompt was filtered by the content policy", error="content_filter")
ORDER = status(
    400,
    "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
    "'tool_call_id'.",
)


@dataclass(frozen=True)
class Case:
    """A refusal that stays, and the keys it is met with: `alone` by one key, `pool` by three."""

    refusal: Reply
    code: str
    alone: str
    pool: str
    waits: int = 0
    says: str = ""
    """Stands in the message when nothing is left to go on with."""


CASES = {
    "401": Case(status(401, "no such key", error="invalid_api_key"), "auth", "a", "abc"),
    "403": Case(status(403, "You have no access to this"), "auth", "a", "abc"),
    "402": Case(status(402, "Insufficient credits"), "billing", "a", "abc", says="balance"),
    "quota": Case(
        status(429, "You exceeded your current quota", error="insufficient_quota"),
        "billing",
        "a",
        "abc",
        says="quota",
    ),
    "429": Case(
        status(429, "slow down", headers={"Retry-After": "3"}),
        "rate_limited",
        "aaa",
        "aaabc",
        waits=2,
        says="3 s",
    ),
    "429 for an hour": Case(
        status(429, "slow down", headers={"Retry-After": "3600"}),
        "rate_limited",
        "a",
        "abc",
        says="60 min",
    ),
    "500": Case(status(500, "boom"), "server_error", "aaaa", "aaaa", waits=2),
    "529": Case(status(529, "busy"), "overloaded", "aaaa", "aaaa", waits=2),
    "network": Case(reset(), "network", "aaaa", "aaaa", waits=2, says="cannot reach"),
    "overflow": Case(OVERFLOW, "context_overflow", "a", "a", says="too long"),
    "413": Case(status(413, "too large"), "payload_too_large", "a", "a", says="too large"),
    "parameter": Case(
        status(400, "Unknown parameter: 'frobnicate'.", param="frobnicate"),
        "bad_request",
        "aa",
        "aa",
        says="frobnicate",
    ),
    "404": Case(NO_MODEL, "model_not_found", "a", "a", says="kit-model-2"),
    "policy": Case(POLICY, "content_policy", "a", "a", says="content policy"),
    "order": Case(ORDER, "bad_request", "aa", "aa", says="tool_calls"),
}


def pool(count: int, **settings: Any) -> dict[str, Any]:
    row = {"api_key_envs": ENVS[:count], **settings}
    return {"model": {"api_key_env": ""}, "providers": {"custom": row}}


def keys_used(provider: Provider) -> str:
    sent = [q.headers["authorization"].removeprefix("Bearer ") for q in provider.requests]
    return "".join(NAMES[key] for key in sent)


def main_provider(then: Reply) -> Provider:
    return Provider(then=then, models=["kit-model-2", "other"])


@pytest.mark.parametrize("name", list(CASES))
@pytest.mark.parametrize("keys", [1, 3])
async def test_with_no_fallback_it_is_reported(tmp_path: Path, name: str, keys: int) -> None:
    case = CASES[name]
    config = pool(keys) if keys > 1 else {}
    env = {"THIRD_KEY": THIRD}
    async with rig(tmp_path, main_provider(case.refusal), config=config, env=env) as r:
        result = await r.turn()
        assert result.status == "failed" and result.error_code == case.code
        assert keys_used(r.provider) == (case.pool if keys > 1 else case.alone)
        assert len(r.waits) == case.waits
        assert case.says in result.error and len(result.error) <= 300
        if case.code == "auth":
            assert ENVS[keys - 1] in result.error, "the variable to put right"


@pytest.mark.parametrize("name", list(CASES))
@pytest.mark.parametrize("keys", [1, 3])
async def test_with_a_fallback_it_answers_and_the_primary_is_tried_again(
    tmp_path: Path, name: str, keys: int
) -> None:
    case = CASES[name]
    config = pool(keys) if keys > 1 else {}
    env = {"THIRD_KEY": THIRD}
    async with (
        Provider(then=say("spare")) as spare,
        rig(tmp_path, main_provider(case.refusal), spare=spare, config=config, env=env) as r,
    ):
        result = await r.turn()
        assert result.status == "completed" and result.text == "spare"
        assert keys_used(r.provider) == (case.pool if keys > 1 else case.alone)
        assert len(spare.requests) == 1 and len(r.waits) == case.waits
        assert [n.code for n in r.notices].count("fallback") == 1
        before = len(r.requests)
        r.provider.then = say("primary")
        assert (await r.turn("again")).text == "primary"
        assert len(r.requests) == before + 1 and len(spare.requests) == 1


async def test_the_key_of_the_model_is_the_first_of_its_pool(tmp_path: Path) -> None:
    config = {"providers": {"custom": {"api_key_envs": ["SPARE_KEY", "KIT_KEY"]}}}
    refused = status(401, "bad", error="invalid_api_key")
    async with rig(tmp_path, [refused, say("ok")], config=config) as r:
        assert (await r.turn()).text == "ok" and keys_used(r.provider) == "ab"


async def test_content_policy_is_not_met_twice_in_a_chain(tmp_path: Path) -> None:
    """Once to a fallback; when that refuses as well, it is said."""
    async with (
        Provider(then=POLICY) as spare,
        Provider(then=say("I would say anything")) as third,
    ):
        row = {"base_url": third.base_url, "api_key_env": "SPARE_KEY"}
        config = {"providers": {"third": row}, "fallback_providers": ["spare:s", "third:t"]}
        config["providers"]["spare"] = {**row, "base_url": spare.base_url}
        async with rig(tmp_path, [], then=POLICY, config=config) as r:
            result = await r.turn()
            assert result.status == "failed" and result.error_code == "content_policy"
            assert (len(r.requests), len(spare.requests), len(third.requests)) == (1, 1, 0)


async def test_a_policy_behind_another_failure_still_has_one_fallback(tmp_path: Path) -> None:
    async with Provider(then=POLICY) as spare, Provider(then=say("third")) as third:
        row = {"base_url": third.base_url, "api_key_env": "SPARE_KEY"}
        config = {"providers": {"third": row}, "fallback_providers": ["spare:s", "third:t"]}
        config["providers"]["spare"] = {**row, "base_url": spare.base_url}
        refused = status(401, "bad", error="invalid_api_key")
        async with rig(tmp_path, [], then=refused, config=config) as r:
            assert (await r.turn()).text == "third"


async def test_a_chain_is_gone_through_in_order(tmp_path: Path) -> None:
    second, third = Provider(then=status(500, "boom")), Provider(then=say("third"), wire="gemini")
    async with second, third:
        row = {"base_url": third.base_url, "api_mode": "gemini", "api_key_env": "SPARE_KEY"}
        spare = {"base_url": second.base_url, "api_key_env": "SPARE_KEY"}
        config = {
            "providers": {"spare": spare, "third": row},
            "fallback_providers": ["spare:s", "nokey:x", "third:t"],
        }
        config["providers"]["nokey"] = {"base_url": "http://127.0.0.1:9/v1", "api_key_env": "NO"}
        refused = status(401, "bad", error="invalid_api_key")
        async with rig(tmp_path, [], then=refused, config=config) as r:
            result = await r.turn()
            assert result.text == "third"
            assert result.target is not None and result.target.provider == "third"
            assert (len(r.requests), len(second.requests), len(third.requests)) == (1, 4, 1)


async def test_a_fallback_in_mid_turn_keeps_the_transcript(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a.txt").write_text("alpha")
    steps = [call(("c1", "read_file", {"path": "a.txt"})), *[status(503, "busy")] * 4]
    async with (
        Provider(then=say("alpha, it says"), wire="anthropic") as spare,
        rig(tmp_path, steps, spare=spare) as r,
    ):
        result = await r.turn("what is in a.txt?")
        assert result.status == "completed" and len(r.started) == 1, "nothing is done twice"
        assert b"alpha" in spare.last.body and b"what is in a.txt?" in spare.last.body


@pytest.mark.parametrize(
    ("field", "message", "config"),
    [
        ("stream_options", "Unknown parameter: 'stream_options'.", {}),
        ("tools", "tools is not supported in this model.", {}),
        ("reasoning_effort", "Unrecognized request argument supplied: reasoning_effort", {}),
        ("max_tokens", "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens'.", {}),
    ],
)
@pytest.mark.parametrize("keys", [1, 2])
async def test_a_parameter_is_dropped_for_this_endpoint_only(
    tmp_path: Path, field: str, message: str, config: dict[str, Any], keys: int
) -> None:
    """Without a key or a fallback being spent on it."""

    def picky(request: Received) -> Reply:
        return status(400, message, param=field) if field in request.json else say("ok")

    config = {"agent": {"reasoning_effort": "low"}, **(pool(keys) if keys > 1 else {})}
    config["model"] = {**config.get("model", {}), "max_tokens": 500}
    async with (
        Provider(then=say("spare")) as spare,
        rig(tmp_path, [], then=picky, spare=spare, config=config) as r,
    ):
        assert (await r.turn()).text == "ok" and keys_used(r.provider) == "aa"
        assert (await r.turn("again")).text == "ok" and len(r.requests) == 3
        assert not spare.requests


# -- pools ---------------------------------------------------------------------------------------

POOL_KEYS = tuple(Credential(f"KEY_{n}", f"sk-secret-{n}") for n in "abc")


def order(strategy: PoolStrategy, calls: int) -> list[str]:
    made = KeyPool("http://x", POOL_KEYS, Cooldowns(), strategy)
    return [made.take_next_key().source[-1] for _ in range(calls)]


def test_how_keys_are_taken() -> None:
    assert "".join(order("fill-first", 5)) == "aaaaa"
    assert "".join(order("round-robin", 5)) == "abcab"
    assert sorted(order("least-used", 6)) == list("aabbcc")
    assert set(order("random", 200)) == set("abc")


@pytest.mark.parametrize("strategy", ["fill-first", "round-robin", "least-used", "random"])
def test_a_key_that_cools_down_is_left_out_until_its_time(strategy: PoolStrategy) -> None:
    now = [1000.0]
    cooling = Cooldowns(clock=lambda: now[0])
    made = KeyPool("http://x", POOL_KEYS, cooling, strategy)
    first = POOL_KEYS[0]
    assert made.set_aside(first, Failure(Kind.BILLING, "", retry_after=90.0))
    assert first not in {made.take_next_key() for _ in range(60)}
    now[0] += 91
    assert first in {made.take_next_key() for _ in range(60)}, "it is back at its reset time"


def test_when_all_cool_down_the_first_to_be_back_is_taken() -> None:
    made = KeyPool("http://x", POOL_KEYS, Cooldowns())
    for key, seconds in zip(POOL_KEYS, (300.0, 20.0, 100.0), strict=True):
        left = made.set_aside(key, Failure(Kind.RATE_LIMITED, "", retry_after=seconds))
        assert left == (key is not POOL_KEYS[2])
    assert made.pick_key() is POOL_KEYS[1]


@pytest.mark.parametrize(
    ("headers", "message", "seconds"),
    [
        ({"Retry-After": "120"}, "", 120),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6m0s"}, "", 360),
        ({}, "usage limit reached (resets_in_seconds: 7200)", 7200),
        ({}, "usage limit reached (resets_at: {in 90})", 90),
        ({}, "Your limit will reset at {iso 600}.", 600),
        ({}, "quota exceeded, try again in 1h30m", 5400),
        ({}, "nothing is said", None),
    ],
)
def test_the_stated_reset(headers: dict[str, str], message: str, seconds: float | None) -> None:
    from datetime import UTC, datetime

    now = time.time()
    message = message.replace("{in 90}", str(int(now + 90)))
    iso = datetime.fromtimestamp(now + 600, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    found = retry_after(headers, message.replace("{iso 600}", iso))
    assert found == (None if seconds is None else pytest.approx(seconds, abs=3))


async def test_a_stated_reset_in_the_body_is_how_long_a_key_rests(tmp_path: Path) -> None:
    when = int(time.time()) + 5000
    body = f'{{"error":{{"type":"usage_limit_reached","message":"limit","resets_at":{when}}}}}'
    used_up = Reply(body=body.encode(), code=429, content_type="application/json", framing="length")
    async with rig(tmp_path, [used_up], then=say("ok"), config=pool(2)) as r:
        assert (await r.turn()).text == "ok" and keys_used(r.provider) == "ab"
        left = r.runtime.agents.cooldowns.seconds_left((r.provider.base_url, KEY))
        assert 4900 < left <= 5000


async def test_rotation_is_seen_in_the_log_and_the_key_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    refused = status(401, f"the key {KEY} is bad", error="invalid_api_key")
    with caplog.at_level(logging.INFO):
        async with rig(tmp_path, [refused], then=say("ok"), config=pool(2)) as r:
            await r.turn()
    assert "KIT_KEY set aside" in caplog.text and "now SPARE_KEY" in caplog.text
    assert KEY not in caplog.text and SPARE_KEY not in caplog.text


@pytest.mark.parametrize(
    ("strategy", "used"), [("fill-first", "aaa"), ("round-robin", "aba"), ("least-used", "aba")]
)
async def test_a_strategy_from_the_configuration(tmp_path: Path, strategy: str, used: str) -> None:
    async with rig(tmp_path, [], then=say("ok"), config=pool(2, pool=strategy)) as r:
        for text in "one", "two", "three":
            await r.turn(text)
        assert keys_used(r.provider) == used
