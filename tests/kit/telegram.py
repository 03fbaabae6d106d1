"""A Telegram Bot API on loopback: it keeps updates until they are confirmed, and what bots sent."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

import aiohttp
from aiohttp import web

TOKEN = "123456789:AAkit-telegram-token-0123456789abcdefgh"
BOT = {"id": 123456789, "is_bot": True, "first_name": "Hermes", "username": "kit_bot"}
_TAGS = frozenset("b strong i em u s code pre a blockquote".split())
OWNER = 1001


class _Reader(HTMLParser):
    """The text that a client shows; an unknown or unclosed tag is an error, as for the real one."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.text = ""
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag not in _TAGS:
            raise ValueError(f"Unsupported start tag {tag!r}")
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            raise ValueError(f"Unexpected end tag {tag!r}")

    def handle_data(self, data: str) -> None:
        self.text += data


def read_html(text: str) -> str:
    reader = _Reader()
    reader.feed(text)
    reader.close()
    if reader.open:
        raise ValueError(f"Can't find end tag of {reader.open[-1]!r}")
    return reader.text


@dataclass
class Sent:
    """A message of the bot as clients show it now, and all it has shown."""

    id: int
    chat: int
    text: str
    params: dict[str, Any]
    versions: list[str] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    buttons: list[dict[str, str]] = field(default_factory=list)
    deleted: bool = False
    file: bytes = b""


@dataclass
class Fault:
    """What happens instead of an answer. `after`: the call takes effect first."""

    status: int = 500
    description: str = "Internal Server Error"
    parameters: dict[str, Any] = field(default_factory=dict)
    hang_up: bool = False
    after: bool = False
    raw: bytes | None = None
    silent: bool = False


FaultRule = Callable[[str, dict[str, Any]], Fault | None]


