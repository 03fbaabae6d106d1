"""Logins against a real authorisation server: got, used, renewed once for all, and lost."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from hermes.app.agents import Options
from hermes.app.runtime import Runtime
from hermes.config.load import load_setup
from hermes.config.schema import Config
from hermes.config.secrets import Secrets
from hermes.core.errors import ConfigError, ProviderError
from hermes.core.events import Recovering
from hermes.core.message import user_message
from hermes.llm.auth.oauth import device, loopback
from hermes.llm.auth.oauth.login import Login, exchange_login
from hermes.llm.auth.oauth.tokens import Token, load_token
from hermes.llm.endpoints.endpoint import ModelChoice
from hermes.llm.endpoints.resolver import resolve_chain
from hermes.llm.http.transport import Transport
from hermes.llm.provider_spec import OAuthSpec
from hermes.llm.providers import find_provider, provider_index
from tests.kit import Home, Provider, Received, Reply, say, status
from tests.kit.home import LIMITS
from tests.kit.oauth import CLIENT, Authority


def flow(server: Authority, kind: str, **more: Any) -> OAuthSpec:
    settings = {**server.settings(kind), "redirect_ports": (), **more}
    return OAuthSpec(**settings)


@asynccontextmanager
async def transport() -> AsyncIterator[Transport]:
    made = Transport()
    try:
        yield made
    finally:
        await made.close()


# -- logging in --------------------------------------------------------------------------------


async def test_a_device_code_is_polled_at_the_pace_the_server_asks_for() -> None:
    shown: list[device.DeviceCode] = []
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    async with Authority() as server, transport() as net:
        server.interval = 2
        server.answers = ["authorization_pending", "slow_down", "authorization_pending"]
        token = await device.log_in(flow(server, "device"), net, shown.append, sleep)
    assert (token.access, token.refresh) == (server.access, server.refresh)
    assert waits == [2, 2, 7, 7]
    assert shown[0].code == "WDJB-MJHT" and shown[0].page.endswith("/activate")
    assert server.requests[0][1] == {"client_id": CLIENT, "scope": "chat offline"}


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ("access_denied", "denied"),
        ("expired_token", "expired"),
        ("invalid_client", "invalid_client"),
    ],
)
async def test_a_device_code_that_leads_nowhere(answer: str, says: str) -> None:
    async with Authority() as server, transport() as net:
        server.answers = [answer]
        with pytest.raises(ProviderError, match=says):
            await device.log_in(flow(server, "device"), net, lambda _: None)


async def test_an_outage_while_polling_is_waited_out() -> None:
    async def sleep(seconds: float) -> None:
        if len(server.requests) >= 3:
            server.broken = 0

    async with Authority() as server, transport() as net:
        server.broken = 503
        token = await device.log_in(flow(server, "device"), net, lambda _: None, sleep)
        assert token.access == server.access


async def _browse(address: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as browser, browser.get(address) as page:
        return page.status, await page.text()


async def test_the_browser_comes_back_with_a_code() -> None:
    pages: list[asyncio.Task[tuple[int, str]]] = []

    def show(address: str) -> None:
        assert "code_challenge_method=S256" in address and "127.0.0.1" in address
        pages.append(asyncio.create_task(_browse(address)))

    async with Authority() as server, transport() as net:
        row = flow(
            server, "loopback", account_claim=("https://api.openai.com/auth", "chatgpt_account_id")
        )
        token = await loopback.log_in(row, net, show)
        code, text = await pages[0]
    assert token.access == server.access and token.account == "acct-kit-1"
    assert code == 200 and "You can close this page" in text
    traded = server.requests[-1][1]
    assert len(traded["code_verifier"]) >= 43 and "state" not in traded


async def test_nobody_else_can_answer_for_the_browser() -> None:
    """A page that guesses the port has no state; the login goes on undisturbed."""
    seen: list[int] = []

    async def visit(address: str) -> None:
        from urllib.parse import parse_qs, urlsplit

        back = parse_qs(urlsplit(address).query)["redirect_uri"][0]
        origin = back.rpartition("/")[0]
        seen.append((await _browse(f"{back}?code=stolen&state=guess"))[0])
        seen.append((await _browse(f"{back}?code=stolen"))[0])
        seen.append((await _browse(f"{origin}/favicon.ico"))[0])
        seen.append((await _browse(address))[0])

    tasks: list[asyncio.Task[None]] = []
    async with Authority() as server, transport() as net:
        row = flow(server, "loopback")
        token = await loopback.log_in(
            row, net, lambda a: tasks.append(asyncio.create_task(visit(a)))
        )
        await tasks[0]
        assert token.access == server.access
    assert seen == [400, 400, 404, 200]


async def test_a_login_refused_in_the_browser_says_so() -> None:
    async def refuse(address: str) -> None:
        from urllib.parse import parse_qs, urlsplit

        query = parse_qs(urlsplit(address).query)
        back, state = query["redirect_uri"][0], query["state"][0]
        await _browse(f"{back}?error=access_denied&state={state}")

    tasks: list[asyncio.Task[None]] = []
    async with Authority() as server, transport() as net:
        with pytest.raises(ProviderError, match="access_denied"):
            await loopback.log_in(
                flow(server, "loopback"),
                net,
                lambda a: tasks.append(asyncio.create_task(refuse(a))),
            )
        await tasks[0]


async def test_where_the_browser_is_elsewhere_its_address_is_pasted() -> None:
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    first = True

    async def paste() -> str:
        nonlocal first
        if first:
            first = False
            return "http://localhost/callback?code=x&state=wrong\n"
        async with (
            aiohttp.ClientSession() as browser,
            browser.get(await address, allow_redirects=False) as page,
        ):
            return page.headers["Location"] + "\n"

    async with Authority() as server, transport() as net:
        token = await loopback.log_in(flow(server, "loopback"), net, address.set_result, paste)
    assert token.access == server.access


def test_what_is_pasted_is_understood() -> None:
    assert loopback.parse_callback("abc#xyz") == loopback.CallbackResult("abc", "xyz")
    assert loopback.parse_callback(
        " http://localhost:1/cb?code=a&state=b \n"
    ) == loopback.CallbackResult("a", "b")
    assert loopback.parse_callback("nonsense").code == ""


async def test_tokens_never_travel_in_the_clear() -> None:
    async with transport() as net:
        row = OAuthSpec("device", CLIENT, "http://example.com/token", "http://example.com/device")
        with pytest.raises(ConfigError, match="https://"):
            await device.log_in(row, net, lambda _: None)


async def test_a_login_is_exchanged_where_calls_need_another_token() -> None:
    async with Authority() as server, transport() as net:
        row = flow(
            server, "device", exchange_url=f"{server.origin}/exchange", headers={"X-Ed": "h"}
        )
        token = await exchange_login(row, net, await device.log_in(row, net, lambda _: None))
        assert token.access.startswith("tid=") and token.refresh == server.access
        assert server.requests[-1][1]["X-Ed"] == "h"


# -- using it: whole turns ---------------------------------------------------------------------


class Place:
    """A home with a stored login to a provider of its own."""

    def __init__(self, root: Path, server: Authority, provider: Provider, left: float) -> None:
        self.home = Home(root)
        for name in ("KIT_KEY", "SPARE_KEY"):
            del self.home.env[name]
        row = {"base_url": provider.base_url, "oauth": server.settings("device"), **LIMITS}
        self.home.configure(
            model={"default": "gpt-kit", "provider": "openai-codex", "api_mode": "chat"},
            providers={"openai-codex": row},
        )
        self.file = self.home.path / "logins" / "openai-codex.json"
        self.file.parent.mkdir(mode=0o700)
        self.file.write_bytes(server.on_disk(left=left))
        self.file.chmod(0o600)


def guarded(server: Authority) -> Any:
    """Only the newest token is taken."""

    def answer(request: Received) -> Reply:
        good = request.headers["authorization"] == f"Bearer {server.access}"
        return (
            say("Hello.") if good else status(401, f"bad token {request.headers['authorization']}")
        )

    return answer


async def _turn(home: Home, text: str = "hi") -> tuple[Any, list[Any]]:
    async with Runtime.open(load_setup("", home.env)) as runtime:
        session = await runtime.session(cwd=home.work, options=Options(yolo=True))
        events: list[Any] = []

        async def listen() -> None:
            async for event in session.events():
                events.append(event)

        reader = asyncio.create_task(listen())
        result = await session.submit(user_message(text))
        await session.close()
        await reader
        return result, events


async def test_calls_carry_the_login_and_who_it_is(tmp_path: Path) -> None:
    async with Authority() as server, Provider(then=guarded(server)) as provider:
        place = Place(tmp_path, server, provider, left=3600)
        result, _ = await _turn(place.home)
        assert result.text == "Hello." and server.refreshes == 0
        headers = provider.last.headers
        assert headers["authorization"] == f"Bearer {server.access}"
        assert headers["chatgpt-account-id"] == "acct-kit-1"
        assert "x-api-key" not in headers


async def test_the_identity_of_a_login_travels_with_it_alone(tmp_path: Path) -> None:
    """The row's own headers, no key header; on another protocol than the login's beside it."""
    async with Authority() as server, Provider(then=say("Hello."), wire="anthropic") as provider:
        place = Place(tmp_path, server, provider, left=3600)
        row = {"base_url": provider.base_url, "oauth": server.settings("loopback"), **LIMITS}
        place.home.configure(
            model={"default": "claude-kit", "provider": "anthropic", "api_mode": "anthropic"},
            providers={"anthropic": row},
        )
        place.file.rename(place.file.with_name("anthropic.json"))
        assert (await _turn(place.home))[0].text == "Hello."
        headers = provider.last.headers
        assert headers["authorization"] == f"Bearer {server.access}"
        assert headers["anthropic-beta"] == "oauth-2025-04-20" and "x-api-key" not in headers
        place.home.env["ANTHROPIC_API_KEY"] = "sk-ant-kit-0123456789"
        await _turn(place.home)
        headers = provider.last.headers
        assert headers["x-api-key"] == "sk-ant-kit-0123456789"
        assert "anthropic-beta" not in headers and "authorization" not in headers


async def test_a_short_lived_token_is_exchanged_anew(tmp_path: Path) -> None:
    async with Authority() as server, Provider(then=say("Hello.")) as provider:
        place = Place(tmp_path, server, provider, left=-1)
        oauth = {**server.settings("device"), "exchange_url": f"{server.origin}/exchange"}
        row = {"base_url": provider.base_url, "oauth": oauth, **LIMITS}
        place.home.configure(model={"provider": "copilot"}, providers={"copilot": row})
        content = json.loads(place.file.read_text()) | {
            "access": "tid=old",
            "refresh": server.access,
        }
        place.file.with_name("copilot.json").write_text(json.dumps(content))
        assert (await _turn(place.home))[0].text == "Hello."
        headers = provider.last.headers
        assert headers["authorization"] == f"Bearer {server.issued[-1]}"
        assert headers["copilot-integration-id"] == "vscode-chat" and server.refreshes == 1


async def test_a_token_is_never_sent_to_another_server(tmp_path: Path) -> None:
    async with Authority() as server, Authority() as other, Provider() as provider:
        place = Place(tmp_path, server, provider, left=-1)
        place.home.configure(providers={"openai-codex": {"oauth": other.settings("device")}})
        result, _ = await _turn(place.home)
        assert result.error_code == "auth" and "another server" in result.error
        assert not other.requests and not provider.requests


async def test_a_token_about_to_run_out_is_renewed_before_the_call(tmp_path: Path) -> None:
    async with Authority() as server, Provider(then=guarded(server)) as provider:
        place = Place(tmp_path, server, provider, left=40)
        result, events = await _turn(place.home)
        assert result.text == "Hello." and server.refreshes == 1
        assert len(provider.requests) == 1
        assert not [e for e in events if isinstance(e, Recovering)]
        kept = load_token(place.file)
        assert kept is not None and kept.access == server.access
        assert place.file.stat().st_mode & 0o777 == 0o600


async def test_a_refused_token_is_renewed_once_and_the_call_repeated(tmp_path: Path) -> None:
    async with Authority() as server, Provider(then=guarded(server)) as provider:
        place = Place(tmp_path, server, provider, left=3600)
        place.file.write_bytes(
            place.file.read_bytes().replace(server.access.encode(), b"at-revoked-000000")
        )
        result, events = await _turn(place.home)
        assert result.text == "Hello." and server.refreshes == 1
        assert [e.action for e in events if isinstance(e, Recovering)] == ["refresh_token"]
        assert len(provider.requests) == 2


async def test_a_token_refused_again_ends_in_a_sentence_without_it(tmp_path: Path) -> None:
    async with Authority() as server, Provider() as provider:
        heard = provider.requests  # it quotes the token of the call before as well
        provider.then = lambda _: status(
            401, f"no: {[r.headers['authorization'].split()[1] for r in heard]}"
        )
        place = Place(tmp_path, server, provider, left=3600)
        result, _ = await _turn(place.home)
        assert result.error_code == "auth" and server.refreshes == 1
        assert "hermes auth login openai-codex" in result.error
        assert len(provider.requests) == 2
        for secret in server.issued:
            assert secret not in result.error


async def test_a_login_that_was_revoked_falls_back_or_says_so(tmp_path: Path) -> None:
    async with (
        Authority() as server,
        Provider() as provider,
        Provider(then=say("From the spare.")) as spare,
    ):
        place = Place(tmp_path, server, provider, left=-5)
        server.spent.add(server.refresh)
        result, _ = await _turn(place.home)
        assert result.error_code == "auth" and not provider.requests
        assert "hermes auth login" in result.error
        assert all(secret not in result.error for secret in server.issued)
        asked = len(server.requests)
        assert asked == 1  # the server that said no is not asked again
        place.home.fall_back(spare)
        place.home.env["SPARE_KEY"] = "sk-spare-1122334455667788990011223344"
        result, _ = await _turn(place.home)
        assert result.text == "From the spare."


async def test_renewal_ahead_of_time_may_fail_while_the_token_is_good(tmp_path: Path) -> None:
    async with Authority() as server, Provider(then=guarded(server)) as provider:
        place = Place(tmp_path, server, provider, left=40)
        server.broken = 503
        result, _ = await _turn(place.home)
        assert result.text == "Hello."


async def test_many_sessions_of_one_process_renew_once(tmp_path: Path) -> None:
    async with Authority() as server, Provider(then=guarded(server)) as provider:
        place = Place(tmp_path, server, provider, left=-1)
        async with Runtime.open(load_setup("", place.home.env)) as runtime:
            sessions = [await runtime.session(cwd=place.home.work) for _ in range(6)]
            results = await asyncio.gather(*(s.submit(user_message("hi")) for s in sessions))
            for session in sessions:
                await session.close()
        assert {r.text for r in results} == {"Hello."} and server.refreshes == 1


async def test_an_interruption_does_not_lose_a_renewed_token(tmp_path: Path) -> None:
    async with Authority() as server, transport() as net:
        file = tmp_path / "logins" / "acme.json"
        file.parent.mkdir()
        file.write_bytes(server.on_disk(left=-1))
        server.gate = asyncio.Event()
        login = Login(file, flow(server, "device"), net)
        asking = asyncio.create_task(login.get_token())
        await server.asked.wait()
        asking.cancel()
        await asyncio.sleep(0)
        server.gate.set()
        with pytest.raises(asyncio.CancelledError):
            await asking
        kept = load_token(file)
        assert kept is not None and kept.access == server.access


# -- several processes -------------------------------------------------------------------------

_WORKER = """
import asyncio, sys
from pathlib import Path
import msgspec
from hermes.llm.http.transport import Transport
from hermes.llm.auth.oauth.login import Login
from hermes.llm.provider_spec import OAuthSpec

