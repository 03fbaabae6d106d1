"""A Graph API with one WhatsApp number on loopback: it posts signed deliveries until they are
taken, and keeps what was sent."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import itertools
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import web

TOKEN = "kit-whatsapp-token-0123456789"
SECRET = "kit-whatsapp-secret-0123456789"
VERIFY = "kit-whatsapp-verify-token-01234"
NUMBER_ID = "106540352242922"
OWN = "15550783881"
OWNER = "4915112345678"
STRANGER = "16505551234"


@dataclass
class WhatsappSent:
    id: str
    chat: str
    text: str
    body: dict[str, Any]
    buttons: list[dict[str, str]]
    file: bytes = b""


@dataclass
class GraphFault:
    """What a call gets instead; `after`: it took effect."""

    status: int = 400
    code: int = 100
    message: str = "(#100) Invalid parameter"
    hang_up: bool = False
    after: bool = False
    raw: bytes | None = None


@dataclass
class WhatsappFake:
    hook: str = ""
    sent: list[WhatsappSent] = field(default_factory=list)
    marks: list[dict[str, Any]] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    token: str = TOKEN
    fault: Callable[[str, dict[str, Any]], GraphFault | None] = lambda path, body: None
    url: str = ""
    media_url: str = ""
    """Where files are said to be; empty: here."""
    checks: int = 0

    def __post_init__(self) -> None:
        self._changed = asyncio.Condition()
        self._ids = itertools.count(1)
        self._waiting: list[bytes] = []
        self._poster: asyncio.Task[None] | None = None

    # -- people ------------------------------------------------------------------------------

    async def say(self, text: str, *, user: str = OWNER, **more: Any) -> str:
        content = {"type": "text", "text": {"body": text}, **more}
        return await self.deliver(content, user=user)

    async def press(self, sent: WhatsappSent, title: str, *, user: str = OWNER) -> None:
        button = next(b for b in sent.buttons if b["title"] == title)
        interactive = {"type": "button_reply", "button_reply": button}
        await self.deliver({"type": "interactive", "interactive": interactive}, user=user)

    async def deliver(self, content: dict[str, Any], *, user: str = OWNER) -> str:
        message = {
            "from": user,
            "id": f"wamid.{next(self._ids)}",
            "timestamp": str(int(time.time())),
            **content,
        }
        await self.push({"messages": [message]}, user=user)
        return str(message["id"])

    async def push(
        self, value: dict[str, Any], *, user: str = OWNER, number_id: str = NUMBER_ID
    ) -> None:
        metadata = {"display_phone_number": OWN, "phone_number_id": number_id}
        contacts = [{"profile": {"name": f"P{user[-4:]}"}, "wa_id": user}]
        whole = {"messaging_product": "whatsapp", "metadata": metadata, "contacts": contacts}
        change = {"field": "messages", "value": {**whole, **value}}
        payload = {"object": "whatsapp_business_account", "entry": [{"changes": [change]}]}
        async with self._changed:
            self._waiting.append(json.dumps(payload).encode())
            self._changed.notify_all()
        if self._poster is None:
            self._poster = asyncio.create_task(self._post())

    async def _post(self) -> None:
        async with aiohttp.ClientSession() as session:
            while True:
                async with self._changed:
                    await self._changed.wait_for(lambda: self._waiting)
                    body = self._waiting[0]
                try:
                    async with session.post(self.hook, data=body, headers=sign(body)) as answer:
                        taken = answer.status == 200
                except aiohttp.ClientError:
                    taken = False
                if taken:
                    async with self._changed:
                        self._waiting.pop(0)
                        self._changed.notify_all()
                else:
                    await asyncio.sleep(0.05)

    # -- looking -----------------------------------------------------------------------------

    def texts(self, chat: str = "") -> list[str]:
        return [s.text for s in self.sent if not chat or s.chat == chat]

    async def until(self, test: Callable[[], Any], timeout: float = 90) -> None:
        try:
            async with asyncio.timeout(timeout), self._changed:
                await self._changed.wait_for(test)
        except TimeoutError:
            raise AssertionError(f"it did not happen; sent: {self.texts()}") from None

    async def until_sent(self, text: str, *, count: int = 1) -> WhatsappSent:
        await self.until(lambda: self.texts().count(text) >= count)
        return next(s for s in reversed(self.sent) if s.text == text)

    async def until_taken(self) -> None:
        await self.until(lambda: not self._waiting)

    # -- the API -----------------------------------------------------------------------------

    async def handle(self, request: web.Request) -> web.StreamResponse:
        path = request.match_info["path"]
        body: dict[str, Any] = {}
        if request.content_type == "application/json":
            body = await request.json()
        elif request.content_type == "multipart/form-data":
            body = dict(await request.post())
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            return _fail(401, 190, "Error validating access token")
        fault = self.fault(path, body)
        answer = await self._answer(path, body) if fault is None or fault.after else None
        if fault is not None:
            if fault.hang_up:
                assert request.transport is not None
                request.transport.abort()
                return web.Response()
            if fault.raw is not None:
                return web.Response(body=fault.raw, status=fault.status)
            return _fail(fault.status, fault.code, fault.message)
        assert answer is not None
        return answer

    async def _answer(self, path: str, body: dict[str, Any]) -> web.Response:
        if path == NUMBER_ID:
            self.checks += 1
            return web.json_response({"display_phone_number": OWN, "verified_name": "Kit"})
        if path == f"{NUMBER_ID}/messages":
            return await self._take_message(body)
        if path == f"{NUMBER_ID}/media":
            assert body["messaging_product"] == "whatsapp" and body["type"]
            id = f"media{next(self._ids)}"
            self.files[id] = body["file"].file.read()
            return web.json_response({"id": id})
        if path.startswith("files/"):
            return web.Response(body=self.files[path.removeprefix("files/")])
        size = len(self.files[path])
        url = self.media_url or f"{self.url}/files/{path}"
        return web.json_response({"url": url, "file_size": size, "id": path})

    async def _take_message(self, body: dict[str, Any]) -> web.Response:
        assert body["messaging_product"] == "whatsapp"
        async with self._changed:
            self._changed.notify_all()
            if body.get("status") == "read":
                self.marks.append(body)
                return web.json_response({"success": True})
            kind = body["type"]
            content = body[kind]
            text = content.get("body", "")
            buttons = []
            if kind == "interactive":
                text = text["text"]
                buttons = [row["reply"] for row in content["action"]["buttons"]]
                assert len(text) <= 1024 and 0 < len(buttons) <= 3
                assert all(len(b["title"]) <= 20 and len(b["id"]) <= 256 for b in buttons)
            elif kind == "text":
                assert content["preview_url"] is False
                if len(text) > 4096:
                    return _fail(400, 100, "Param text['body'] must be at most 4096 characters")
            sent = WhatsappSent(f"wamid.s{next(self._ids)}", body["to"], text, body, buttons)
            sent.file = self.files.get(content.get("id", ""), b"")
            self.sent.append(sent)
        return web.json_response({"messages": [{"id": sent.id}]})

    def stop(self) -> None:
        if self._poster is not None:
            self._poster.cancel()


def _fail(status: int, code: int, message: str) -> web.Response:
    return web.json_response({"error": {"message": message, "code": code}}, status=status)


def sign(body: bytes, secret: str = SECRET) -> dict[str, str]:
    digest = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return {"X-Hub-Signature-256": f"sha256={digest}"}


@asynccontextmanager
async def whatsapp(hook: str) -> AsyncIterator[WhatsappFake]:
    fake = WhatsappFake(hook)
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_route("*", "/{path:.*}", fake.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield fake
    finally:
        fake.stop()
        await runner.cleanup()
