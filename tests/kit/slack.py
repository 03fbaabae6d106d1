"""A Slack on loopback: the Web API and Socket Mode; envelopes are kept until acknowledged."""

from __future__ import annotations

import asyncio
import html
import itertools
import json
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

from aiohttp import WSMsgType, web

from tests.kit.messenger import FakeMessenger, Sent, answer_json, serve_app

TOKEN = "xoxb-kit-bot-token-0123456789abcdefgh"
APP_TOKEN = "xapp-1-kit-app-token-0123456789abcdefgh"
OWNER = "U1001"
GROUP = "C9001"
BOT = "U7007"


def read_slack(text: str) -> str:
    """The text that a client shows."""
    assert not re.search(r"<[@!#]", text), f"a mention takes effect: {text}"
    code: list[str] = []

    def keep(found: re.Match[str]) -> str:
        code.append(found[1] if found[1] is not None else found[2])
        return f"\0{len(code) - 1}\0"

    text = re.sub(r"```\n?(.*?)\n?```|`(?!\u200b)([^`\n]+)`", keep, text, flags=re.DOTALL)
    text = re.sub(r"<([^<>|]*)\|([^<>]*)>", r"\2", text)
    text = re.sub(r"<([^<>|]*)>", r"\1", text)
    text = re.sub(r"^> ?", "", text, flags=re.MULTILINE)
    for mark in (r"\*", "_", "~"):
        inside = r"(?![\s\u200b])([^\n]*?)(?<!\s)"
        text = re.sub(rf"(?<!\w){mark}{inside}{mark}(?!\w)", r"\1", text)
    text = re.sub("\0(\\d+)\0", lambda found: code[int(found[1])], text)
    return html.unescape(text).replace("\u200b", "")


