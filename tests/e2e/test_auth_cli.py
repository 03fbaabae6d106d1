"""`hermes auth` as users start it: keys, pools and logins, and no secret where it must not be."""

from __future__ import annotations

import asyncio
import json
import os
import re
import stat
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from tests.kit import (
    Home,
    Provider,
    Ran,
    Received,
    Reply,
    finish,
    run_hermes,
    say,
    start_hermes,
    status,
)
from tests.kit.home import KEY, LIMITS, SPARE_KEY
from tests.kit.oauth import Authority
from tests.kit.terminal import Terminal

pytestmark = pytest.mark.e2e


async def hermes(home: Home, *words: str, **more: Any) -> Ran:
    ran = await run_hermes(words, home, **more)
    assert "Traceback" not in ran.stdout + ran.stderr
    for secret in (KEY, SPARE_KEY):
        assert secret not in ran.stdout + ran.stderr
    return ran


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path)
    for name in ("KIT_KEY", "SPARE_KEY"):
        del made.env[name]
    (made.path / "config.yaml").unlink()
    return made


def dotenv(home: Home) -> str:
    return (home.path / ".env").read_text()


def written(home: Home) -> Any:
    file = home.path / "config.yaml"
    return yaml.safe_load(file.read_text()) if file.exists() else None


def private(home: Home) -> None:
    """Nothing in the home can be read by others, and no key is anywhere but in .env."""
    for path in home.path.rglob("*"):
        assert not path.lstat().st_mode & 0o077, path
    assert not home.leaks()


async def listed(home: Home, *words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await hermes(home, "auth", "list", *words, "--json")).json
    return found


# -- keys --------------------------------------------------------------------------------------


async def test_a_key_is_stored_shown_masked_and_removed(home: Home) -> None:
    (home.path / ".env").write_text("# mine\nOTHER='a b'  # kept\n")
    ran = await hermes(home, "auth", "add", "openrouter", stdin=f"{KEY}\n")
    assert ran.rc == 0 and "OPENROUTER_API_KEY" in ran.stdout
    assert dotenv(home) == f"# mine\nOTHER='a b'  # kept\nOPENROUTER_API_KEY={KEY}\n"
    (one,) = await listed(home)
    assert (one["variable"], one["source"], one["hint"]) == (
        "OPENROUTER_API_KEY",
        ".env",
        f"…{KEY[-4:]}",
    )
    status_ran = await hermes(home, "auth", "status")
    assert "OPENROUTER_API_KEY" in status_ran.stdout
    again = await hermes(home, "auth", "add", "openrouter", stdin=KEY)
    assert again.rc == 0 and "already" in again.stdout
    private(home)
    assert (await hermes(home, "auth", "remove", "openrouter")).rc == 0
    assert dotenv(home) == "# mine\nOTHER='a b'  # kept\n"
    assert (await hermes(home, "auth", "remove", "openrouter")).rc == 2


async def test_a_second_key_makes_a_pool_that_turns_work_with(home: Home) -> None:
    """The first is exhausted: the second answers, now and in the next process, which knows."""

    def limited(request: Received) -> Reply:
        if request.headers["authorization"] == f"Bearer {KEY}":
            return status(402, "no credit left", error="insufficient_quota")
        return say("From the second.")

    async with Provider(then=limited) as provider:
        home.configure(
            model={"default": "m", "provider": "lab"},
            providers={"lab": {"base_url": provider.base_url, **LIMITS}},
        )
        assert (await hermes(home, "auth", "add", "lab", stdin=KEY)).rc == 0
        assert written(home)["providers"]["lab"]["api_key_env"] == "LAB_API_KEY"
        assert (await hermes(home, "auth", "lab", stdin=SPARE_KEY)).rc == 0
        row = written(home)["providers"]["lab"]
        assert row["api_key_envs"] == ["LAB_API_KEY", "LAB_API_KEY_2"] and "api_key_env" not in row
        assert (await hermes(home, "chat", "-q", "hi")).stdout == "From the second.\n"
        assert len(provider.requests) == 2
        first, second = await listed(home, "lab")
        assert "billing" in first["state"] and first["cooling_seconds"] > 0
        assert second["state"] == "in use"
        assert (await hermes(home, "chat", "-q", "hi")).stdout == "From the second.\n"
        assert len(provider.requests) == 3  # the exhausted one was not asked again
        log = (home.path / "logs" / "hermes.log").read_text()
        assert "key LAB_API_KEY set aside" in log and "now LAB_API_KEY_2" in log
        private(home)
        which = await hermes(home, "auth", "remove", "lab")
        assert which.rc == 2 and "LAB_API_KEY_2" in which.stderr
        assert (await hermes(home, "auth", "remove", "lab", "LAB_API_KEY")).rc == 0
        assert written(home)["providers"]["lab"]["api_key_envs"] == ["LAB_API_KEY_2"]


