"""The dashboard behind reverse proxies that put it under a path."""

from __future__ import annotations

import asyncio
import random
import shutil
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from multidict import CIMultiDict

from hermes.app.live.sign_in_codes import create_code
from tests.e2e.dashboard.conftest import Visit, visit
from tests.kit import say

PREFIX = "/hermes/"
DOCS = Path(__file__).parents[3] / "docs" / "dashboard.md"
NGINX = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")


class PrefixProxy:
    """Passes requests below a path on, without it, as reverse proxies do."""

    def __init__(self) -> None:
        self.target = ""
        self.public_url = ""
        self.paths: list[str] = []

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.paths.append(request.path)
        path = request.path_qs.removeprefix(PREFIX)
        dropped = ("Connection", "Content-Length", "Transfer-Encoding")
        headers = {k: v for k, v in request.headers.items() if k not in dropped}
        async with (
            aiohttp.ClientSession(auto_decompress=False) as http,
            http.request(
                request.method,
                f"{self.target}/{path}",
                headers=headers,
                data=await request.read() or None,
                allow_redirects=False,
            ) as answer,
        ):
            kept = [(k, v) for k, v in answer.headers.items() if k not in dropped]
            response = web.StreamResponse(status=answer.status, headers=CIMultiDict(kept))
            await response.prepare(request)
            with suppress(ConnectionError, aiohttp.ClientError):
                async for data in answer.content.iter_any():
                    await response.write(data)
            return response


@asynccontextmanager
async def open_proxy() -> AsyncIterator[PrefixProxy]:
    proxy = PrefixProxy()
    runner = web.ServerRunner(
        web.Server(proxy.handle), handler_cancellation=True, shutdown_timeout=1
    )
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    proxy.public_url = f"http://127.0.0.1:{runner.addresses[0][1]}{PREFIX.rstrip('/')}"
    try:
        yield proxy
    finally:
        await runner.cleanup()


async def test_a_proxy_with_a_prefix(tmp_path: Path) -> None:
    """Signing in, a turn and its live answer through a proxy that puts the pages under a path."""
    async with open_proxy() as proxy:
        config = {"dashboard": {"enabled": True, "public_url": proxy.public_url}}
        async with visit(tmp_path, then=say("Through the proxy."), config=config) as v:
            proxy.target = v.api.url
            await _talk_through(v, proxy.public_url)
            assert proxy.paths and all(path.startswith(PREFIX) for path in proxy.paths)
            foreign = {"Host": "evil.example"}
            assert (await v.api.get("/", headers=foreign)).status == 421


async def _talk_through(v: Visit, address: str) -> None:
    """Sign in, have a message answered, and load the page again."""
    page = v.page = await v.open_page()
    code = await create_code(v.api.server.runtime.store.objects)
    await page.goto(f"{address}/#code={code}")
    await v.wait_until_live(page)
    await v.send("hello")
    await v.wait_until_answered("Through the proxy.")
    await page.reload()
    await v.wait_until_answered("Through the proxy.")


def _configure_nginx(folder: Path, port: int, target: str) -> Path:
    """The lines of docs/dashboard.md, in a configuration that runs on its own."""
    file = folder / "nginx.conf"
    lines = DOCS.read_text().partition("# nginx\n")[2].partition("```")[0]
    assert "proxy_pass http://127.0.0.1:8642/;" in lines and f"location {PREFIX} {{" in lines
    places = "\n".join(
        f"  {name}_temp_path {folder}/{name};"
        for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    file.write_text(f"""daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 64; }}
http {{
  access_log {folder}/access.log;
{places}
  server {{
    listen 127.0.0.1:{port};
{lines.replace("http://127.0.0.1:8642", target)}
  }}
}}
""")
    return file


def _find_port() -> int:
    """A free port, of those that the system gives to nobody by itself."""
    for port in random.sample(range(20_000, 30_000), 100):
        with socket.socket() as tried, suppress(OSError):
            tried.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no free port")


@asynccontextmanager
async def run_nginx(program: str, config: Path, port: int) -> AsyncIterator[None]:
    process = await asyncio.create_subprocess_exec(
        program, "-p", str(config.parent), "-c", str(config), stderr=asyncio.subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(90):
            while True:
                with suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.close()
                    break
                assert process.returncode is None, (config.parent / "error.log").read_text()
                await asyncio.sleep(0.05)
        yield
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


@pytest.mark.skipif(NGINX is None, reason="nginx is not installed")
async def test_nginx_with_a_prefix(tmp_path: Path) -> None:
    assert NGINX is not None
    port = _find_port()
    public = f"http://127.0.0.1:{port}{PREFIX.rstrip('/')}"
    config = {"dashboard": {"enabled": True, "public_url": public}}
    async with visit(tmp_path, then=say("Through the proxy."), config=config) as v:
        folder = tmp_path / "nginx"
        folder.mkdir()
        async with run_nginx(NGINX, _configure_nginx(folder, port, v.api.url), port):
            await _talk_through(v, public)
            assert "code=" not in (folder / "access.log").read_text()
