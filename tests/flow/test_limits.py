"""What servers say of themselves is believed, asked for only when it is needed, and remembered."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import structs

from hermes.app.agents import Options
from hermes.app.runtime import Runtime
from hermes.config.load import load_setup
from hermes.core.message import Target, user_message
from hermes.llm.endpoints.endpoint import ModelEndpoint
from hermes.llm.endpoints.learned_limits import MAX_ENTRIES, MONTH, LearnedLimit, LearnedLimits
from hermes.llm.endpoints.model_facts import UNKNOWN, ModelFacts, Prices
from hermes.llm.endpoints.model_info import query_model
from hermes.llm.provider_spec import InfoSource
from tests.kit import Home, Provider, Received, Reply, say, status
from tests.kit.answers import Tokens
from tests.kit.rig import rig

CHAT = Target("x", "m", "chat")
BASE = "http://host:1/v1"


class Server(Provider):
    """Also answers what a local server is asked about its model."""

    def __init__(self, steps: Any, pages: dict[str, Any], **more: Any) -> None:
        super().__init__(steps, **more)
        self.pages = pages

    async def _reply(self, request: Received) -> Reply:
        for end, page in self.pages.items():
            if request.path.endswith(end):
                self.lookups.append(request)
                return Reply(body=json.dumps(page).encode(), content_type="application/json")
        return await super()._reply(request)


async def asked(
    pages: dict[str, Any], *ways: InfoSource, wire: str = "chat"
) -> tuple[Any, list[str]]:
    seen: list[str] = []

    async def fetch(method: str, url: str, body: bytes) -> Any:
        seen.append(f"{method} {url}")
        return pages.get(url.removeprefix("http://host:1"))

    target = structs.replace(CHAT, wire=wire)
    return await query_model(fetch, target, BASE, ways), seen


@pytest.mark.parametrize(
    ("row", "facts"),
    [
        ({"id": "m"}, UNKNOWN),
        ({"id": "other", "context_length": 5}, UNKNOWN),
        ({"id": "m", "context_length": 8192}, ModelFacts(8192)),
        ({"id": "m", "max_model_len": 4096}, ModelFacts(4096)),
        ({"id": "m", "context_window": 7, "max_completion_tokens": 3}, ModelFacts(7, 3)),
        ({"id": "m", "context_length": -1}, UNKNOWN),
        ({"id": "m", "context_length": "many"}, UNKNOWN),
        ({"id": "m", "context_length": True}, UNKNOWN),
        ({"name": "models/m", "inputTokenLimit": 9, "outputTokenLimit": 4}, ModelFacts(9, 4)),
        (
            {"id": "m", "max_context_length": 9, "capabilities": {"vision": True}},
            ModelFacts(9, images=True),
        ),
        (
            {
                "id": "m",
                "context_length": 200,
                "top_provider": {"context_length": 100, "max_completion_tokens": 50},
                "architecture": {"input_modalities": ["text", "image"]},
                "supported_parameters": ["tools"],
                "pricing": {"prompt": "0.000003", "completion": "0.000015", "input_cache_read": ""},
            },
            ModelFacts(100, 50, True, True, None, Prices(3.0, 15.0)),
        ),
        ({"id": "m", "pricing": {"prompt": "-1", "completion": "-1"}}, UNKNOWN),
    ],
)
async def test_lists_of_models(row: dict[str, Any], facts: ModelFacts) -> None:
    for page in ({"data": [row]}, {"models": [row]}, [row]):
        found, seen = await asked({"/v1/models": page}, "list")
        assert found == facts and seen == ["GET http://host:1/v1/models"]


@pytest.mark.parametrize("page", [None, 5, "x", [], {}, {"data": None}, {"data": [3, None]}])
async def test_nonsense_says_nothing(page: Any) -> None:
    pages = dict.fromkeys(("/v1/models", "/api/show", "/api/ps", "/props"), page)
    pages["/api/v0/models"] = page
    assert (await asked(pages, "list", "show", "props", "studio"))[0] == UNKNOWN


async def test_an_ollama_window_is_what_it_was_loaded_with() -> None:
    info = {"general.architecture": "qwen3", "qwen3.context_length": 40960}
    show: dict[str, Any] = {"model_info": info, "capabilities": ["completion", "tools"]}
    found, _ = await asked({"/api/show": show}, "show", "list")
    assert found == ModelFacts(40960, None, False, True, False)
    show["parameters"] = "stop  <|end|>\nnum_ctx                        16384\n"
    assert (await asked({"/api/show": show}, "show"))[0].context == 16384
    ps = {"models": [{"name": "other", "context_length": 1}, {"name": "m", "context_length": 4096}]}
    assert (await asked({"/api/show": show, "/api/ps": ps}, "show"))[0].context == 4096
    ps = {"models": [{"name": "m:latest", "context_length": 2048}]}
    assert (await asked({"/api/show": show, "/api/ps": ps}, "show"))[0].context == 2048


async def test_llama_cpp_and_lm_studio() -> None:
    props = {"default_generation_settings": {"n_ctx": 8192}, "modalities": {"vision": True}}
    found, seen = await asked({"/props": props}, "props", "list")
    assert found == ModelFacts(8192, images=True) and len(seen) == 1
    row = {"id": "m", "type": "vlm", "max_context_length": 131072, "loaded_context_length": 4096}
    row |= {"capabilities": ["tool_use"]}
    found, _ = await asked({"/api/v0/models": {"data": [row]}}, "studio", "list")
    assert found == ModelFacts(4096, images=True, tools=True)


# -- when they are asked -------------------------------------------------------------------


def local(tmp_path: Path, server: Provider) -> Home:
    section = {"default": "m", "provider": "ollama", "base_url": server.base_url}
    return Home(tmp_path, model=section, agent={"api_max_retries": 1})


async def test_a_local_server_is_asked_before_its_first_call_only(tmp_path: Path) -> None:
    pages = {"/api/show": {"model_info": {"q.context_length": 20000}}}
    async with Server([say("one"), say("two"), say("three")], pages) as server:
        home = local(tmp_path, server)
        async with Runtime.open(load_setup("", home.env)) as runtime:
            session = await runtime.open_session(cwd=home.work, options=Options())
            assert server.lookups == [], "constructing asks nobody"
            assert (await session.submit(user_message("hi"))).text == "one"
            assert (await session.submit(user_message("hi"))).text == "two"
            assert [x.path for x in server.lookups] == ["/api/show", "/api/ps"]
            await session.close()
        async with Runtime.open(load_setup("", home.env)) as runtime:
            session = await runtime.open_session(cwd=home.work, options=Options())
            assert session.agent.providers[0].endpoint.context_length == 20000, "remembered"
            await session.close()


async def test_a_silent_local_server_answers_all_the_same(tmp_path: Path) -> None:
    async with Server([say("fine")], {}) as server:
        home = local(tmp_path, server)
        async with Runtime.open(load_setup("", home.env)) as runtime:
            session = await runtime.open_session(cwd=home.work, options=Options())
            assert (await session.submit(user_message("hi"))).text == "fine"
            await session.close()


async def test_others_are_asked_after_an_overflow_that_states_no_limit(tmp_path: Path) -> None:
    async with Server(
        [say("ok"), status(400, "prompt is too long", error="context_length_exceeded")],
        {"/models": {"data": [{"id": "kit-model", "max_model_len": 16384}]}},
        then=say("short again"),
    ) as server:
        async with rig(tmp_path, server, check=False) as r:
            await r.turn()
            assert server.lookups == []
            await r.turn()
            assert server.lookups
            assert r.runtime.agents.learned[r.session.agent.providers[0].target].context is not None
        assert _limits(r.home)[f"{server.base_url} kit-model"]["context"] == 16384


async def test_stated_limits_are_remembered_across_processes(tmp_path: Path) -> None:
    message = "max_tokens is too large: 9000. This model supports at most 4096 completion tokens"
    refusal = status(400, message, error="invalid_request_error", param="max_tokens")
    config = {"model": {"max_tokens": 9000}}
    async with Provider([refusal], then=say("ok")) as p:
        async with rig(tmp_path, p, config=config, check=False) as r:
            assert (await r.turn()).status == "completed"
            assert [x.json["max_tokens"] for x in p.requests] == [9000, 4096]
        file = r.home.path / "cache" / "limits.json"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        async with Runtime.open(load_setup("", r.home.env)) as runtime:
            session = await runtime.open_session(cwd=r.home.work, options=Options())
            await session.submit(user_message("again"))
            await session.close()
        assert p.last.json["max_tokens"] == 4096, "not learned the hard way again"


def _limits(home: Home) -> Any:
    return json.loads((home.path / "cache" / "limits.json").read_text())


# -- what is remembered --------------------------------------------------------------------


def test_memory(tmp_path: Path) -> None:
    now = [1000.0]
    file = tmp_path / "cache" / "limits.json"
    one, two = (LearnedLimits(file, lambda: now[0]) for _ in range(2))
    assert one.find("http://a/v1", "m") == LearnedLimit()
    one.learn_limit("http://a/v1/", "m", context=5000)
    one.learn_limit("http://a/v1", "m", output=700)
    two.learn_limit("http://b/v1", "m", context=6000)
    three = LearnedLimits(file, lambda: now[0])
    assert (three.find("http://a/v1", "m").context, three.find("http://a/v1", "m").output) == (
        5000,
        700,
    )
    assert three.find("http://b/v1", "m").context == 6000
    three.learn_limit("http://b/v1", "m", context=12, output=3)
    assert three.find("http://b/v1", "m") == LearnedLimit(6000, None, 1000.0), (
        "nonsense teaches nothing"
    )
    now[0] += MONTH + 1
    assert LearnedLimits(file, lambda: now[0]).find("http://a/v1", "m") == LearnedLimit(), (
        "forgotten"
    )


def test_a_damaged_or_unwritable_memory_is_no_failure(tmp_path: Path) -> None:
    file = tmp_path / "limits.json"
    for text in ("", "{", "[]", '{"a": 5}', "\x00"):
        file.write_text(text)
        memory = LearnedLimits(file)
        assert memory.find("http://a", "m") == LearnedLimit()
    blocked = LearnedLimits(file / "under" / "a-file.json")
    blocked.learn_limit("http://a", "m", context=5000)
    assert blocked.find("http://a", "m").context == 5000


def test_memory_is_bounded(tmp_path: Path) -> None:
    ticks = iter(range(10**6))
    memory = LearnedLimits(tmp_path / "limits.json", lambda: float(next(ticks)))
    known = {f"http://a {n}": LearnedLimit(5000, None, float(n)) for n in range(MAX_ENTRIES)}
    (tmp_path / "limits.json").write_bytes(msgspec.json.encode(known))
    memory.learn_limit("http://a", "new", context=5000)
    assert len(json.loads((tmp_path / "limits.json").read_text())) == MAX_ENTRIES


def test_what_was_stated_replaces_the_table_and_not_what_is_configured(tmp_path: Path) -> None:
    memory = LearnedLimits(tmp_path / "limits.json")
    memory.learn_limit(BASE, "m", context=5000)
    plain = ModelEndpoint(CHAT, BASE)
    assert memory.apply_to(plain).context_length == 5000
    tabled = structs.replace(plain, context_length=3000, facts=ModelFacts(3000))
    assert memory.apply_to(tabled).context_length == 5000
    for facts in (UNKNOWN, ModelFacts(9000)):  # also where the user says what the table says
        configured = structs.replace(
            plain, context_length=9000, has_configured_context=True, facts=facts
        )
        assert memory.apply_to(configured) is configured
    other = structs.replace(plain, base_url="http://elsewhere/v1")
    assert memory.apply_to(other) is other


OVERFLOW = "This model's maximum context length is 9000 tokens, you requested 12000."
LONG = "All of it: " + "words " * 8_000


@pytest.mark.parametrize("configured", [True, False])
async def test_a_configured_window_is_not_replaced_by_an_error(
    tmp_path: Path, configured: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The next session of the same process gets what is configured, else what the error stated."""
    config = {"model": {"context_length": 100_000}} if configured else {}
    refusal = status(400, OVERFLOW, error="context_length_exceeded")
    caplog.set_level("INFO", "hermes.llm.endpoints.learned_limits")
    story = say(LONG).usage(Tokens(11, 8_000))
    async with (
        Provider([refusal], then=story) as p,
        rig(tmp_path, p, config=config, check=False) as r,
    ):
        await r.turn()
        async with Runtime.open(load_setup("", r.home.env)) as later:
            for runtime in (r.runtime, later):
                session = await runtime.open_session(cwd=r.home.work, options=Options())
                await session.submit(user_message("Tell me everything."))
                await session.submit(user_message("Again."))
                await session.close()
                assert (LONG.encode() in p.last.body) is configured
    assert "has a context of 9000 tokens, as its endpoint states" in caplog.text
    assert ("instead of an unknown number" in caplog.text) is not configured


async def test_a_window_that_a_refusal_shrinks_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "hermes.agent.compression")
    refusal = status(413, "Request Entity Too Large", error="context_length_exceeded")
    async with (
        Provider([say("ok"), refusal], then=say("fine")) as p,
        rig(tmp_path, p, check=False) as r,
    ):
        await r.turn()
        await r.turn(LONG)
    assert "tokens from now on:" in caplog.text