async def test_a_key_comes_from_a_variable_and_replaces_one(home: Home) -> None:
    env = {"TAKE_ME": f" {KEY} "}
    assert (await hermes(home, "auth", "add", "groq", "--key-env", "TAKE_ME", env=env)).rc == 0
    assert f"GROQ_API_KEY={KEY}" in dotenv(home)
    new = await hermes(home, "auth", "add", "groq", "--replace", stdin=SPARE_KEY)
    assert new.rc == 0 and f"GROQ_API_KEY={SPARE_KEY}" in dotenv(home) and KEY not in dotenv(home)
    missing = await hermes(home, "auth", "add", "groq", "--key-env", "NOT_THERE")
    assert missing.rc == 2 and "NOT_THERE" in missing.stderr


async def test_a_key_in_the_command_line_is_refused_unrepeated(home: Home) -> None:
    for words in (("add", "groq", "--key-env", KEY), ("add", "groq", KEY), (KEY,)):
        ran = await hermes(home, "auth", *words)
        assert ran.rc == 2 and ran.stderr.count("\n") == 1
    assert not (home.path / ".env").exists()


@pytest.mark.parametrize("text", ["", "  \n", "two\nlines", "k\u0435y-with-a-cyrillic-letter"])
async def test_what_is_no_key_changes_nothing(home: Home, text: str) -> None:
    ran = await hermes(home, "auth", "add", "groq", stdin=text)
    assert ran.rc == 2 and ran.stderr.count("\n") == 1
    assert not (home.path / ".env").exists()


async def test_a_key_is_checked_before_it_is_stored(home: Home) -> None:
    def strict(request: Received) -> Reply:
        good = request.headers["authorization"] == f"Bearer {KEY}"
        return say("OK") if good else status(401, f"wrong: {request.headers['authorization']}")

    async with Provider(then=strict, models=["m1"]) as provider:
        home.configure(providers={"lab": {"base_url": provider.base_url, **LIMITS}})
        bad = await hermes(home, "auth", "add", "lab", "--check", stdin=SPARE_KEY)
        assert bad.rc == 1 and "not stored" in bad.stderr
        assert not (home.path / ".env").exists()
        good = await hermes(home, "auth", "add", "lab", "--check", stdin=KEY)
        assert good.rc == 0 and KEY in dotenv(home)
        assert provider.last.json["max_tokens"] <= 64 and provider.last.model == "m1"


async def test_a_typed_key_is_not_echoed(home: Home) -> None:
    screen = Terminal(home, "auth", "add", "mistral")
    await screen.until("not shown")
    screen.type(f"{KEY}\n")
    assert await screen.end() == 0
    assert KEY not in screen.seen and f"MISTRAL_API_KEY={KEY}" in dotenv(home)


async def test_keys_added_at_once_are_all_kept(home: Home) -> None:
    names = ["groq", "mistral", "xai", "deepseek"]
    ran = await asyncio.gather(*(hermes(home, "auth", "add", n, stdin=f"{KEY}-{n}") for n in names))
    assert [one.rc for one in ran] == [0] * 4
    assert {one["provider"] for one in await listed(home)} == set(names)


@pytest.mark.parametrize(
    "words",
    [("add",), ("add", "nobody"), ("remove",), ("adopt", "vim"), ("add", "a", "b"), ("--jsn",)],
)
async def test_wrong_words(home: Home, words: tuple[str, ...]) -> None:
    ran = await hermes(home, "auth", *words)
    assert ran.rc == 2 and ran.stderr.count("\n") == 1


async def test_an_agents_tool_may_not_touch_them(home: Home) -> None:
    for words in (("add", "groq"), ("remove", "groq"), ("login", "copilot"), ("adopt", "codex")):
        ran = await hermes(home, "auth", *words, stdin=KEY, env={"HERMES_CHILD": "1"})
        assert ran.rc == 2
    assert not (home.path / ".env").exists()


# -- logins ------------------------------------------------------------------------------------


def codex(home: Home, server: Authority, provider: Provider, flow: str) -> None:
    row = {"base_url": provider.base_url, "oauth": server.settings(flow), **LIMITS}
    home.configure(
        model={"default": "gpt-kit", "provider": "openai-codex", "api_mode": "chat"},
        providers={"openai-codex": row},
    )


def tokens_hidden(home: Home, server: Authority, *ran: Ran) -> None:
    folder = home.path / "logins"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for file in folder.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    for secret in server.issued:
        assert all(secret not in one.stdout + one.stderr for one in ran)
        for path in home.path.rglob("*"):
            if path.is_file() and path.parent != folder and ".db" not in path.name:
                assert secret.encode() not in path.read_bytes(), path