class Telegram:
    """`say` is a person writing to the bot; `sent` is what the bot wrote, in order."""

    def __init__(self) -> None:
        self.updates: list[dict[str, Any]] = []
        self.sent: list[Sent] = []
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.polls = 0
        self.fault: FaultRule = lambda method, params: None
        self.watch: Callable[[str], None] = lambda event: None
        """Told of `confirm`, `updates` and `sent` at the moment they happen."""
        self.files: dict[str, bytes] = {}
        self.may_download = asyncio.Event()
        self.may_download.set()
        self.url = ""
        self.token = TOKEN
        self.webhook: dict[str, Any] = {}
        self._poster: asyncio.Task[None] | None = None
        self._ids = itertools.count(100)
        self._update_ids = itertools.count(5000)
        self._changed = asyncio.Condition()

    # -- people ----------------------------------------------------------------------------------

    async def say(
        self, text: str, *, user: int = OWNER, chat: int | None = None, **more: Any
    ) -> int:
        """A message of a person; in their direct chat unless a group is named."""
        message = self.make_message(text, user=user, chat=chat, **more)
        await self.push({"message": message})
        return int(message["message_id"])

    def make_message(
        self, text: str, *, user: int = OWNER, chat: int | None = None, **more: Any
    ) -> dict[str, Any]:
        kind = "private" if chat is None else "supergroup"
        person = {"id": user, "is_bot": False, "first_name": f"P{user}"}
        message = {
            "message_id": next(self._ids),
            "from": person,
            "chat": {"id": user if chat is None else chat, "type": kind},
            "date": int(time.time()),
            "text": text,
            **more,
        }
        if text.startswith("/") and "entities" not in more:
            size = len(text.split()[0])
            message["entities"] = [{"type": "bot_command", "offset": 0, "length": size}]
        return message

    async def push(self, update: dict[str, Any]) -> None:
        async with self._changed:
            self.updates.append({"update_id": next(self._update_ids), **update})
            self._changed.notify_all()

    async def press(self, sent: Sent, label: str, *, user: int = OWNER) -> None:
        button = next(b for b in sent.buttons if b["text"] == label)
        message = _describe(sent)
        person = {"id": user, "is_bot": False, "first_name": f"P{user}"}
        query = {"id": str(next(self._ids)), "from": person, "message": message}
        query["chat_instance"] = str(sent.chat)
        await self.push({"callback_query": {**query, "data": button["callback_data"]}})

    # -- looking ---------------------------------------------------------------------------------

    def texts(self, chat: int | None = None) -> list[str]:
        """What is shown in a chat now."""
        return [s.text for s in self.sent if not s.deleted and (chat is None or s.chat == chat)]

    async def until(self, test: Callable[[], Any], timeout: float = 90) -> None:
        try:
            async with asyncio.timeout(timeout), self._changed:
                await self._changed.wait_for(test)
        except TimeoutError:
            shown = [(s.chat, s.text) for s in self.sent]
            raise AssertionError(f"it did not happen; shown: {shown}") from None

    async def until_shown(self, text: str, *, count: int = 1, timeout: float = 90) -> Sent:
        """The message that shows exactly this."""

        def find() -> list[Sent]:
            return [s for s in self.sent if s.text == text and not s.deleted]

        await self.until(lambda: len(find()) >= count, timeout)
        return find()[-1]

    # -- the API ---------------------------------------------------------------------------------

    async def handle(self, request: web.Request) -> web.StreamResponse:
        token, method = request.match_info["token"], request.match_info["method"]
        params = await _read_params(request)
        if token != self.token:
            return _error(401, "Unauthorized")
        async with self._changed:
            self.calls.append((method, params))
            self._changed.notify_all()
        fault = self.fault(method, params)
        if fault is not None and not fault.after:
            return await self._fail(request, fault)
        answer = await self._answer(method, params)
        if fault is not None:
            return await self._fail(request, fault)
        return answer

    async def _fail(self, request: web.Request, fault: Fault) -> web.StreamResponse:
        while fault.silent and request.transport is not None:
            await asyncio.sleep(0.02)
        if fault.hang_up:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        if fault.raw is not None:
            return web.Response(body=fault.raw, status=fault.status)
        return _error(fault.status, fault.description, fault.parameters)

    async def _answer(self, method: str, params: dict[str, Any]) -> web.Response:
        match method:
            case "getMe":
                return _ok(BOT)
            case "getUpdates" if self.webhook:
                return _error(409, "Conflict: can't use getUpdates while webhook is active")
            case "getUpdates":
                return _ok(await self._poll(params))
            case "setWebhook" | "deleteWebhook":
                self._set_webhook(params if params.get("url") else {})
                return _ok(True)
            case "getWebhookInfo":
                return _ok({"url": self.webhook.get("url", "")})
            case "sendMessage" | "editMessageText":
                return await self._write(method, params)
            case "deleteMessage":
                for sent in self.sent:
                    sent.deleted = sent.deleted or sent.id == int(params["message_id"])
                return _ok(True)
            case "sendDocument":
                return await self._add(params, "", params["document"])
            case "getFile":
                id = params["file_id"]
                found = {"file_id": id, "file_unique_id": id, "file_path": id}
                return _ok({**found, "file_size": len(self.files[id])})
            case _:
                return _ok(True)

    def _set_webhook(self, webhook: dict[str, Any]) -> None:
        self.webhook = webhook
        self.stop()
        if webhook:
            self._poster = asyncio.create_task(self._post_updates(webhook))

    def stop(self) -> None:
        if self._poster is not None:
            self._poster.cancel()

    async def _post_updates(self, webhook: dict[str, Any]) -> None:
        """In order; an update that is not answered with 200 is posted again."""
        headers = {"X-Telegram-Bot-Api-Secret-Token": webhook["secret_token"]}
        async with aiohttp.ClientSession(headers=headers) as session:
            while True:
                async with self._changed:
                    await self._changed.wait_for(lambda: self.updates)
                    update = self.updates[0]
                try:
                    async with session.post(webhook["url"], json=update) as answer:
                        taken = answer.status == 200
                except aiohttp.ClientError:
                    taken = False
                if taken:
                    async with self._changed:
                        self.updates.remove(update)
                        self._changed.notify_all()
                else:
                    await asyncio.sleep(0.05)

    async def _poll(self, params: dict[str, Any]) -> list[dict[str, Any]]:
        offset = int(params.get("offset") or 0)
        async with self._changed:
            before = len(self.updates)
            self.updates = [u for u in self.updates if u["update_id"] >= offset]
            if len(self.updates) < before:
                self.watch("confirm")
            self.polls += 1
            self._changed.notify_all()
            try:
                async with asyncio.timeout(float(params.get("timeout") or 0)):
                    await self._changed.wait_for(lambda: self.updates)
            except TimeoutError:
                return []
            self.watch("updates")
            return list(self.updates)

    async def _write(self, method: str, params: dict[str, Any]) -> web.Response:
        text = params["text"]
        try:
            shown = read_html(text) if params.get("parse_mode") == "HTML" else text
        except ValueError as error:
            return _error(400, f"Bad Request: can't parse entities: {error}")
        if len(shown.encode("utf-16-le")) // 2 > 4096:
            return _error(400, "Bad Request: message is too long")
        if not shown.strip():
            return _error(400, "Bad Request: message text is empty")
        if method == "sendMessage":
            return await self._add(params, shown)
        id = int(params["message_id"])
        found = [s for s in self.sent if s.id == id and not s.deleted]
        if not found:
            return _error(400, "Bad Request: message to edit not found")
        sent = found[0]
        buttons = _buttons(params)
        if sent.text == shown and sent.buttons == buttons:
            return _error(400, "Bad Request: message is not modified")
        async with self._changed:
            sent.text, sent.buttons, sent.params = shown, buttons, params
            sent.versions.append(shown)
            sent.times.append(time.monotonic())
            self._changed.notify_all()
        return _ok(_describe(sent))

    async def _add(self, params: dict[str, Any], text: str, file: bytes = b"") -> web.Response:
        async with self._changed:
            chat = int(params["chat_id"])
            sent = Sent(next(self._ids), chat, text, params, [text], [time.monotonic()])
            sent.buttons, sent.file = _buttons(params), file
            self.watch("sent")
            self.sent.append(sent)
            self._changed.notify_all()
        return _ok(_describe(sent))

    async def download(self, request: web.Request) -> web.Response:
        await self.may_download.wait()
        return web.Response(body=self.files[request.match_info["path"]])


