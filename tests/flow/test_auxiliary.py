"""Questions beside the conversation go to the job's own model, else to the conversation's."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from hermes.core.message import user_message
from hermes.core.tool import ToolContext, tool
from tests.kit import Provider, call, say, status
from tests.kit.home import SPARE_KEY
from tests.kit.rig import rig


class Params(Struct):
    question: str


@tool("Asks a model.")
async def consult(p: Params, ctx: ToolContext) -> str:
    return await ctx.services.models.consult(
        "vision", user_message(p.question), system="Be short.", max_output=77
    )


def _script() -> list:
    return [call(("c1", "consult", {"question": "what is it?"}))]


def _config(provider: Provider) -> dict:
    job = {"provider": "custom", "model": "seer", "base_url": provider.base_url}
    return {"auxiliary": {"vision": {**job, "api_key_env": "SPARE_KEY", "api_mode": "chat"}}}


async def test_the_main_model_when_nothing_is_configured(tmp_path: Path) -> None:
    script = [*_script(), say("a cat"), say("done")]
    async with rig(tmp_path, script, tools=[consult]) as r:
        assert (await r.turn("look")).text == "done"
    asked = r.provider.requests[1].json
    assert [m["content"] for m in asked["messages"]] == ["Be short.", "what is it?"]
    assert "tools" not in asked
    assert b"a cat" in r.provider.requests[2].body


async def test_the_model_of_the_job(tmp_path: Path) -> None:
    async with (
        Provider([say("a dog")]) as seer,
        rig(tmp_path, [*_script(), say("done")], tools=[consult], config=_config(seer)) as r,
    ):
        assert (await r.turn("look")).text == "done"
        assert seer.last.json["model"] == "seer"
        assert seer.last.headers["authorization"] == f"Bearer {SPARE_KEY}"
    assert b"a dog" in r.provider.last.body


async def test_a_job_model_that_fails_is_replaced_by_the_main_one(tmp_path: Path) -> None:
    async with (
        Provider([status(402)] * 9) as seer,
        rig(
            tmp_path, [*_script(), say("a cow"), say("done")], tools=[consult], config=_config(seer)
        ) as r,
    ):
        assert (await r.turn("look")).text == "done"
        assert seer.requests
    assert b"a cow" in r.provider.last.body


async def test_without_any_answer_the_tool_says_why(tmp_path: Path) -> None:
    script = [*_script(), status(401), say("done")]
    async with rig(tmp_path, script, tools=[consult]) as r:
        assert (await r.turn("look")).text == "done"
    assert b"KIT_KEY" in r.provider.last.body