class Slack(FakeMessenger):
    """`say` is a person writing; a direct chat has a `D` instead of the person's `U`."""

    name = "slack"
    owner = OWNER
    variables: ClassVar = {"SLACK_BOT_TOKEN": TOKEN, "SLACK_APP_TOKEN": APP_TOKEN}

    def __init__(self) -> None:
        super().__init__()
        self.token, self.app_token = TOKEN, APP_TOKEN
        self.waiting: dict[str, dict[str, Any]] = {}
        """Envelopes that were not acknowledged."""
        self.acks: list[dict[str, Any]] = []
        self.statuses: list[dict[str, Any]] = []
        self.opened = 0
        self.most_sockets = 0
        self.sockets: list[web.WebSocketResponse] = []
        self._ids = itertools.count(1)
        self._uploads: dict[str, tuple[str, bytes]] = {}

    # -- people ----------------------------------------------------------------------------------

    def make_ts(self, at: float | None = None) -> str:
        return f"{int(at or time.time())}.{next(self._ids):06d}"

    def find_dm(self, user: str) -> str:
        return f"D{user[1:]}"

    def make_event(
        self, text: str, *, user: str = OWNER, chat: str = "", at: float | None = None, **more: Any
    ) -> dict[str, Any]:
        ts = self.make_ts(at)
        return {
            "type": "message",
            "channel": chat or self.find_dm(user),
            "channel_type": "channel" if chat else "im",
            "user": user,
            "text": text,
            "ts": ts,
            "event_ts": ts,
            **more,
        }

    async def say(self, text: str, **more: Any) -> str:
        event = self.make_event(text, **more)
        await self.push_event(event)
        return str(event["ts"])

    async def push_event(self, event: dict[str, Any]) -> None:
        payload = {"type": "event_callback", "event_id": f"Ev{next(self._ids)}", "event": event}
        await self.push("events_api", payload)

    async def push(self, kind: str, payload: dict[str, Any]) -> str:
        id = f"envelope-{next(self._ids)}"
        self.waiting[id] = {
            "type": kind,
            "envelope_id": id,
            "payload": payload,
            "accepts_response_payload": kind != "events_api",
        }
        await self._deliver(self.waiting[id])
        return id

    async def _deliver(self, envelope: dict[str, Any]) -> None:
        for socket in self.sockets[-1:]:
            if not socket.closed:
                await socket.send_str(json.dumps(envelope))

    async def press(self, sent: Sent, label: str, *, user: str = OWNER) -> None:
        button = next(b for b in sent.buttons if b["label"] == label)
        payload = {
            "type": "block_actions",
            "user": {"id": user, "username": f"p{user}", "name": f"P{user}"},
            "channel": {"id": sent.chat, "name": "directmessage"},
            "container": {"type": "message", "message_ts": sent.id, "channel_id": sent.chat},
            "message": {"ts": sent.id},
            "trigger_id": f"trigger{next(self._ids)}",
            "actions": [{"type": "button", "value": button["value"], "action_id": "choice0"}],
        }
        await self.push("interactive", payload)

    async def run_command(self, text: str, *, user: str = OWNER, chat: str = "") -> str:
        payload = {
            "command": "/hermes",
            "text": text,
            "user_id": user,
            "user_name": f"p{user}",
            "channel_id": chat or self.find_dm(user),
            "trigger_id": f"trigger{next(self._ids)}",
        }
        return await self.push("slash_commands", payload)

    # -- the socket ------------------------------------------------------------------------------

    async def handle_socket(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self.opened += 1
        await socket.send_str(json.dumps({"type": "hello", "num_connections": 1}))
        self.sockets.append(socket)
        self.most_sockets = max(self.most_sockets, len(self.sockets))
        for envelope in list(self.waiting.values()):
            await socket.send_str(json.dumps({**envelope, "retry_attempt": 1}))
        await self.note()
        async for frame in socket:
            if frame.type is WSMsgType.TEXT:
                answer = json.loads(frame.data)
                self.acks.append(answer)
                self.waiting.pop(answer.get("envelope_id"), None)
                await self.note()
        if socket in self.sockets:
            self.sockets.remove(socket)
        await self.note()
        return socket

    async def ask_to_reconnect(self) -> None:
        for socket in list(self.sockets):
            await socket.send_str(json.dumps({"type": "disconnect", "reason": "refresh_requested"}))

    async def break_connections(self) -> None:
        for socket in list(self.sockets):
            assert socket._req is not None and socket._req.transport is not None
            socket._req.transport.abort()
        self.sockets.clear()

    # -- the Web API -----------------------------------------------------------------------------

    async def handle(self, request: web.Request) -> web.StreamResponse:
        method = request.match_info["method"]
        if request.content_type == "application/json":
            params: dict[str, Any] = json.loads(await request.read() or b"{}")
        else:
            params = {**request.query, **dict(await request.post())}
            for key in ("files", "blocks"):
                if isinstance(params.get(key), str):
                    params[key] = json.loads(params[key])
        wanted = self.app_token if method == "apps.connections.open" else self.token
        if request.headers.get("Authorization") != f"Bearer {wanted}":
            return _error("invalid_auth")
        return await self.answer_call(request, method, params, lambda: self._answer(method, params))

    async def _answer(self, method: str, params: dict[str, Any]) -> web.Response:
        match method:
            case "auth.test":
                return _ok(user_id=BOT, user="kit_bot", team="kit", team_id="T1", bot_id="B1")
            case "apps.connections.open":
                address = self.url.removesuffix("/api").replace("http", "ws", 1)
                return _ok(url=f"{address}/link?ticket=secret-ticket")
            case "chat.postMessage" | "chat.update":
                return await self._write(method, params)
            case "chat.delete":
                for sent in self.sent:
                    sent.deleted = sent.deleted or sent.id == params["ts"]
                await self.note()
                return _ok()
            case "users.info":
                name = {"display_name": f"P{params['user']}"}
                return _ok(user={"id": params["user"], "name": "p", "profile": name})
            case "assistant.threads.setStatus":
                self.statuses.append(params)
                await self.note()
                return _ok()
            case "files.getUploadURLExternal":
                id = f"F{next(self._ids)}"
                self._uploads[id] = (params["filename"], b"")
                base = self.url.removesuffix("/api")
                return _ok(upload_url=f"{base}/upload/{id}", file_id=id)
            case "files.completeUploadExternal":
                return await self._finish_upload(params)
            case _:
                return _ok()

    async def _write(self, method: str, params: dict[str, Any]) -> web.Response:
        text = params.get("text") or ""
        if len(text) > 4000:
            return _error("msg_too_long")
        if not text.strip():
            return _error("no_text")
        shown, buttons = read_slack(text), _list_buttons(params)
        if method == "chat.postMessage":
            sent = Sent(self.make_ts(), params["channel"], shown, params)
            sent.thread, sent.buttons = params.get("thread_ts") or "", buttons
            await self.add_sent(sent)
            return _ok(ts=sent.id, channel=sent.chat, message={"ts": sent.id, "text": text})
        found = [s for s in self.sent if s.id == params["ts"] and not s.deleted]
        if not found:
            return _error("message_not_found")
        found[0].buttons = buttons
        await self.change_sent(found[0], shown, params)
        return _ok(ts=found[0].id, channel=found[0].chat, text=text)

    async def _finish_upload(self, params: dict[str, Any]) -> web.Response:
        for file in params["files"]:
            name, content = self._uploads[file["id"]]
            sent = Sent(file["id"], params.get("channel_id") or "", name, params, file=content)
            await self.add_sent(sent)
        return _ok(files=params["files"])

    async def upload(self, request: web.Request) -> web.Response:
        id = request.match_info["id"]
        if request.content_type == "multipart/form-data":
            form = await request.post()
            content = b"".join(v.file.read() for v in form.values() if isinstance(v, web.FileField))
        else:
            content = await request.read()
        self._uploads[id] = (self._uploads[id][0], content)
        return web.Response(text="OK")

    async def download(self, request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            return web.Response(status=302, headers={"Location": "/login"})
        return web.Response(body=self.files[request.match_info["name"]])


def _list_buttons(params: dict[str, Any]) -> list[dict[str, str]]:
    blocks = params.get("blocks") or []
    return [
        {"label": element["text"]["text"], "value": element["value"]}
        for block in blocks
        if block["type"] == "actions"
        for element in block["elements"]
    ]


def _ok(**more: Any) -> web.Response:
    return answer_json({"ok": True, **more})


def _error(error: str) -> web.Response:
    return answer_json({"ok": False, "error": error})


@asynccontextmanager
async def slack() -> AsyncIterator[Slack]:
    fake = Slack()
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_get("/link", fake.handle_socket)
    app.router.add_get("/files/{name}", fake.download)
    app.router.add_post("/upload/{id}", fake.upload)
    app.router.add_route("*", "/api/{method}", fake.handle)
    async with serve_app(app) as address:
        fake.url = f"{address}/api"
        try:
            yield fake
        finally:
            await fake.break_connections()
            await asyncio.sleep(0)
