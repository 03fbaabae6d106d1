"""Auxiliary jobs: their own model, else a cheap one of the same endpoint, else the main one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from hermes.app.agents import Options
from hermes.app.runtime import Runtime
from hermes.config.load import load_setup
from hermes.core.message import user_message
from hermes.core.tool import ToolContext, tool
from hermes.llm.endpoints.endpoint import ModelChoice
from hermes.llm.endpoints.model_facts import find_facts
from hermes.llm.providers import find_provider, provider_index
from tests.kit import Home, Provider, Received, Reply, call, say, status
from tests.kit.rig import rig


class Params(Struct):
    job: str = "web_extract"


@tool("Asks a model.")
async def consult(p: Params, ctx: ToolContext) -> str:
    return await ctx.services.models.consult(p.job, user_message("in brief?"), max_output=77)


def anthropic(provider: Provider, model: str, **more: Any) -> dict[str, Any]:
    """The built-in row, at the scripted provider's address."""
    row = {"base_url": provider.base_url, "api_key_env": "KIT_KEY"}
    section = {"provider": "anthropic", "default": model, "base_url": "", "api_mode": None}
    return {"model": {**section, "api_key_env": ""}, "providers": {"anthropic": row}, **more}


def asks(count: int) -> Any:
    """Consults so often, then ends; the model that was asked each time is in the request."""

    def answer(request: Received) -> Reply:
        if "in brief?" in request.body.decode() and not request.json.get("tools"):
            return say("brief")
        done = request.body.decode().count("tool_result")
        return say("done") if done >= count else call((f"c{done}", "consult", {}))

    return answer


@pytest.mark.parametrize(
    ("main", "asked"),
    [
        ("claude-sonnet-4-5", "claude-haiku-4-5"),
        ("claude-haiku-4-5", "claude-haiku-4-5"),
        ("claude-of-tomorrow", "claude-of-tomorrow"),
    ],
    ids=["a cheaper one", "itself", "nothing is known"],
)
async def test_the_cheap_one_of_the_same_endpoint(tmp_path: Path, main: str, asked: str) -> None:
    provider = Provider([], wire="anthropic", then=asks(1))
    config = anthropic(provider, main)
    async with rig(tmp_path, provider, config=config, tools=[consult], check=False) as r:
        assert (await r.turn("look")).text == "done"
        assert [q.model for q in r.requests] == [main, asked, main]


async def test_one_that_fails_is_left_alone_for_a_while(tmp_path: Path) -> None:
    answer = asks(3)

    def step(request: Received) -> Reply:
        known = "haiku" not in request.model
        return answer(request) if known else status(404, "model: claude-haiku-4-5")

    provider = Provider([], wire="anthropic", then=step)
    config = anthropic(provider, "claude-sonnet-4-5")
    async with rig(tmp_path, provider, config=config, tools=[consult], check=False) as r:
        assert (await r.turn("look")).text == "done"
        assert sum("haiku" in q.model for q in r.requests) == 1
        assert len(r.requests) == 4 + 3 + 1


async def test_a_job_that_cannot_be_used_goes_to_the_main_model(tmp_path: Path) -> None:
    config = {"auxiliary": {"web_extract": {"provider": "openai", "model": "gpt-5-nano"}}}
    steps = [call(("c1", "consult", {})), say("brief"), say("done")]
    async with rig(tmp_path, steps, config=config, tools=[consult]) as r:
        assert (await r.turn("look")).text == "done"
    assert [q.model for q in r.requests[:3]] == ["kit-model"] * 3


async def test_a_job_has_its_own_limits(tmp_path: Path) -> None:
    async with Provider([]) as p:
        home = Home.of(tmp_path, p)
        own = {"model": "other", "request_timeout_seconds": 7, "stale_timeout_seconds": 3}
        home.configure(auxiliary={"vision": {**own, "context_length": 9000}, "title": {}})
        async with Runtime.open(load_setup("", home.env)) as runtime:
            jobs = runtime.auxiliary.models
            vision, title = jobs.configured("vision"), jobs.configured("title")
            assert vision is not None and title is not None and jobs.configured("approval") is None
            assert (vision.timeouts.total, vision.timeouts.stale) == (7, 3)
            assert vision.context_length == 9000 and vision.target.model == "other"
            assert title.timeouts.total == 30 and title.target.model == "kit-model"


async def test_one_client_per_endpoint(tmp_path: Path) -> None:
    async with Provider([]) as p:
        home = Home.of(tmp_path, p)
        home.configure(auxiliary={"vision": {"model": "seer"}, "title": {"model": "seer"}})
        async with Runtime.open(load_setup("", home.env)) as runtime:
            one = await runtime.session(cwd=home.work)
            two = await runtime.session(cwd=home.work, options=Options(max_turns=3))
            other = await runtime.session(
                cwd=home.work, options=Options(choice=ModelChoice(model="other"))
            )
            assert one.agent is not two.agent
            assert one.agent.providers[0] is two.agent.providers[0]
            assert one.agent.providers[0] is not other.agent.providers[0]
            (first,) = runtime.auxiliary.models.endpoints_for("vision", one.agent)
            (again,) = runtime.auxiliary.models.endpoints_for("vision", two.agent)
            assert first is again


def test_the_cheap_models_are_cheap_and_known() -> None:
    rows = [
        row
        for name in sorted(set(provider_index().key_variables.values()))
        if (row := find_provider(name)) and row.small_model
    ]
    assert len(rows) >= 5
    for row in rows:
        small, usual = (
            find_facts(row.name, row.small_model),
            find_facts(row.name, row.default_model),
        )
        assert small.prices and usual.prices, row.name
        assert small.prices.input < usual.prices.input and small.prices.output < usual.prices.output
        assert (small.context or 0) >= 64_000
