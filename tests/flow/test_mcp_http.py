"""MCP servers over HTTP in whole turns: called, restarted, too large, and behind a login."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from hermes.net.ssrf import CheckedRoute, SsrfGuard
from hermes.net.url import ParsedUrl
from tests.flow.test_mcp import KIT, PATIENT, find, result, servers, use
from tests.kit import say
from tests.kit.bodies import quoted
from tests.kit.processes import until
from tests.kit.rig import rig


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@asynccontextmanager
async def kit_process(port: int) -> AsyncIterator[None]:
    """The server of the kit behind this port."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, KIT, str(port), stderr=asyncio.subprocess.DEVNULL
    )
    try:
        await until(lambda: _answers(port))
        yield
    finally:
        process.kill()
        await process.wait()


def _answers(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


@asynccontextmanager
async def fake_server(
    handle: Callable[[web.Request], Awaitable[web.StreamResponse]],
) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
    finally:
        await runner.cleanup()


async def test_a_server_at_an_address_is_called_and_found_again(tmp_path: Path) -> None:
    port = free_port()
    steps = [
        find("add"),
        use("mcp__web__add", a=20, b=22),
        say("ok"),
        use("mcp__web__add", a=1, b=1),
        say("gone"),
        use("mcp__web__add", a=2, b=2),
        say("back"),
    ]
    config = servers(web={"url": f"http://127.0.0.1:{port}/mcp", **PATIENT})
    async with rig(tmp_path, steps, config=config) as r:
        async with kit_process(port):
            await r.turn()
            assert quoted(result(r.requests[2])) == "42"
        await r.turn()
        assert "MCP web could not be reached" in result(r.requests[4]) or "broke" in result(
            r.requests[4]
        )
        async with kit_process(port):
            await r.turn()
            assert quoted(result(r.requests[6])) == "4"


async def test_a_login_that_is_needed_is_named(tmp_path: Path) -> None:
    async def refuse(request: web.Request) -> web.Response:
        return web.Response(status=401, headers={"WWW-Authenticate": "Bearer"})

    async with fake_server(refuse) as url:
        for auth in ("", "oauth"):
            config = servers(web={"url": url, "auth": auth, **PATIENT})
            root = tmp_path / (auth or "none")
            root.mkdir()
            async with rig(root, [find("zzz"), say("ok")], config=config) as r:
                await r.turn()
                assert "web needs a login: hermes mcp login web." in result(r.requests[1])


async def test_a_huge_answer_is_not_read(tmp_path: Path) -> None:
    async def flood(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        await answer.prepare(request)
        for _ in range(64):
            await answer.write(b" " * 2**20)
        return answer

    async with fake_server(flood) as url:
        steps = [find("zzz"), say("ok")]
        async with rig(tmp_path, steps, config=servers(web={"url": url, **PATIENT})) as r:
            await r.turn()
            assert "larger than 10 MB" in result(r.requests[1])


@pytest.mark.parametrize(
    "place", ["http://169.254.169.254/", "http://10.0.0.1/", "http://[::1]:1/"]
)
async def test_a_server_cannot_send_us_into_the_own_network(tmp_path: Path, place: str) -> None:
    asked: list[str] = []

    async def point(request: web.Request) -> web.Response:
        asked.append(request.path)
        if "oauth-protected-resource" in request.path:
            resource = str(request.url.with_path("/mcp"))
            return web.json_response({"resource": resource, "authorization_servers": [place]})
        return web.Response(status=401, headers={"WWW-Authenticate": "Bearer"})

    async with fake_server(point) as url:
        config = servers(web={"url": url, "auth": "oauth", **PATIENT})
        async with rig(tmp_path, [find("zzz"), say("ok")], config=config) as r:
            await r.turn()
            text = result(r.requests[1])
            assert "is not contacted" in text, text[-300:]


async def test_a_login_goes_to_the_address_that_was_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that leads elsewhere when it is looked up again leads nowhere."""
    asked: list[tuple[str, str]] = []

    async def check(guard: SsrfGuard, url: ParsedUrl) -> CheckedRoute:
        return CheckedRoute(url, ("127.0.0.1",))

    async def answer(request: web.Request) -> web.Response:
        asked.append((request.headers["Host"].partition(":")[0], request.path))
        if "oauth-protected-resource" in request.path:
            resource = str(request.url.with_path("/mcp"))
            servers = [str(request.url.with_host("login.invalid").with_path("/"))]
            return web.json_response({"resource": resource, "authorization_servers": servers})
        if "well-known" in request.path:
            return web.Response(status=404)
        return web.Response(status=401, headers={"WWW-Authenticate": "Bearer"})

    monkeypatch.setattr(SsrfGuard, "check_url", check)
    async with fake_server(answer) as url:
        config = servers(web={"url": url, "auth": "oauth", **PATIENT})
        async with rig(tmp_path, [find("zzz"), say("ok")], config=config) as r:
            await r.turn()
    assert ("login.invalid", "/.well-known/oauth-authorization-server") in asked
