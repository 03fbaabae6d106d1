"""`hermes setup`, and the first start: from nothing to a conversation, by script and by hand."""

from __future__ import annotations

import hashlib
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.kit import Home, Provider, run_hermes, say, status
from tests.kit.terminal import Terminal

pytestmark = pytest.mark.e2e

MODEL = b"GGUF" + bytes(range(256)) * 4096
FAKE = Path(__file__).parents[1] / "kit" / "llama.py"
_ALONE = """
import hermes.llm.endpoints.local_servers as local_servers
local_servers.find_servers.__defaults__ = ((),)
"""
"""Model servers that happen to run on the machine of the tests are none of their business."""
_EMBEDDED = """
from pathlib import Path
import hermes.llm.local.models as models
row = models.LocalModel(
    models.DEFAULT, "Kit", {size}, "{sha}", "Apache-2.0", "https://kit.invalid", hub="{hub}"
)
models.MODELS = (row,)
import hermes.llm.local.engine as engine
engine.CHILD = Path("{fake}")
engine.find_spec = lambda _: object()
import hermes.llm.endpoints.embedded as embedded
embedded.is_engine_installed = lambda: True
"""
"""Only data: which file the default model is, where it comes from, and what stands in for
llama.cpp."""


def patched(home: Home, text: str = "") -> Home:
    folder = home.work.parent / "patch"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(_ALONE + text)
    home.env["PYTHONPATH"] = str(folder)
    return home