async def main():
    net = Transport()
    row = msgspec.json.decode(sys.argv[2].encode(), type=OAuthSpec)
    print("ready", flush=True)
    sys.stdin.readline()
    token = await Login(Path(sys.argv[1]), row, net).get_token()
    await net.close()
    print(token.access, flush=True)

asyncio.run(main())
"""


async def _worker(file: Path, row: OAuthSpec) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", _WORKER, str(file), msgspec.json.encode(row).decode(),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip


async def _go(worker: asyncio.subprocess.Process) -> None:
    assert worker.stdin is not None and worker.stdout is not None
    assert await worker.stdout.readline() == b"ready\n"
    worker.stdin.write(b"go\n")
    await worker.stdin.drain()


async def test_eight_processes_renew_once(tmp_path: Path) -> None:
    async with Authority() as server:
        file = tmp_path / "acme.json"
        file.write_bytes(server.on_disk(left=-1))
        workers = [await _worker(file, flow(server, "device")) for _ in range(8)]
        await asyncio.gather(*map(_go, workers))
        said = [(await worker.communicate())[0].decode().strip() for worker in workers]
        assert said == [server.access] * 8
        assert server.refreshes == 1


async def test_a_process_killed_while_renewing_harms_nobody(tmp_path: Path) -> None:
    async with Authority() as server:
        file = tmp_path / "acme.json"
        before = server.on_disk(left=-1)
        file.write_bytes(before)
        server.gate = asyncio.Event()
        first, second = await asyncio.gather(
            _worker(file, flow(server, "device")), _worker(file, flow(server, "device"))
        )
        await _go(first)
        await server.asked.wait()
        await _go(second)  # waits for the lock
        os.kill(first.pid, signal.SIGKILL)
        await first.wait()
        assert file.read_bytes() == before
        server.gate.set()
        out, _ = await second.communicate()
        assert out.decode().strip() == server.access
        kept = load_token(file)
        assert kept is not None and kept.access == server.access


# -- whom a login is for -----------------------------------------------------------------------


def _logged_in(root: Path, *providers: str) -> Path:
    folder = root / "logins"
    folder.mkdir(exist_ok=True)
    for name in providers:
        token = {"access": f"at-{name}-0123456789", "refresh": f"rt-{name}-0123456789"}
        (folder / f"{name}.json").write_text(json.dumps(token))
    return folder


def _first(folder: Path, config: dict[str, Any] | None = None, **more: Any) -> tuple[str, str]:
    environ = {k: v for k, v in more.items() if k.isupper()}
    choice = ModelChoice(**{k: v for k, v in more.items() if k.islower()})
    made = msgspec.convert(config or {}, Config)
    found = resolve_chain(made, Secrets(environ, logins=folder), choice)[0]
    return found.target.provider, found.keys[0].source if found.keys else ""


def test_keys_come_before_logins_and_direct_ones_before_aggregators(tmp_path: Path) -> None:
    folder = _logged_in(tmp_path, "copilot", "openai-codex", "anthropic")
    assert _first(folder) == ("anthropic", "the login to anthropic")
    assert _first(folder, model="gpt-5-codex") == ("openai-codex", "the login to openai-codex")
    assert _first(folder, model="gemini-3-pro")[0] == "copilot"
    assert _first(folder, GROQ_API_KEY="gsk-0123456789", model="llama-4")[0] == "groq"
    assert _first(folder, ANTHROPIC_API_KEY="sk-ant-1") == ("anthropic", "ANTHROPIC_API_KEY")


def test_a_stranger_never_sees_a_login(tmp_path: Path) -> None:
    """A gateway in the place of the provider gets no token, and none of its identity headers."""
    folder = _logged_in(tmp_path, "anthropic")
    gateway = {"model": {"provider": "anthropic", "base_url": "https://gateway.example/anthropic"}}
    with pytest.raises(ConfigError, match="ANTHROPIC_API_KEY"):
        _first(folder, gateway)
    keyed = resolve_chain(
        msgspec.convert(gateway, Config),
        Secrets({"ANTHROPIC_API_KEY": "k"}, logins=folder),
        ModelChoice(),
    )[0]
    assert keyed.login is None and "anthropic-beta" not in keyed.headers


def test_a_named_variable_must_hold_a_key_whatever_login_there_is(tmp_path: Path) -> None:
    folder = _logged_in(tmp_path, "anthropic")
    with pytest.raises(ConfigError, match="MY_KEY"):
        _first(folder, provider="anthropic", api_key_env="MY_KEY")


def test_the_list_of_logins_agrees_with_the_rows() -> None:
    names = provider_index().names
    rows = [row for name in names if (row := find_provider(name)) is not None and row.oauth]
    assert {row.name for row in rows} == set(provider_index().logins)
    for row in rows:
        assert row.oauth is not None
        assert row.oauth.token_url.startswith("https://") and row.oauth.client_id
        assert row.oauth.device_url if row.oauth.flow == "device" else row.oauth.authorize_url


def test_tokens_are_secrets_to_be_redacted(tmp_path: Path) -> None:
    folder = _logged_in(tmp_path, "anthropic")
    known = Secrets({}, logins=folder).redactable_values()
    assert known == {"at-anthropic-0123456789", "rt-anthropic-0123456789"}
    assert "0123456789" not in repr(Token("at-anthropic-0123456789"))
