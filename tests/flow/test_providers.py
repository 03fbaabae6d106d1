"""What providers do differently, in whole turns: lessons, notes, limits, switching."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from hermes.core.message import user_message
from hermes.llm.http.transport import Transport
from tests.kit import Provider, Received, Reply, call, run_hermes, say, stall, status, think
from tests.kit.home import Home
from tests.kit.rig import rig


def as_provider(name: str, model: str, provider: Provider, **agent: Any) -> dict[str, Any]:
    """The built-in row of this name, called at the scripted one's address."""
    return {
        "model": {"provider": name, "default": model, "base_url": "", "api_key_env": ""},
        "providers": {name: {"base_url": provider.base_url, "api_key_env": "KIT_KEY"}},
        "agent": agent,
    }


def reading(root: Path) -> tuple[str, str, dict[str, str]]:
    (root / "work").mkdir(exist_ok=True)
    (root / "work" / "a.txt").write_text("alpha")
    return ("c1", "read_file", {"path": "a.txt"})


# -- Kimi ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "refusal",
    [
        status(400, "thinking and reasoning_effort cannot be used together"),
        status(400, "Invalid request: only one may be set", param="reasoning_effort"),
        status(400, "Invalid request"),
    ],
)
async def test_kimi_that_takes_only_one_of_two_fields(tmp_path: Path, refusal: Reply) -> None:
    def picky(request: Received) -> Reply:
        both = {"thinking", "reasoning_effort"} <= set(request.json)
        return refusal if both else say("ok")

    provider = Provider(then=picky)
    config = as_provider("kimi", "kimi-k2.5", provider, reasoning_effort="high")
    async with rig(tmp_path, provider, config=config) as r:
        assert (await r.turn()).text == "ok" and len(r.requests) == 2
        first, second = (q.json for q in r.requests)
        assert first["thinking"] == {"type": "enabled"} and "thinking" not in second
        assert second["reasoning_effort"] == first["reasoning_effort"] == "high"
        assert (await r.turn("again")).text == "ok" and len(r.requests) == 3, "remembered"


async def test_kimi_reasoning_goes_back_with_its_call_in_a_turn(tmp_path: Path) -> None:
    provider = Provider([think("I look") + call(reading(tmp_path)), say("alpha")])
    async with rig(tmp_path, provider, config=as_provider("kimi", "kimi-k2", provider)) as r:
        assert (await r.turn()).text == "alpha"
        said = [m for m in r.requests[1].json["messages"] if m["role"] == "assistant"]
        assert said[0]["reasoning_content"] == "I look"


# -- efforts -------------------------------------------------------------------------------------


async def test_an_unknown_effort_is_lowered_with_one_note(tmp_path: Path) -> None:
    provider = Provider(then=say("ok"))
    config = as_provider("kimi", "kimi-k2", provider, reasoning_effort="xhigh")
    async with rig(tmp_path, provider, config=config) as r:
        await r.turn()
        await r.turn("again")
        assert [q.json["reasoning_effort"] for q in r.requests] == ["high", "high"]
        notes = [n.text for n in r.notices if n.code == "effort"]
        assert len(notes) == 1 and "xhigh" in notes[0] and "high" in notes[0]


@pytest.mark.parametrize(
    ("message", "used"),
    [
        (
            "Unsupported value: 'xhigh' is not supported with this model. Supported values are: "
            "'none', 'low', and 'medium'.",
            "medium",
        ),
        ("reasoning_effort 'xhigh' is not supported by this model", "high"),
        ("reasoning_effort: Input should be 'low' or 'high'", "high"),
    ],
)
async def test_a_refused_effort_is_lowered_to_what_is_left(
    tmp_path: Path, message: str, used: str
) -> None:
    def picky(request: Received) -> Reply:
        if request.json.get("reasoning_effort") == "xhigh":
            return status(400, message, param="reasoning_effort")
        return say("ok")

    config = {"agent": {"reasoning_effort": "xhigh"}}
    async with rig(tmp_path, [], then=picky, config=config) as r:
        assert (await r.turn()).text == "ok"
        assert (await r.turn("again")).text == "ok"
        asked = [q.json.get("reasoning_effort") for q in r.requests]
        assert asked == ["xhigh", used, used], "remembered"
        assert len([n for n in r.notices if n.code == "effort"]) == 1