async def _read_params(request: web.Request) -> dict[str, Any]:
    """The fields of a call, in any of the forms that the Bot API takes."""
    if request.content_type == "application/json" or not request.can_read_body:
        return dict(json.loads(await request.read() or b"{}"))
    params: dict[str, Any] = {}
    for key, value in (await request.post()).items():
        if isinstance(value, web.FileField):
            params[key] = value.file.read()
        elif isinstance(value, str) and value.startswith(("{", "[")) and key != "text":
            params[key] = json.loads(value)
        else:
            params[key] = value
    return params


def _describe(sent: Sent) -> dict[str, Any]:
    """A message of the bot as the Bot API describes it."""
    chat = {"id": sent.chat, "type": "private" if sent.chat > 0 else "supergroup"}
    if sent.chat < 0:
        chat["title"] = "Kit"
    described = {"message_id": sent.id, "from": BOT, "chat": chat, "date": int(time.time())}
    if not sent.file:
        return {**described, "text": sent.text}
    id = f"sent{sent.id}"
    return {**described, "document": {"file_id": id, "file_unique_id": id}}


def _buttons(params: dict[str, Any]) -> list[dict[str, str]]:
    rows = (params.get("reply_markup") or {}).get("inline_keyboard", [])
    return [button for row in rows for button in row]


def _ok(result: Any) -> web.Response:
    return web.json_response({"ok": True, "result": result})


def _error(status: int, description: str, parameters: dict[str, Any] | None = None) -> web.Response:
    body: dict[str, Any] = {"ok": False, "error_code": status, "description": description}
    if parameters:
        body["parameters"] = parameters
    return web.json_response(body, status=status)


@asynccontextmanager
async def telegram() -> AsyncIterator[Telegram]:
    fake = Telegram()
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_get("/file/bot{token}/{path}", fake.download)
    app.router.add_route("*", "/bot{token}/{method}", fake.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    fake.url = f"http://127.0.0.1:{port}"
    try:
        yield fake
    finally:
        fake.stop()
        await runner.cleanup()
