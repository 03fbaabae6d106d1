"""A small authorisation server on loopback: device codes, PKCE, rotating refresh tokens."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import secrets
from typing import Any
from urllib.parse import urlencode

from aiohttp import web

DEVICE = "urn:ietf:params:oauth:grant-type:device_code"
CLIENT = "kit-client"


def jwt(**claims: Any) -> str:
    def part(data: Any) -> str:
        return base64.urlsafe_b64encode(json.dumps(data).encode()).rstrip(b"=").decode()

    return f"{part({'alg': 'none'})}.{part(claims)}.c2ln"


class Authority:
    """Hands out tokens. A refresh token works once; the last access token is `access`.

    `answers` are errors the next polls of a device code get; `life` is how long tokens live;
    `gate`, when set, holds back every refresh before anything is decided.
    """

    def __init__(self, *, life: int = 3600, rotate: bool = True) -> None:
        self.life = life
        self.rotate = rotate
        self.answers: list[str] = []
        self.gate: asyncio.Event | None = None
        self.asked = asyncio.Event()
        """Set when a refresh has come in."""
        self.interval = 0.01
        self.access = ""
        self.refresh = ""
        self.account = "acct-kit-1"
        self.refreshes = 0
        self.spent: set[str] = set()
        self.broken = 0
        """Status the token endpoint answers with instead."""
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.issued: list[str] = []
        self._codes: dict[str, dict[str, str]] = {}
        self._runner: web.AppRunner | None = None
        self.port = 0

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def settings(self, flow: str) -> dict[str, Any]:
        """What stands under `providers.NAME.oauth`."""
        return {
            "flow": flow,
            "client_id": CLIENT,
            "scopes": "chat offline",
            "token_url": f"{self.origin}/token",
            "device_url": f"{self.origin}/device",
            "authorize_url": f"{self.origin}/authorize",
            "redirect_ports": [0],
        }

    def tokens(self) -> dict[str, Any]:
        """A new pair; the old refresh token is spent."""
        if self.refresh and self.rotate:
            self.spent.add(self.refresh)
        self.access = f"at-{secrets.token_hex(12)}"
        if self.rotate or not self.refresh:
            self.refresh = f"rt-{secrets.token_hex(12)}"
        self.issued += [self.access, self.refresh]
        return {
            "access_token": self.access,
            "refresh_token": self.refresh,
            "expires_in": self.life,
            "token_type": "bearer",
            "id_token": jwt(
                **{"https://api.openai.com/auth": {"chatgpt_account_id": self.account}}
            ),
        }

    def on_disk(self, *, left: float) -> bytes:
        """A stored login whose token has `left` seconds to live."""
        import time

        found = self.tokens()
        now = time.time()
        return json.dumps(
            {
                "access": found["access_token"],
                "refresh": found["refresh_token"],
                "expires": now + left,
                "obtained": now + left - 3600,
                "account": self.account,
                "server": f"{self.origin}/token",
            }
        ).encode()

    async def __aenter__(self) -> Authority:
        app = web.Application()
        app.router.add_post("/device", self._device)
        app.router.add_post("/token", self._token)
        app.router.add_get("/authorize", self._authorize)
        app.router.add_get("/exchange", self._exchange)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        if self.gate is not None:
            self.gate.set()
        await self._runner.cleanup()

    # -- endpoints -------------------------------------------------------------------------

    async def _fields(self, request: web.Request) -> dict[str, str]:
        if request.content_type == "application/json":
            fields = await request.json()
        else:
            fields = dict(await request.post())
        found = {str(k): str(v) for k, v in fields.items()}
        self.requests.append((request.path, found))
        return found

    async def _device(self, request: web.Request) -> web.Response:
        fields = await self._fields(request)
        if fields.get("client_id") != CLIENT:
            return _error("invalid_client")
        code = secrets.token_hex(16)
        self._codes[code] = {}
        return web.json_response(
            {
                "device_code": code,
                "user_code": "WDJB-MJHT",
                "verification_uri": f"{self.origin}/activate",
                "expires_in": 600,
                "interval": self.interval,
            }
        )

    async def _authorize(self, request: web.Request) -> web.Response:
        """The user says yes at once."""
        query = dict(request.query)
        assert query["response_type"] == "code" and query["code_challenge_method"] == "S256"
        code = secrets.token_hex(16)
        self._codes[code] = query
        back = urlencode({"code": code, "state": query["state"]})
        raise web.HTTPFound(f"{query['redirect_uri']}?{back}")

    async def _exchange(self, request: web.Request) -> web.Response:
        self.requests.append((request.path, dict(request.headers)))
        if request.headers.get("Authorization") != f"token {self.access}":
            return web.json_response({"message": "Bad credentials"}, status=401)
        import time

        self.refreshes += 1
        short = f"tid={secrets.token_hex(12)}"
        self.issued.append(short)
        return web.json_response({"token": short, "expires_at": int(time.time() + self.life)})

    async def _token(self, request: web.Request) -> web.Response:
        fields = await self._fields(request)
        if self.broken:
            return web.Response(status=self.broken, text="<h1>down</h1>")
        if fields.get("client_id") != CLIENT:
            return _error("invalid_client")
        match fields.get("grant_type"):
            case "refresh_token":
                return await self._refreshed(request, fields.get("refresh_token", ""))
            case "authorization_code":
                return self._traded(fields)
            case str(kind) if kind == DEVICE:
                return self._polled(fields)
            case _:
                return _error("unsupported_grant_type")

    async def _refreshed(self, request: web.Request, token: str) -> web.Response:
        self.asked.set()
        if self.gate is not None:
            await self.gate.wait()
        if request.transport is None:  # whoever asked is gone: nothing is decided
            return _error("invalid_request")
        if token != self.refresh or token in self.spent:
            return _error("invalid_grant", f"refresh token {token} was used or revoked")
        self.refreshes += 1
        return web.json_response(self.tokens())

    def _traded(self, fields: dict[str, str]) -> web.Response:
        begun = self._codes.pop(fields.get("code", ""), None)
        if begun is None or begun["redirect_uri"] != fields.get("redirect_uri"):
            return _error("invalid_grant")
        digest = hashlib.sha256(fields.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if challenge != begun["code_challenge"]:
            return _error("invalid_grant", "PKCE verification failed")
        return web.json_response(self.tokens())

    def _polled(self, fields: dict[str, str]) -> web.Response:
        if fields.get("device_code") not in self._codes:
            return _error("invalid_grant")
        if self.answers:
            return _error(self.answers.pop(0))
        return web.json_response(self.tokens())


def _error(code: str, description: str = "") -> web.Response:
    body = {"error": code, **({"error_description": description} if description else {})}
    return web.json_response(body, status=400)