async def test_a_device_login_from_the_first_word_to_a_turn(home: Home) -> None:
    async with Authority() as server, Provider(then=say("Hello.")) as provider:
        codex(home, server, provider, "device")
        before = await hermes(home, "chat", "-q", "hi")
        assert before.rc == 2 and "hermes auth login openai-codex" in before.stderr
        server.answers = ["authorization_pending"]
        ran = await hermes(home, "auth", "openai-codex")
        assert ran.rc == 0 and "WDJB-MJHT" in ran.stderr and "/activate" in ran.stderr
        turn = await hermes(home, "chat", "-q", "hi")
        assert turn.stdout == "Hello.\n"
        assert provider.last.headers["authorization"] == f"Bearer {server.access}"
        (one,) = await listed(home)
        assert one["kind"] == "login" and "then renewed" in one["state"] and one["expires"]
        shown = await hermes(home, "model")
        assert "the login to openai-codex" in shown.stdout
        tokens_hidden(home, server, ran, turn, shown)
        assert (await hermes(home, "auth", "logout", "openai-codex")).rc == 0
        assert (await hermes(home, "auth", "logout", "openai-codex")).rc == 2
        assert (await hermes(home, "auth", "status", "openai-codex")).rc == 1


async def test_a_refused_login_is_a_sentence_and_exit_1(home: Home) -> None:
    async with Authority() as server, Provider() as provider:
        codex(home, server, provider, "device")
        server.answers = ["access_denied"]
        ran = await hermes(home, "auth", "login", "openai-codex")
        assert ran.rc == 1 and "denied" in ran.stderr
        assert not list(home.path.glob("logins/*.json"))


async def test_a_login_with_the_browser(home: Home) -> None:
    async with Authority() as server, Provider(then=say("Hello.")) as provider:
        codex(home, server, provider, "loopback")
        process = await start_hermes(["auth", "login", "openai-codex"], home)
        assert process.stderr is not None
        address = ""
        while not address:
            line = (await process.stderr.readline()).decode()
            assert line
            address = line.strip() if line.startswith(server.origin) else ""
        assert re.search(r"redirect_uri=http%3A%2F%2Flocalhost%3A\d+%2Fauth%2Fcallback", address)
        async with aiohttp.ClientSession() as browser, browser.get(address) as page:
            assert page.status == 200
        ran = await finish(process)
        assert ran.rc == 0 and "Logged in" in ran.stdout
        assert (await hermes(home, "chat", "-q", "hi")).stdout == "Hello.\n"
        tokens_hidden(home, server, ran)


async def test_an_interrupted_login_leaves_nothing(home: Home) -> None:
    async with Authority() as server, Provider() as provider:
        codex(home, server, provider, "loopback")
        process = await start_hermes(["auth", "login", "openai-codex"], home)
        assert process.stderr is not None
        await process.stderr.readline()
        os.kill(process.pid, 2)
        ran = await finish(process)
        assert ran.rc == 130 and "Traceback" not in ran.stderr
        assert not list(home.path.glob("logins/*.json"))


async def test_who_takes_keys_only_is_not_logged_in_to(home: Home) -> None:
    ran = await hermes(home, "auth", "login", "groq")
    assert ran.rc == 2 and "hermes auth add groq" in ran.stderr


# -- other programs ----------------------------------------------------------------------------


async def test_a_login_of_another_program_is_adopted_only_on_request(home: Home) -> None:
    user = home.path.parent
    async with Authority() as server, Provider(then=say("Hello.")) as provider:
        codex(home, server, provider, "device")
        pair = server.tokens()
        tokens = {**pair, "account_id": "acct-other"}
        (user / ".codex").mkdir()
        (user / ".codex" / "auth.json").write_text(json.dumps({"tokens": tokens}))
        assert (await hermes(home, "chat", "-q", "hi")).rc == 2
        ran = await hermes(home, "auth", "adopt", "codex")
        assert ran.rc == 0, ran.stderr
        assert (await hermes(home, "chat", "-q", "hi")).stdout == "Hello.\n"
        assert server.refreshes == 1  # when it ends is not known: it was renewed first
        assert provider.last.headers["chatgpt-account-id"] == "acct-kit-1"
        (one,) = await listed(home)
        assert one["source"] == "codex"
        tokens_hidden(home, server, ran)


async def test_the_tokens_of_claude_and_gh(home: Home) -> None:
    user = home.path.parent
    gone = await hermes(home, "auth", "adopt", "claude")
    assert gone.rc == 2 and ".credentials.json" in gone.stderr
    (user / ".claude").mkdir()
    oauth = {"accessToken": "sk-ant-oat01-kit-000000", "refreshToken": "sk-ant-ort01-kit-000000"}
    content = {"claudeAiOauth": {**oauth, "expiresAt": 4_000_000_000_000}}
    (user / ".claude" / ".credentials.json").write_text(json.dumps(content))
    assert (await hermes(home, "auth", "add", "anthropic", "--from", "claude")).rc == 0
    gh = user / ".config" / "gh"
    gh.mkdir(parents=True)
    (gh / "hosts.yml").write_text("github.com:\n    oauth_token: gho_kitkitkitkit0000\n")
    assert (await hermes(home, "auth", "adopt", "gh")).rc == 0
    assert "COPILOT_GITHUB_TOKEN=gho_kitkitkitkit0000" in dotenv(home)
    assert {(one["provider"], one["kind"]) for one in await listed(home)} == {
        ("anthropic", "login"),
        ("copilot", "key"),
    }
    told = (await hermes(home, "auth", "status", "--json")).json
    assert told["answers"].startswith("copilot:") or "anthropic" in told["answers"]
