"""Several profiles in one gateway: own homes, people, sessions and variables."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.gateway.gateways import GatewayProcess, gateway
from tests.kit import Received, Reply, run_hermes, say
from tests.kit.bodies import messages
from tests.kit.telegram import OWNER, TOKEN, Telegram, telegram

pytestmark = pytest.mark.e2e

ANN = 3003


def make_profile(
    g: GatewayProcess, fake: Telegram, *, token: str = TOKEN, key: bool = True
) -> Path:
    folder = g.home.path / "profiles" / "ann"
    folder.mkdir(mode=0o700, parents=True)
    settings = {"base_url": fake.url, "allowed_users": [ANN]}
    config = {"model": g.home.config["model"], "providers": g.home.config["providers"]}
    config["model"] = {**config["model"], "api_key_env": "ANN_KEY"}
    config["memory"] = {"review": False}
    config["platforms"] = {"telegram": settings}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    lines = [f"TELEGRAM_BOT_TOKEN={token}"] if token else []
    lines += ["ANN_KEY=sk-ann-0123456789abcdef"] if key else []
    env = folder / ".env"
    env.write_text("\n".join([*lines, ""]))
    env.chmod(0o600)
    return folder


def answer(request: Received) -> Reply:
    return say(f"{request.headers['authorization'][-6:]}: {messages(request)[-1].text}")


async def test_two_profiles_answer_apart(tmp_path: Path) -> None:
    async with telegram() as other, gateway(tmp_path, then=answer, start=False) as g:
        g.home.configure(gateway={"profiles": ["ann"]})
        folder = make_profile(g, other)
        await g.start()
        shown = (await run_hermes(["gateway", "status", "--json"], g.home)).json
        assert shown["profiles"] == ["ann"]
        states = {name: found["state"] for name, found in shown["platforms"].items()}
        assert states == {"telegram": "connected", "ann/telegram": "connected"}
        await g.telegram.say("hello")
        await other.say("hello too", user=ANN)
        await g.telegram.until_shown("c2b1a0: hello")
        await other.until_shown("abcdef: hello too")
        await other.say("let me in", user=OWNER)
        await other.say("/platforms", user=ANN)
        await other.until_shown("telegram: connected")
        (mine,) = (await run_hermes(["sessions", "list", "--json"], g.home)).json
        (hers,) = (await run_hermes(["-p", "ann", "sessions", "list", "--json"], g.home)).json
        assert mine["key"] == f"agent:main:telegram:dm:{OWNER}"
        assert hers["key"] == f"agent:ann:telegram:dm:{ANN}"
        second = await run_hermes(["-p", "ann", "gateway", "run"], g.home)
        assert second.rc == 3 and f"already running (pid {g.process.pid})" in second.stderr
        await other.say("/restart", user=ANN)
        await other.until_shown("♻️ Back again.")
        await g.telegram.say("still there?")
        await g.telegram.until_shown("c2b1a0: still there?")
        assert await g.stop() == 0
        (folder / ".env").unlink()


async def test_a_profile_has_nothing_of_the_environment(tmp_path: Path) -> None:
    async with telegram() as other, gateway(tmp_path, then=answer, start=False) as g:
        g.home.configure(gateway={"profiles": ["ann"]})
        g.home.env["ANN_KEY"] = "sk-of-the-environment"
        make_profile(g, other, token="", key=False)
        await g.start()
        shown = (await run_hermes(["gateway", "status", "--json"], g.home)).json
        assert list(shown["platforms"]) == ["telegram"], "the token of the environment is not hers"
        assert await g.stop() == 0


async def test_a_profile_without_a_token_holds_back_nobody(tmp_path: Path) -> None:
    async with telegram() as other, gateway(tmp_path, [say("hello")], start=False) as g:
        g.home.configure(gateway={"profiles": ["ann"]})
        make_profile(g, other, token="", key=False)
        file = g.home.path / "profiles" / "ann" / "config.yaml"
        file.write_text(file.read_text().replace("telegram:", "telegram:\n    enabled: true"))
        await g.start()
        assert "ann is not served: TELEGRAM_BOT_TOKEN is not set." in g.stderr
        await g.telegram.say("hi")
        await g.telegram.until_shown("hello")
        assert await g.stop() == 0


async def test_a_profile_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    async with gateway(tmp_path, start=False, gateway={"profiles": ["nobody"]}) as g:
        ended = await run_hermes(["gateway", "run"], g.home)
        assert ended.rc == 2 and "gateway.profiles names nobody" in ended.stderr
        assert not (g.home.path / "profiles" / "nobody").exists()