# -- addresses -----------------------------------------------------------------------------------


async def test_an_address_without_v1_is_hinted_at_before_the_call(tmp_path: Path) -> None:
    async with Provider(then=say("ok")) as provider:
        home = Home.of(tmp_path, provider, model={"base_url": provider.origin})
        done = await run_hermes(["chat", "-q", "hi"], home)
        assert f"set it to {provider.origin}/v1" in done.stderr


def test_a_key_over_plain_http_is_warned_of_once_and_only_in_public(
    caplog: pytest.LogCaptureFixture,
) -> None:
    transport = Transport()
    with caplog.at_level(logging.WARNING):
        for url in ("http://127.0.0.1:1/v1", "http://10.1.2.3/v1", "http://lab.local/v1"):
            transport.warn_plain_http(url)
        transport.warn_plain_http("https://api.example.com/v1")
        assert not caplog.records
        transport.warn_plain_http("http://api.example.com/v1")
        transport.warn_plain_http("http://api.example.com/v2")
    assert len(caplog.records) == 1 and "api.example.com" in caplog.text


# -- limits on every path ------------------------------------------------------------------------

QUICK = {"ttfb_timeout_seconds": 0.1, "stale_timeout_seconds": 9, "request_timeout_seconds": 30}
SLOW = {"ttfb_timeout_seconds": 30, "stale_timeout_seconds": 30, "request_timeout_seconds": 60}


@pytest.mark.parametrize("per_model", [False, True])
async def test_limits_hold_on_the_main_model_and_on_the_fallback(
    tmp_path: Path, per_model: bool
) -> None:
    def settings(model: str) -> dict[str, Any]:
        return {**SLOW, "models": {model: QUICK}} if per_model else QUICK

    config = {
        "agent": {"api_max_retries": 1},
        "providers": {"custom": settings("kit-model"), "spare": settings("spare-model")},
    }
    async with (
        Provider(then=stall()) as spare,
        rig(tmp_path, [], then=stall(), spare=spare, config=config) as r,
    ):
        result = await r.turn(timeout=90)
        assert result.status == "failed" and result.error_code == "stalled"
        assert len(r.requests) == 2 and len(spare.requests) == 2  # one more on a new connection
        spare.then = say("still here")


async def test_limits_hold_for_auxiliary_jobs(tmp_path: Path) -> None:
    async with (
        Provider(then=stall()) as small,
        rig(
            tmp_path,
            [],
            then=say("from the main model"),
            config={
                "providers": {"small": {"base_url": small.base_url, **SLOW}},
                "auxiliary": {"title": {"provider": "small", "model": "s", **QUICK}},
            },
        ) as r,
    ):
        said = await r.session.host.consult("title", user_message("name it"))
        assert said == "from the main model" and len(small.requests) >= 1


# -- switching -----------------------------------------------------------------------------------


async def test_another_provider_in_the_configuration_brings_nothing_along(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.configure(
        model={
            "default": "m",
            "provider": "custom",
            "base_url": "https://old.example/v1",
            "api_mode": "responses",
            "api_key_env": "OLD_KEY",
            "max_tokens": 500,
        }
    )
    done = await run_hermes(["config", "set", "model.provider", "anthropic"], home)
    assert done.rc == 0, done.stderr
    text = (home.path / "config.yaml").read_text()
    assert "old.example" not in text and "OLD_KEY" not in text and "responses" not in text
    assert "max_tokens: 500" in text and "anthropic" in text
    assert "model.base_url" in done.stdout, "and it says so"
    home.configure(model={"default": "m", "provider": "anthropic", "api_key_env": "MINE"})
    done = await run_hermes(["config", "set", "model.provider", "anthropic"], home)
    assert done.rc == 0 and "MINE" in (home.path / "config.yaml").read_text(), "the same one"
