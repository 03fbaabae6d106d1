"""`hermes mcp login`: a browser on this machine, a private token, and its renewal."""

from __future__ import annotations

import asyncio
import json
import re
import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
from aiohttp import web

from tests.flow.test_mcp_http import fake_server
from tests.kit import Home, run_hermes, start_hermes


class LoginServer:
    """An MCP server that wants a token, and the authorization server that gives it."""

    def __init__(self) -> None:
        self.valid = "none"
        self.grants: list[str] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        base = f"http://{request.host}"
        match request.path:
            case "/.well-known/oauth-protected-resource/mcp":
                return web.json_response(
                    {"resource": f"{base}/mcp", "authorization_servers": [base]}
                )
            case "/.well-known/oauth-authorization-server":
                names = ("authorization", "token", "registration")
                places = {f"{name}_endpoint": f"{base}/{name}" for name in names}
                return web.json_response(
                    {"issuer": base, "code_challenge_methods_supported": ["S256"],
                     "response_types_supported": ["code"], **places}
                )  # fmt: skip
            case "/registration":
                asked = await request.json()
                return web.json_response({**asked, "client_id": "c1"}, status=201)
            case "/authorization":
                asked = parse_qs(urlsplit(str(request.url)).query)
                assert asked["code_challenge_method"] == ["S256"]
                back = f"{asked['redirect_uri'][0]}?code=abc&state={asked['state'][0]}"
                return web.Response(status=302, headers={"Location": back})
            case "/token":
                return web.json_response(self._grant(await request.post()))
            case "/mcp" if request.headers.get("Authorization") == f"Bearer {self.valid}":
                return self._answer(await request.json())
            case "/mcp":
                where = (
                    f'Bearer resource_metadata="{base}/.well-known/oauth-protected-resource/mcp"'
                )
                return web.Response(status=401, headers={"WWW-Authenticate": where})
        return web.Response(status=404)

    def _grant(self, form: Any) -> dict[str, Any]:
        self.grants.append(str(form["grant_type"]))
        self.valid = f"token-number-{len(self.grants)}"
        return {"access_token": self.valid, "token_type": "Bearer", "expires_in": 3600,
                "refresh_token": "refresh-token-1"}  # fmt: skip

    def _answer(self, message: dict[str, Any]) -> web.Response:
        results: dict[str, Any] = {
            "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                           "serverInfo": {"name": "x", "version": "1"}},
            "tools/list": {"tools": []},
        }  # fmt: skip
        if "id" not in message:
            return web.Response(status=202)
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        if message["method"] in results:
            answer["result"] = results[message["method"]]
        else:
            answer["error"] = {"code": -32601, "message": "no"}
        return web.json_response(answer)


async def test_a_login_is_stored_used_and_renewed(tmp_path: Path) -> None:
    server = LoginServer()
    async with fake_server(server.handle) as url:
        home = Home(tmp_path, mcp_servers={"web": {"url": url, "auth": "oauth"}})
        ran = await run_hermes(["mcp", "list"], home)
        assert (ran.stdout, ran.stderr) == ("web  login needed\n", ""), ran
        process = await start_hermes(["mcp", "login", "web", "--no-browser"], home)
        assert process.stderr is not None
        async with asyncio.timeout(90):
            shown = b""
            while not (found := re.search(rb"http://127\S+/authorization\?\S+", shown)):
                shown += await process.stderr.readline()
            async with httpx2.AsyncClient(follow_redirects=True, trust_env=False) as browser:
                page = await browser.get(found[0].decode())
            assert page.status_code == 200 and "Logged in" in page.text
            out, err = await process.communicate()
        assert (process.returncode, out) == (0, b"web: logged in\n"), err
        file = home.path / "logins" / "mcp-web.json"
        stored = json.loads(file.read_text())
        assert stored["access"] == "token-number-1" and file.stat().st_mode & 0o077 == 0
        ran = await run_hermes(["mcp", "list"], home)
        assert ran.stdout == "web  ok  0 tools\n" and server.grants == ["authorization_code"]
        file.write_text(json.dumps({**stored, "expires": time.time() - 10}))
        ran = await run_hermes(["mcp", "list"], home)
        assert ran.stdout == "web  ok  0 tools\n", ran
        assert server.grants == ["authorization_code", "refresh_token"]
        assert json.loads(file.read_text())["access"] == "token-number-2"
        home.configure(mcp_servers={"web": {"url": url.replace("/mcp", "/other/mcp")}})
        ran = await run_hermes(["mcp", "list"], home)
        assert ran.stdout.startswith(("web  login needed", "web  failed"))
        assert "token-number" not in ran.stdout + ran.stderr
