"""`hermes model` as users start it: shown, chosen, tried out, tested."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kit import Home, Provider, Ran, Received, Reply, call, run_hermes, say, status, think
from tests.kit.home import KEY
from tests.kit.terminal import Terminal

pytestmark = pytest.mark.e2e


async def hermes(home: Home, *words: str, **more: Any) -> Ran:
    ran = await run_hermes(words, home, **more)
    assert "Traceback" not in ran.stdout + ran.stderr
    assert KEY not in ran.stdout + ran.stderr
    return ran


def written(home: Home) -> Any:
    return yaml.safe_load((home.path / "config.yaml").read_text())


def bare(root: Path, **config: Any) -> Home:
    home = Home(root, **config)
    for name in ("KIT_KEY", "SPARE_KEY"):
        del home.env[name]
    return home


# -- what answers ------------------------------------------------------------------------------


async def test_it_says_what_answers_and_what_stands_behind_it(tmp_path: Path) -> None:
    async with Provider() as provider:
        home = Home.of(tmp_path, provider)
        home.configure(
            fallback_providers=["lab:big", "groq:llama"],
            providers={"lab": {"base_url": provider.base_url, "api_key_env": "SPARE_KEY"}},
            auxiliary={"compression": {"provider": "lab", "model": "small"}},
        )
        told = (await hermes(home, "model", "--json")).json
        assert (told["provider"], told["model"], told["wire"]) == ("custom", "kit-model", "chat")
        assert told["keys"] == [{"source": "KIT_KEY", "hint": f"…{KEY[-4:]}"}]
        assert [(f["entry"], f["usable"]) for f in told["fallbacks"]] == [
            ("lab:big", True),
            ("groq:llama", False),
        ]
        assert told["auxiliary"] == {"compression": "lab:small"}
        text = (await hermes(home, "model")).stdout
        assert "kit-model  (custom)" in text and "KIT_KEY" in text and "no key: skipped" in text
        assert not provider.requests and not provider.lookups


async def test_known_facts_are_shown(tmp_path: Path) -> None:
    home = bare(tmp_path, model={"default": "anthropic:claude-sonnet-4-5"})
    told = (await hermes(home, "model", "--json", env={"ANTHROPIC_API_KEY": KEY})).json
    assert told["context_length"] >= 200_000 and told["prices"]["input"] == 3
    without = (await hermes(home, "model", "--json")).json
    assert "ANTHROPIC_API_KEY" in without["error"]


# -- choosing ----------------------------------------------------------------------------------

_BEFORE = """\
# mine
model:
  default: big  # the good one
  provider: custom
  base_url: http://127.0.0.1:9/v1  # the lab
  api_mode: responses
  api_key_env: LAB_KEY
  context_length: 4096
  max_tokens: 900
