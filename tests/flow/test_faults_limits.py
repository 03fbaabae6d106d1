"""F37-F41: rate limits, quotas, overload, errors dressed as success, redirects."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from hermes.core.message import user_message
from tests.kit import WIRES, Gate, Provider, Reply, call, error_frame, raw, redirect, say, status
from tests.kit.errors import error_body
from tests.kit.home import KEY, SPARE_KEY
from tests.kit.rig import rig


def limited(**headers: str) -> Reply:
    named = {k.replace("_", "-"): v for k, v in headers.items()}
    return status(
        429, "Rate limit reached for requests", error="rate_limit_exceeded", headers=named
    )


# -- F37 -----------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", WIRES)
async def test_F37_retry_after_in_seconds_is_honoured(tmp_path: Path, wire: str) -> None:
    reply = status(429, "Too many requests", headers={"Retry-After": "7"})
    async with rig(tmp_path, [reply, say("ok")], wire=wire) as r:
        assert (await r.turn()).text == "ok"
        assert 7 <= sum(r.waits) <= 9, r.waits
        assert any(e.kind == "rate_limited" and e.wait >= 7 for e in r.recoveries)


async def test_F37_retry_after_as_a_date(tmp_path: Path) -> None:
    when = format_datetime(datetime.now(UTC) + timedelta(seconds=20), usegmt=True)
    async with rig(tmp_path, [limited(Retry_After=when), say("ok")]) as r:
        assert (await r.turn()).text == "ok" and 15 <= sum(r.waits) <= 23, r.waits


async def test_F37_only_the_wait_before_the_first_response_is_limited(tmp_path: Path) -> None:
    wait = limited(Retry_After="7")
    look = call(("c1", "read_file", {"path": "none"}))
    async with rig(tmp_path, [wait, look, wait, say("ok")]) as r:
        host = r.session.host
        limits = structs.replace(host.agent.limits, first_wait=4.0)
        host.agent = structs.replace(host.agent, limits=limits)
        refused = await r.turn()
        assert (refused.status, refused.retry_after, r.waits) == ("failed", 7, [])
        assert (await r.turn("again")).text == "ok" and 7 <= sum(r.waits) <= 9, r.waits


async def test_F37_retry_after_in_milliseconds(tmp_path: Path) -> None:
    async with rig(tmp_path, [limited(retry_after_ms="2500"), say("ok")]) as r:
        assert (await r.turn()).text == "ok" and 2.5 <= sum(r.waits) <= 4, r.waits


@pytest.mark.parametrize("header", [None, "-5", "soon", "nan", "", "1e999"])
async def test_F37_absent_or_impossible_retry_after_is_a_backoff(
    tmp_path: Path, header: str | None
) -> None:
    reply = limited() if header is None else limited(Retry_After=header)
    async with rig(tmp_path, [reply, say("ok")]) as r:
        assert (await r.turn()).text == "ok"
        assert r.waits and all(0 < w <= 60 for w in r.waits), r.waits


async def test_F37_an_hour_is_not_waited_for_but_told(tmp_path: Path) -> None:
    async with rig(tmp_path, [limited(Retry_After="3600")]) as r:
        result = await r.turn()
        assert result.status == "failed" and result.error_code == "rate_limited"
        assert sum(r.waits) <= 120 and len(r.requests) == 1
        assert any(word in result.error for word in ("3600", "60 min", "1 h", "1h")), result.error


async def test_F37_an_hour_falls_back(tmp_path: Path) -> None:
    async with (
        Provider([say("spare")]) as spare,
        rig(tmp_path, [limited(Retry_After="3600")], spare=spare) as r,
    ):
        assert (await r.turn()).text == "spare"
        assert not r.waits and len(r.requests) == 1


async def test_F37_it_is_waited_for_at_most_twice(tmp_path: Path) -> None:
    async with rig(tmp_path, [], then=limited(Retry_After="3")) as r:
        result = await r.turn()
        assert result.status == "failed" and result.error_code == "rate_limited"
        assert len(r.requests) == 3 and len([w for w in r.waits if w >= 3]) == 2


async def test_F37_then_the_next_credential_then_the_fallback(tmp_path: Path) -> None:
    pool = {"api_key_envs": ["KIT_KEY", "SPARE_KEY"]}
    config = {"model": {"api_key_env": ""}, "providers": {"custom": pool}}
    async with (
        Provider([say("spare")]) as spare,
        rig(tmp_path, [], then=limited(Retry_After="1"), spare=spare, config=config) as r,
    ):
        assert (await r.turn()).text == "spare"
        keys = [q.headers["authorization"].removeprefix("Bearer ") for q in r.requests]
        assert keys[0] == KEY and SPARE_KEY in keys and len(keys) <= 6


async def test_F37_a_shared_limiter_stops_the_herd(tmp_path: Path) -> None:
    """While one session waits for the endpoint, the others do not call it."""
    gate = Gate()
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        await gate.arrive()

    async with rig(tmp_path, [limited(Retry_After="30")], sleep=sleep) as r:
        first = r.begin("first")
        await gate.reached()
        assert len(r.requests) == 1
        others = [await r.runtime.open_session(cwd=r.home.work) for _ in range(5)]
        turns = [s.submit(user_message(f"herd {i}")) for i, s in enumerate(others)]
        for _ in range(200):
            await asyncio.sleep(0)
        await asyncio.sleep(0.15)
        assert len(r.requests) == 1, "the herd ran into the limit"
        r.provider.then = say("ok")
        gate.open()
        assert (await first).text == "ok"
        for done in await asyncio.gather(*turns):
            assert done.text == "ok"
        for session in others:
            await session.close()


# -- F38, F39 ------------------------------------------------------------------------------

QUOTA = [
    ("insufficient_quota", "You exceeded your current quota, please check your plan and billing."),
    ("", "Your account has run out of credits for this billing period."),
]


@pytest.mark.parametrize(("code", "message"), QUOTA)
async def test_F38_a_429_that_means_no_quota_is_treated_as_402(
    tmp_path: Path, code: str, message: str
) -> None:
    async with rig(tmp_path, [status(429, message, error=code)]) as r:
        result = await r.turn()
        assert result.status == "failed" and result.error_code == "billing"
        assert len(r.requests) == 1 and not r.waits


STATUSES = [500, 502, 503, 504, 520, 521, 522, 523, 524, 529]


async def test_F39_every_server_error_is_retried_with_backoff(tmp_path: Path) -> None:
    async with rig(tmp_path, []) as r:
        for code in STATUSES:
            r.waits.clear()
            before = len(r.requests)
            r.provider.add(status(code, "try later"), status(code, "try later"), say(f"{code} ok"))
            result = await r.turn(f"status {code}")
            assert result.status == "completed" and result.text == f"{code} ok", code
            assert len(r.requests) - before == 3
            assert len(r.waits) >= 2 and all(0 < w <= 60 for w in r.waits), r.waits


@pytest.mark.parametrize("wire", WIRES)
async def test_F39_on_every_wire(tmp_path: Path, wire: str) -> None:
    code = 529 if wire == "anthropic" else 503
    async with rig(tmp_path, [status(code, "Overloaded"), say("ok")], wire=wire) as r:
        assert (await r.turn()).text == "ok" and r.waits


@pytest.mark.parametrize(("code", "name"), [(500, "server_error"), (529, "overloaded")])
async def test_F39_for_ever_falls_back_or_is_reported(tmp_path: Path, code: int, name: str) -> None:
    async with rig(tmp_path, [], then=status(code, "still down")) as r:
        result = await r.turn()
        assert result.status == "failed" and result.error_code == name and len(r.requests) == 4
    (tmp_path / "two").mkdir()
    async with (
        Provider([say("spare")], wire="responses") as spare,
        rig(tmp_path / "two", [], then=status(code, "still down"), spare=spare) as r,
    ):
        assert (await r.turn()).text == "spare" and len(r.requests) == 4


async def test_F39_waiting_is_interruptible_at_any_moment(tmp_path: Path) -> None:
    gate = Gate()

    async def sleep(_: float) -> None:
        await gate.arrive()

    async with rig(tmp_path, [status(503, "down")], sleep=sleep) as r:
        turn = r.begin()
        await gate.reached()
        r.session.interrupt()
        result = await asyncio.wait_for(turn, 90)
        assert result.status == "interrupted" and len(r.requests) == 1


# -- F40, F41 ------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", [w for w in WIRES if w != "bedrock"])
async def test_F40_an_error_object_with_status_200_counts_as_its_code(
    tmp_path: Path, wire: str
) -> None:
    def dressed(code: int, message: str, error: Any = "") -> Reply:
        return raw(error_body(wire, code, message, error or (code if wire == "chat" else "")))

    async with rig(tmp_path, [], wire=wire) as r:
        busy = "overloaded_error" if wire == "anthropic" else ""
        if wire == "responses":
            busy = "server_error"
        r.provider.add(dressed(503, "The server is overloaded", busy), say("ok"))
        result = await r.turn("busy")
        assert result.status == "completed" and result.text == "ok" and r.waits
        auth = "invalid_api_key" if wire in ("chat", "responses") else ""
        r.provider.add(dressed(401, "Incorrect API key provided", auth))
        count = len(r.requests)
        result = await r.turn("auth")
        assert result.error_code == "auth" and len(r.requests) == count + 1


async def test_F40_on_bedrock_a_message_without_output_is_no_answer(tmp_path: Path) -> None:
    body = json.dumps({"message": "Too many requests, please wait"}).encode()
    reply = raw(body).headers(**{"x-amzn-errortype": "ThrottlingException"})
    async with rig(tmp_path, [reply, say("ok")], wire="bedrock") as r:
        assert (await r.turn()).text == "ok" and r.waits


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
async def test_F41_a_redirect_is_reported_and_no_credential_leaves(
    tmp_path: Path, code: int
) -> None:
    async with (
        Provider(then=say("caught")) as other,
        rig(tmp_path, [redirect(other.base_url + "/chat/completions", code)]) as r,
    ):
        result = await r.turn()
        assert result.status == "failed" and result.error_code == "network"
        assert "redirect" in result.error.lower()
        assert len(r.requests) == 1
        assert not other.requests and not other.lookups and other.connections == 0


async def test_F41_not_to_another_path_of_the_same_host_either(tmp_path: Path) -> None:
    async with rig(tmp_path, []) as r:
        r.provider.add(redirect(r.provider.base_url + "/elsewhere", 307))
        result = await r.turn()
        assert result.status == "failed" and len(r.requests) == 1 and not r.provider.lookups


async def test_F14_F37_an_error_frame_may_carry_the_limit_too(tmp_path: Path) -> None:
    frame = error_frame("Rate limit reached", status=429, code="rate_limit_exceeded")
    async with rig(tmp_path, [frame, frame, say("ok")]) as r:
        assert (await r.turn()).text == "ok" and len(r.waits) >= 2