def written(home: Home) -> dict[str, object]:
    found = yaml.safe_load((home.path / "config.yaml").read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def fresh(root: Path) -> Home:
    home = Home(root)
    (home.path / "config.yaml").unlink()
    home.path.rmdir()
    return home


@pytest.fixture
async def embedded(tmp_path: Path) -> AsyncIterator[Home]:
    """A fresh HOME on a machine where the default model lies on a hub next door."""

    async def give(request: web.Request) -> web.Response:
        return web.Response(body=MODEL)

    app = web.Application()
    app.router.add_get("/m.gguf", give)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert runner.addresses
    hub = f"http://127.0.0.1:{runner.addresses[0][1]}/m.gguf"
    sha = hashlib.sha256(MODEL).hexdigest()
    text = _EMBEDDED.format(size=len(MODEL), sha=sha, hub=hub, fake=FAKE)
    yield patched(fresh(tmp_path), text)
    await runner.cleanup()


# -- scripts ---------------------------------------------------------------------------------


async def test_exactly_what_was_asked_for_is_tried_and_kept(tmp_path: Path) -> None:
    async with Provider([say("Hello!"), say("again"), say("talk")]) as provider:
        home = Home(tmp_path)
        (home.path / "config.yaml").write_text("# mine\nagent: {max_turns: 7}  # few\n")
        words = ["--base-url", provider.base_url, "--model", "kit: 1", "--key-env", "KIT_KEY"]
        ran = await run_hermes(["setup", "--non-interactive", *words], home)
        assert ran.rc == 0, ran.stderr
        assert "says: Hello!" in ran.stdout and home.env["KIT_KEY"] not in ran.stdout + ran.stderr
        text = (home.path / "config.yaml").read_text()
        assert text.startswith("# mine\nagent: {max_turns: 7}  # few\n")
        assert written(home)["model"] == {
            "provider": "custom",
            "default": "kit: 1",
            "base_url": provider.base_url,
            "api_key_env": "KIT_KEY",
        }
        assert provider.requests[0].headers["authorization"] == f"Bearer {home.env['KIT_KEY']}"
        again = await run_hermes(["setup", "--non-interactive"], home)
        assert again.rc == 0 and "(from config.yaml)" in again.stdout
        assert (home.path / "config.yaml").read_text() == text
        spoken = await run_hermes(["chat", "-q", "hi"], home)
        assert (spoken.rc, spoken.stdout) == (0, "talk\n")


async def test_what_does_not_answer_is_not_kept(tmp_path: Path) -> None:
    async with Provider([], then=status(401)) as provider:
        home = fresh(tmp_path)
        words = ["--base-url", provider.base_url, "--model", "m", "--key-env", "KIT_KEY"]
        ran = await run_hermes(["setup", "--non-interactive", *words], home)
        assert ran.rc == 1 and "does not work" in ran.stderr
        assert home.env["KIT_KEY"] not in ran.stdout + ran.stderr
        assert not (home.path / "config.yaml").exists()
        listed = await run_hermes(["sessions", "list", "--json"], home)
        assert listed.json == [], "a failed try is no conversation"


@pytest.mark.parametrize("named", [True, False])
async def test_an_endpoint_says_itself_what_it_has(tmp_path: Path, named: bool) -> None:
    async with Provider([say("Hello!")], models=["kit-a"]) as provider:
        home = fresh(tmp_path)
        # As one does, without /v1.
        words = ["--base-url", provider.origin, "--key-env", "OPENAI_API_KEY"] if named else []
        env = {"OPENAI_API_KEY": "sk-kit-1234567890"} | (
            {} if named else {"OPENAI_BASE_URL": provider.base_url}
        )
        ran = await run_hermes(["setup", "--non-interactive", *words], home, env=env)
        assert ran.rc == 0, ran.stderr
        assert written(home)["model"] == {
            "provider": "custom",
            "default": "kit-a",
            "base_url": provider.base_url,
            "api_key_env": "OPENAI_API_KEY",
        }


async def test_an_endpoint_that_wants_a_key_says_so(tmp_path: Path) -> None:
    async def no(request: web.Request) -> web.Response:
        return web.json_response({"error": {"message": "no key"}}, status=401)

    app = web.Application()
    app.router.add_route("*", "/{any:.*}", no)
    async with TestServer(app) as server:
        address = str(server.make_url("/v1"))
        ran = await run_hermes(["setup", "--base-url", address], fresh(tmp_path))
    assert ran.rc == 2 and "needs a key" in ran.stderr and "--key-env" in ran.stderr


async def test_the_first_key_that_works_is_taken(tmp_path: Path) -> None:
    async with Provider([], then=status(401)) as bad, Provider([say("Hi.")]) as good:
        rows = {
            "anthropic": {"base_url": bad.base_url, "api_mode": "chat"},
            "openrouter": {"base_url": good.base_url},
        }
        home = Home(tmp_path, providers=rows)
        keys = {
            "ANTHROPIC_API_KEY": "sk-ant-wrong1234567",
            "OPENROUTER_API_KEY": "sk-or-right12345",
        }
        ran = await run_hermes(["setup"], home, env=keys)
        assert ran.rc == 0, ran.stderr
        assert ran.stdout.index("ANTHROPIC_API_KEY") < ran.stdout.index("OPENROUTER_API_KEY")
        assert "anthropic" in ran.stderr and bad.requests and good.requests
        model = written(home)["model"]
        assert isinstance(model, dict) and model["provider"] == "openrouter"


@pytest.mark.parametrize(
    ("words", "env", "said"),
    [
        (("--embedded", "--base-url", "http://x"), {}, "--embedded goes with --model only"),
        (("--provider", "anthropc"), {}, "Did you mean anthropic?"),
        (("--base-url", "x:80"), {}, "must begin with http://"),
        (("--base-url", "http://127.0.0.1:9"), {}, "does not list its models"),
        (("--key-env", "sk-real-key"), {}, "not the key itself"),
        ((), {"HERMES_CHILD": "1"}, "may not change its model"),
    ],
)
async def test_misuse(
    tmp_path: Path, words: tuple[str, ...], env: dict[str, str], said: str
) -> None:
    ran = await run_hermes(["setup", "--non-interactive", *words], fresh(tmp_path), env=env)
    assert ran.rc == 2 and said in ran.stderr and "sk-real" not in ran.stderr


async def test_a_file_of_the_original_is_checked_first(tmp_path: Path) -> None:
    home = Home(tmp_path)
    (home.path / "config.yaml").write_text("model: {default: x}\nagent:\n  max_turn: 3\n")
    ran = await run_hermes(["setup", "--non-interactive"], home)
    assert ran.rc == 2 and "line 3" in ran.stderr and "agent.max_turns" in ran.stderr


# -- the model inside ------------------------------------------------------------------------


async def test_a_fresh_home_ends_in_a_conversation_with_the_embedded_model(embedded: Home) -> None:
    ran = await run_hermes(["setup", "--non-interactive"], embedded)
    assert ran.rc == 0, ran.stderr
    assert "MB" in ran.stderr, "the download shows how far it is"
    assert "heard: Say hello" in ran.stdout and "Ready." in ran.stdout
    assert next((embedded.path / "models").glob("*.gguf")).read_bytes() == MODEL
    assert not (embedded.path / "config.yaml").exists(), "the last resort stays one"
    listed = await run_hermes(["sessions", "list", "--json"], embedded)
    assert listed.json == [], "a test call is no conversation"
    spoken = await run_hermes(["chat", "-q", "and you?"], embedded)
    assert spoken.rc == 0 and "heard: and you?" in spoken.stdout
    kept = await run_hermes(["setup", "--embedded"], embedded)
    assert kept.rc == 0 and "local" in str(written(embedded)["model"])


async def test_the_first_start_on_a_terminal(embedded: Home) -> None:
    """Nothing is set up: a model is found, tried, and the conversation begins. It is given no
    instruction files, so that there is nothing to trust."""
    embedded.file("AGENTS.md", "Be brief.")
    terminal = Terminal(embedded, term="dumb")
    await terminal.until("Paste an API key")
    terminal.type("\n")
    await terminal.until("Ready.")
    await terminal.until("you> ")
    terminal.type("good day\n")
    await terminal.until("heard: good day")
    terminal.type("exit\n")
    assert await terminal.end() == 0
    again = Terminal(embedded, term="dumb")
    await again.until("you> ")
    assert "Paste" not in again.seen and "AGENTS.md" not in terminal.seen + again.seen
    again.type("exit\n")
    assert await again.end() == 0


@pytest.mark.parametrize("works", [True, False])
async def test_a_key_pasted_by_hand_is_kept_if_it_works(tmp_path: Path, works: bool) -> None:
    key = "sk-or-v1-0123456789abcdef"
    async with Provider([], then=say("Hello.") if works else status(401)) as provider:
        rows = {"openrouter": {"base_url": provider.base_url}}
        home = patched(Home(tmp_path, providers=rows))
        terminal = Terminal(home, "setup", term="dumb")
        await terminal.until("Paste an API key")
        terminal.type(key + "\n")
        await terminal.until("readable only by you" if works else "The key was not stored")
        if works:
            await terminal.until("May package managers")
            terminal.type("y\n")
            await terminal.until("you> ")
            terminal.type("exit\n")
        assert await terminal.end() == (0 if works else 1)
        assert key not in terminal.seen
        assert provider.last.headers["authorization"] == f"Bearer {key}"
        file = home.path / ".env"
        assert file.exists() is works
        if works:
            assert key in file.read_text() and stat.S_IMODE(file.stat().st_mode) == 0o600
            assert written(home)["model"]["provider"] == "openrouter"  # type: ignore[index]
            assert written(home)["sandbox"] == {"network": {"allow": ["packages"]}}


@pytest.mark.parametrize(("key", "code"), [("\x04", 2), ("\x03", 130)])
async def test_leaving_instead_of_a_key_writes_nothing(tmp_path: Path, key: str, code: int) -> None:
    home = patched(fresh(tmp_path))
    terminal = Terminal(home, "setup", term="dumb")
    await terminal.until("Paste an API key")
    terminal.type(key)
    await terminal.until("No model was chosen", pressing=key if code == 130 else "")
    assert await terminal.end() == code
    assert not (home.path / "config.yaml").exists()