# limits
agent: {max_turns: 7}  # few
"""


async def test_another_provider_takes_nothing_over_from_the_one_before(tmp_path: Path) -> None:
    home = bare(tmp_path)
    (home.path / "config.yaml").write_text(_BEFORE)
    ran = await hermes(home, "model", "set", "anthropic:claude-sonnet-4-5")
    assert ran.rc == 0 and "ANTHROPIC_API_KEY" in ran.stderr  # it cannot be called yet
    assert written(home) == {
        "model": {"default": "claude-sonnet-4-5", "provider": "anthropic", "max_tokens": 900},
        "agent": {"max_turns": 7},
    }
    text = (home.path / "config.yaml").read_text()
    for kept in ("# mine\n", "# the good one", "# limits\n", "agent: {max_turns: 7}  # few\n"):
        assert kept in text


async def test_another_model_of_the_same_provider_keeps_its_address(tmp_path: Path) -> None:
    home = bare(tmp_path)
    (home.path / "config.yaml").write_text(_BEFORE)
    assert (await hermes(home, "model", "use", "custom:small")).rc == 0
    section = written(home)["model"]
    assert section["base_url"] == "http://127.0.0.1:9/v1" and section["api_key_env"] == "LAB_KEY"
    assert section["default"] == "small" and "context_length" not in section


@pytest.mark.parametrize("words", [("set",), ("set", "nobody:x"), ("set", ":"), ("sett", "x")])
async def test_what_is_no_model_changes_nothing(tmp_path: Path, words: tuple[str, ...]) -> None:
    home = bare(tmp_path)
    (home.path / "config.yaml").write_text(_BEFORE.replace("custom", "groq"))
    before = (home.path / "config.yaml").read_bytes()
    ran = await hermes(home, "model", *words)
    assert ran.rc == 2 and ran.stderr.count("\n") == 1, ran.stderr
    assert (home.path / "config.yaml").read_bytes() == before


async def test_an_agents_tool_may_not_choose(tmp_path: Path) -> None:
    home = bare(tmp_path)
    ran = await hermes(home, "model", "set", "groq:x", env={"HERMES_CHILD": "1"})
    assert ran.rc == 2 and not written(home)


async def test_the_models_of_a_provider(tmp_path: Path) -> None:
    async with Provider(models=["alpha", "text-embedding-9", "beta\x1b[31m"]) as provider:
        home = Home.of(tmp_path, provider)
        listed = await hermes(home, "model", "list", "custom")
        assert listed.stdout.split() == ["custom:alpha", "custom:beta[31m"]


# -- an endpoint of one's own ------------------------------------------------------------------


async def test_a_custom_endpoint_gets_the_v1_that_was_left_out(tmp_path: Path) -> None:
    async with Provider(then=say("Hi."), models=["only-one"]) as provider:
        home = bare(tmp_path)
        ran = await hermes(home, "model", "custom", provider.origin)
        assert ran.rc == 0 and f"/v1 was missing; using {provider.origin}/v1" in ran.stderr
        section = {"provider": "custom", "default": "only-one", "base_url": provider.base_url}
        assert written(home)["model"] == section
        assert (await hermes(home, "chat", "-q", "hi")).stdout == "Hi.\n"


async def test_a_named_endpoint_with_a_key_and_another_protocol(tmp_path: Path) -> None:
    async with Provider(wire="responses", models=["m1", "m2"]) as provider:
        home = Home(tmp_path)
        words = ("model", "custom", provider.base_url, "--key-env", "KIT_KEY", "--name", "lab")
        which = await hermes(home, *words)
        assert which.rc == 2 and "m1, m2" in which.stderr and not written(home)
        ran = await hermes(home, *words, "--model", "m2", "--api-mode", "responses")
        assert ran.rc == 0, ran.stderr
        assert written(home) == {
            "providers": {
                "lab": {
                    "base_url": provider.base_url,
                    "api_mode": "responses",
                    "api_key_env": "KIT_KEY",
                }
            },
            "model": {"provider": "lab", "default": "m2"},
        }


@pytest.mark.parametrize(("wire", "path"), [("anthropic", "/anthropic"), ("chat", "/v1")])
async def test_the_protocol_is_found_out(tmp_path: Path, wire: str, path: str) -> None:
    async with Provider(then=say("Hi."), wire=wire, models=["one"]) as provider:
        home = bare(tmp_path)
        ran = await hermes(home, "model", "custom", provider.origin + path, "--json")
        assert ran.rc == 0 and ran.json["provider"] == "custom"
        assert (await hermes(home, "chat", "-q", "hi")).stdout == "Hi.\n"


async def test_what_is_no_endpoint_is_refused(tmp_path: Path) -> None:
    home = bare(tmp_path)
    gone = await hermes(home, "model", "custom", "http://127.0.0.1:9/v1")
    assert gone.rc == 2 and "connection refused" in gone.stderr
    odd = await hermes(home, "model", "custom", "ftp://x")
    assert odd.rc == 2
    secret = await hermes(home, "model", "custom", "http://user:pw@127.0.0.1:9/v1")
    assert secret.rc == 2 and "pw@" not in secret.stderr
    assert not written(home)


# -- the test ----------------------------------------------------------------------------------


def seeing(request: Received) -> Reply:
    """A model that does everything."""
    assert request.json["tools"][0]["function"]["name"] == "report"
    content = request.json["messages"][-1]["content"]
    assert any(part["type"] == "image_url" for part in content)
    return think("A red square.") + call(("c1", "report", {"colour": "Red"}))


async def test_one_real_call_shows_what_works(tmp_path: Path) -> None:
    async with Provider([seeing]) as provider:
        home = Home.of(tmp_path, provider)
        told = (await hermes(home, "model", "test", "--json")).json
        assert told["works"] and told["error"] is None
        assert (told["streaming"], told["tools"], told["images"]) == (True, True, True)
        assert told["reasoning"] is True and told["cache"] is None
        assert told["usage"]["input"] > 0 and len(provider.requests) == 1
        insights = (await hermes(home, "insights", "--json")).stdout
        assert '"test"' in insights


async def test_what_is_refused_is_told_as_refused(tmp_path: Path) -> None:
    def picky(request: Received) -> Reply:
        body = request.json
        if body.get("stream"):
            return status(400, "Streaming is not supported for this model", param="stream")
        if "image_url" in request.body.decode():
            return status(400, "this model does not support image input")
        if "tools" in body:
            return status(400, "tools are not supported by this model", param="tools")
        return say("red")

    async with Provider(then=picky) as provider:
        home = Home.of(tmp_path, provider)
        ran = await hermes(home, "model", "test")
        assert ran.rc == 0, ran.stderr
        found = {name: sign for sign, name in re.findall(r"^([✓✗–]) (\w+)", ran.stdout, re.M)}
        assert found["streaming"] == found["tools"] == found["images"] == "✗"


async def test_a_call_that_fails_is_a_sentence_and_exit_1(tmp_path: Path) -> None:
    refuse = lambda r: status(401, f"bad key {r.headers['authorization']}")  # noqa: E731
    async with Provider(then=refuse) as provider:
        home = Home.of(tmp_path, provider)
        ran = await hermes(home, "model", "test")
        assert ran.rc == 1 and "KIT_KEY" in ran.stderr
        told = await hermes(home, "model", "test", "--json")
        assert told.rc == 1 and told.json["error"]["code"] == "auth" and not told.json["works"]


# -- on a terminal -----------------------------------------------------------------------------


@pytest.mark.parametrize("term", ["xterm", "dumb"])
async def test_a_model_is_searched_for_and_chosen(tmp_path: Path, term: str) -> None:
    names = [f"model-{n}" for n in range(40)] + ["kit-model", "needle-7b"]
    async with Provider(models=names) as provider:
        home = Home.of(tmp_path, provider)
        screen = Terminal(home, "model", term=term)
        await screen.until("Choose a model.")
        screen.type("needle\r" if term == "xterm" else "needle\n")
        assert await screen.end() == 0
        assert written(home)["model"]["default"] == "needle-7b"
        assert written(home)["model"]["base_url"] == provider.base_url


async def test_leaving_the_list_changes_nothing(tmp_path: Path) -> None:
    async with Provider(models=["kit-model", "other"]) as provider:
        home = Home.of(tmp_path, provider)
        before = (home.path / "config.yaml").read_bytes()
        screen = Terminal(home, "model")
        await screen.until("to cancel")
        screen.type("\x1b[B")
        screen.type("\x1b")
        assert await screen.end() == 0
        assert (home.path / "config.yaml").read_bytes() == before
