"""A Discord on loopback: REST, the gateway with sessions that can be resumed, and interactions."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import time
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, ClassVar

from aiohttp import WSMsgType, web

from tests.kit.messenger import FakeMessenger, Sent, answer_json, serve_app

TOKEN = "MTIzNDU2Nzg5MDEy.Gkit00.discord-kit-token-0123456789abcdefgh"
OWNER = "1001"
GUILD = "9000"
GROUP = "9001"
BOT = {"id": "7007", "username": "kit_bot", "discriminator": "0", "avatar": None, "bot": True}
_EPOCH = 1420070400000
_INTENT_CONTENT = 1 << 15


def read_discord(text: str) -> str:
    """The text that a client shows."""
    code: list[str] = []

    def keep(found: re.Match[str]) -> str:
        code.append(found["fence"] if found["fence"] is not None else found["inline"].strip(" "))
        return f"\0{len(code) - 1}\0"

    text = re.sub(
        r"```(?:[\w+#.-]*\n)(?P<fence>.*?)\n?```|(?<![\\`])(?P<m>`+)(?P<inline>[^\n]*?[^`])(?P=m)(?!`)",
        keep,
        text,
        flags=re.DOTALL,
    )
    text = re.sub(r"^(> )?#{1,3} ", r"\1", text, flags=re.MULTILINE)
    text = re.sub(r"^> ?", "", text, flags=re.MULTILINE)
    escapes: list[str] = []

    def hide(found: re.Match[str]) -> str:
        escapes.append(found[1])
        return f"\1{len(escapes) - 1}\1"

    text = re.sub(r"\\([^A-Za-z0-9\s])", hide, text)
    text = re.sub(r"\[([^\]]*)\]\(<[^>]*>\)", r"\1", text)
    text = re.sub(r"\*\*|\*|~~|\u200b", "", text)
    text = re.sub("\1(\\d+)\1", lambda found: escapes[int(found[1])], text)
    return re.sub("\0(\\d+)\0", lambda found: code[int(found[1])], text).replace("\u200b", "")


class Discord(FakeMessenger):
    """`say` is a person writing; a direct chat has the id of the person with `55` before it."""

    name = "discord"
    owner = OWNER
    variables: ClassVar = {"DISCORD_BOT_TOKEN": TOKEN}
    token = TOKEN

    def __init__(self) -> None:
        super().__init__()
        self.history: dict[str, list[dict[str, Any]]] = {}
        self.threads: dict[str, str] = {}
        """Threads and the channels they are in."""
        self.commands: list[dict[str, Any]] = []
        self.answers: list[dict[str, Any]] = []
        """How interactions were answered."""
        self.application_flags = 1 << 19
        """The intents that are switched on: that for the content of messages."""
        self.close_code = 0
        """The gateway closes with it after an identify."""
        self.acknowledges = True
        """Whether heartbeats are answered, and events sent."""
        self.heartbeat_ms = 41_250
        self.identifies = 0
        self.resumes = 0
        self.typing: list[str] = []
        self._ids = itertools.count(1)
        self._sessions: dict[str, list[dict[str, Any]]] = {}
        self._sockets: dict[str, tuple[web.WebSocketResponse, Any]] = {}

    # -- people ----------------------------------------------------------------------------------

    def make_id(self, at: float | None = None) -> str:
        moment = int((at or time.time()) * 1000) - _EPOCH
        return str((moment << 22) + next(self._ids) % 4096)

    def find_dm(self, user: str) -> str:
        return f"55{user}"

    def make_message(
        self, text: str, *, user: str = OWNER, chat: str = "", at: float | None = None, **more: Any
    ) -> dict[str, Any]:
        channel = chat or self.find_dm(user)
        message = {
            "id": self.make_id(at),
            "channel_id": channel,
            "author": {
                "id": user,
                "username": f"p{user}",
                "global_name": f"P{user}",
                "discriminator": "0",
                "avatar": None,
            },
            "content": text,
            "timestamp": datetime.fromtimestamp(at or time.time(), UTC).isoformat(),
            "edited_timestamp": None,
            "tts": False,
            "mention_everyone": False,
            "mentions": [],
            "mention_roles": [],
            "attachments": [],
            "embeds": [],
            "pinned": False,
            "type": 0,
            **more,
        }
        if chat:
            message["guild_id"] = GUILD
        return message

    async def say(self, text: str, **more: Any) -> str:
        message = self.make_message(text, **more)
        await self.push_message(message)
        return str(message["id"])

    async def push_message(self, message: dict[str, Any]) -> None:
        """It is in the chat, whether the bot is connected or not."""
        self.history.setdefault(message["channel_id"], []).append(message)
        await self.push("MESSAGE_CREATE", message)

    async def push(self, event: str, data: dict[str, Any]) -> None:
        for id, events in self._sessions.items():
            events.append({"op": 0, "t": event, "s": len(events) + 1, "d": data})
            await self._send(id, events[-1])

    async def press(self, sent: Sent, label: str, *, user: str = OWNER) -> None:
        button = next(b for b in sent.buttons if b["label"] == label)
        data = {"custom_id": button["custom_id"], "component_type": 2}
        await self._interact(3, data, user, sent.thread or sent.chat)

    async def run_command(
        self, name: str, text: str = "", *, user: str = OWNER, chat: str = ""
    ) -> None:
        """A command of the menu."""
        options = [{"type": 3, "name": "text", "value": text}] if text else []
        data = {"id": "1", "type": 1, "name": name, "options": options}
        await self._interact(2, data, user, chat or self.find_dm(user))

    async def _interact(self, kind: int, data: dict[str, Any], user: str, channel: str) -> None:
        person = self.make_message("", user=user)["author"]
        in_guild = not channel.startswith("55")
        await self.push(
            "INTERACTION_CREATE",
            {
                "id": self.make_id(),
                "application_id": BOT["id"],
                "type": kind,
                "data": data,
                "channel": self._describe_channel(channel),
                "channel_id": channel,
                "token": "interaction-token",
                "version": 1,
                "attachment_size_limit": 10_000_000,
                "entitlements": [],
                **(
                    {"guild_id": GUILD, "member": self._describe_member(person)}
                    if in_guild
                    else {"user": person}
                ),
            },
        )

    def _describe_member(self, person: dict[str, Any]) -> dict[str, Any]:
        joined = "2026-01-01T00:00:00+00:00"
        flags = {"deaf": False, "mute": False, "flags": 0, "permissions": "0"}
        return {"user": person, "roles": [], "joined_at": joined, **flags}

    def _describe_channel(self, id: str) -> dict[str, Any]:
        if id.startswith("55"):
            person = {"id": id[2:], "username": "p", "discriminator": "0", "avatar": None}
            return {"id": id, "type": 1, "recipients": [person], "last_message_id": None}
        if id in self.threads:
            meta = {
                "archived": False,
                "auto_archive_duration": 1440,
                "archive_timestamp": "2026-01-01T00:00:00+00:00",
                "locked": False,
            }
            return {
                "id": id,
                "type": 11,
                "guild_id": GUILD,
                "parent_id": self.threads[id],
                "name": "thread",
                "owner_id": BOT["id"],
                "message_count": 0,
                "member_count": 1,
                "rate_limit_per_user": 0,
                "thread_metadata": meta,
            }
        return {
            "id": id,
            "type": 0,
            "guild_id": GUILD,
            "name": "general",
            "position": 0,
            "permission_overwrites": [],
            "nsfw": False,
            "parent_id": None,
        }

    def _describe_guild(self) -> dict[str, Any]:
        return {
            "id": GUILD,
            "name": "kit",
            "owner_id": OWNER,
            "roles": [],
            "emojis": [],
            "features": [],
            "channels": [self._describe_channel(GROUP)],
            "threads": [self._describe_channel(id) for id in self.threads],
            "members": [],
            "member_count": 2,
            "voice_states": [],
            "presences": [],
            "stage_instances": [],
            "guild_scheduled_events": [],
            "soundboard_sounds": [],
            "large": False,
            "unavailable": False,
            "verification_level": 0,
            "default_message_notifications": 0,
            "explicit_content_filter": 0,
            "mfa_level": 0,
            "nsfw_level": 0,
            "premium_tier": 0,
            "preferred_locale": "en-US",
            "system_channel_flags": 0,
            "afk_timeout": 300,
            "premium_progress_bar_enabled": False,
        }

    # -- the gateway -----------------------------------------------------------------------------

    async def break_connections(self, *, forget: bool = False) -> None:
        """End every socket; `forget`: the sessions cannot be resumed."""
        if forget:
            self._sessions.clear()
        for socket, _ in list(self._sockets.values()):
            assert socket._req is not None and socket._req.transport is not None
            socket._req.transport.abort()
        self._sockets.clear()

    async def ask_to_reconnect(self) -> None:
        for id in list(self._sockets):
            await self._send(id, {"op": 7, "d": None})

    @property
    def is_connected(self) -> bool:
        return bool(self._sockets)

    async def handle_socket(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(autoping=True)
        await socket.prepare(request)
        packer = zlib.compressobj() if "zlib" in request.query.get("compress", "") else None
        await _write(socket, packer, {"op": 10, "d": {"heartbeat_interval": self.heartbeat_ms}})
        session = ""
        async for frame in socket:
            if frame.type is not WSMsgType.TEXT:
                continue
            message = json.loads(frame.data)
            match message["op"]:
                case 1 if self.acknowledges:
                    await _write(socket, packer, {"op": 11})
                case 2:
                    session = await self._identify(socket, packer, message["d"])
                case 6:
                    session = await self._resume(socket, packer, message["d"])
        if session and self._sockets.get(session, (None, None))[0] is socket:
            del self._sockets[session]
        await self.note()
        return socket

    async def _identify(
        self, socket: web.WebSocketResponse, packer: Any, data: dict[str, Any]
    ) -> str:
        self.identifies += 1
        code = 4004 if data["token"] != self.token else self.close_code
        if not data["intents"] & _INTENT_CONTENT:
            code = 4013
        if code:
            await socket.close(code=code)
            return ""
        session = f"session{self.identifies}"
        address = f"{self.url.removesuffix('/api/v10').replace('http', 'ws', 1)}/gateway"
        ready = {
            "v": 10,
            "user": BOT,
            "guilds": [{"id": GUILD, "unavailable": True}],
            "session_id": session,
            "resume_gateway_url": address,
            "application": {"id": BOT["id"], "flags": 0},
        }
        self._sessions[session] = events = [
            {"op": 0, "t": "READY", "s": 1, "d": ready},
            {"op": 0, "t": "GUILD_CREATE", "s": 2, "d": self._describe_guild()},
        ]
        self._sockets[session] = (socket, packer)
        for event in list(events):
            await self._send(session, event)
        await self.note()
        return session

    async def _resume(self, socket: web.WebSocketResponse, packer: Any, data: Any) -> str:
        session = str(data["session_id"])
        if session not in self._sessions:
            await _write(socket, packer, {"op": 9, "d": False})
            return ""
        self.resumes += 1
        self._sockets[session] = (socket, packer)
        events = self._sessions[session]
        for event in events[data["seq"] :]:
            await self._send(session, event)
        await self._send(session, {"op": 0, "t": "RESUMED", "s": len(events), "d": {}})
        await self.note()
        return session

    async def _send(self, session: str, event: dict[str, Any]) -> None:
        found = self._sockets.get(session)
        if found is not None and self.acknowledges and not found[0].closed:
            await _write(*found, event)

    # -- REST ------------------------------------------------------------------------------------

    async def handle(self, request: web.Request) -> web.StreamResponse:
        path = request.match_info["path"]
        is_authorized = request.headers.get("Authorization") == f"Bot {self.token}"
        if not is_authorized and not path.startswith(("interactions/", "webhooks/")):
            return answer_json({"message": "401: Unauthorized", "code": 0}, status=401)
        params: Any = {}
        if request.content_type == "multipart/form-data":
            form = await request.post()
            params = json.loads(str(form.get("payload_json") or "{}"))
            file = form.get("files[0]")
            if isinstance(file, web.FileField):
                params["file"] = file.file.read()
        elif body := await request.read():
            params = json.loads(body)
        method = _name_call(request.method, path)
        fields = params if isinstance(params, dict) else {"rows": params}
        return await self.answer_call(
            request, method, fields, lambda: self._answer(method, path.split("/"), fields, request)
        )

    async def _answer(
        self, method: str, path: list[str], params: dict[str, Any], request: web.Request
    ) -> web.Response:
        match method:
            case "GET users/@me":
                return answer_json(BOT)
            case "POST users/@me/channels":
                return answer_json(
                    self._describe_channel(self.find_dm(str(params["recipient_id"])))
                )
            case "GET oauth2/applications/@me":
                return answer_json({**_APPLICATION, "flags": self.application_flags})
            case "GET gateway/bot":
                address = f"{self.url.removesuffix('/api/v10').replace('http', 'ws', 1)}/gateway"
                limit = {"total": 1000, "remaining": 999, "reset_after": 0, "max_concurrency": 1}
                answer = {"url": address, "shards": 1, "session_start_limit": limit}
                return answer_json(answer)
            case "PUT applications/commands":
                self.commands = params["rows"]
                return answer_json([])
            case "POST channels/messages":
                return await self._create_message(path[1], params)
            case "PATCH channels/messages/:id" | "DELETE channels/messages/:id":
                return await self._change_message(request.method, path[3], params)
            case "GET channels/messages":
                return self._list_messages(path[1], request.query)
            case "GET channels":
                return answer_json(self._describe_channel(path[1]))
            case "POST channels/typing":
                if self._is_unknown(path[1]):
                    return _error(404, 10003, "Unknown Channel")
                self.typing.append(path[1])
                return web.Response(status=204)
            case "POST channels/messages/:id/threads":
                self.threads[path[3]] = path[1]
                thread = {**self._describe_channel(path[3]), "name": params["name"]}
                await self.push("THREAD_CREATE", thread)
                return answer_json(thread)
            case "POST webhooks":
                self.answers.append(params)
                await self.note()
                return answer_json({**self.make_message(""), "id": self.make_id()})
            case "POST interactions":
                self.answers.append(params)
                await self.note()
                answer = {"interaction": {"id": path[1], "type": 2}}
                return answer_json(answer)
            case "GET guilds/channels":
                return answer_json([self._describe_channel(GROUP)])
            case "GET guilds/members/search":
                person = self.make_message("")["author"]
                return answer_json([self._describe_member(person)])
            case _:
                return _error(404, 0, f"404: Not Found ({method})")

    def _is_unknown(self, channel: str) -> bool:
        return not (channel.startswith("55") or channel == GROUP or channel in self.threads)

    async def _create_message(self, channel: str, params: dict[str, Any]) -> web.Response:
        if self._is_unknown(channel):
            return _error(404, 10003, "Unknown Channel")
        content = params.get("content") or ""
        if problem := _find_problem(params):
            return problem
        chat = self.threads.get(channel, channel)
        thread = channel if channel in self.threads else ""
        sent = Sent(self.make_id(), chat, read_discord(content), params, thread)
        sent.buttons, sent.file = _list_buttons(params), params.pop("file", b"")
        await self.add_sent(sent)
        message = self.make_message(content, chat="" if channel.startswith("55") else channel)
        message = {**message, "id": sent.id, "channel_id": channel, "author": BOT}
        self.history.setdefault(channel, []).append(message)
        await self.push("MESSAGE_CREATE", message)
        return answer_json(message)

    async def _change_message(self, verb: str, id: str, params: dict[str, Any]) -> web.Response:
        found = [s for s in self.sent if s.id == id and not s.deleted]
        if not found:
            return _error(404, 10008, "Unknown Message")
        sent = found[0]
        if verb == "DELETE":
            sent.deleted = True
            await self.note()
            return web.Response(status=204)
        if problem := _find_problem(params):
            return problem
        sent.buttons = _list_buttons(params)
        await self.change_sent(sent, read_discord(params["content"]), params)
        message = self.make_message(params["content"])
        return answer_json({**message, "id": id, "author": BOT})

    def _list_messages(self, channel: str, query: Any) -> web.Response:
        after, before = int(query.get("after", 0)), int(query.get("before", 2**63))
        rows = [m for m in self.history.get(channel, []) if after < int(m["id"]) < before]
        limit = int(query["limit"])
        rows = rows[:limit] if "after" in query else rows[-limit:]
        return answer_json(rows[::-1])

    async def download(self, request: web.Request) -> web.Response:
        return web.Response(body=self.files[request.match_info["name"]])


_APPLICATION = {
    "id": BOT["id"],
    "name": "kit",
    "icon": None,
    "description": "",
    "bot_public": True,
    "bot_require_code_grant": False,
    "verify_key": "00",
    "owner": {"id": "1", "username": "o", "discriminator": "0", "avatar": None},
}


def _name_call(method: str, path: str) -> str:
    """`POST channels/messages`: the call without the ids of its address."""
    parts = path.split("/")
    if parts[0] in ("interactions", "webhooks"):
        return f"{method} {parts[0]}"
    kept = [part for part in parts if not part.isdecimal()]
    if "messages" in parts and len(parts) > 3:
        kept.insert(2, ":id")
    return f"{method} {'/'.join(kept)}"


def _find_problem(params: dict[str, Any]) -> web.Response | None:
    content = params.get("content") or ""
    if len(content) > 2000:
        detail = {
            "_errors": [{"code": "BASE_TYPE_MAX_LENGTH", "message": "2000 or fewer in length"}]
        }
        return _error(400, 50035, "Invalid Form Body", errors={"content": detail})
    if not content and "file" not in params:
        return _error(400, 50006, "Cannot send an empty message")
    return None


def _list_buttons(params: dict[str, Any]) -> list[dict[str, str]]:
    rows = params.get("components") or []
    return [button for row in rows for button in row.get("components", ())]


def _error(status: int, code: int, message: str, **more: Any) -> web.Response:
    return answer_json({"code": code, "message": message, **more}, status=status)


async def _write(socket: web.WebSocketResponse, packer: Any, event: dict[str, Any]) -> None:
    data = json.dumps(event).encode()
    if packer is None:
        await socket.send_str(data.decode())
    else:
        await socket.send_bytes(packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH))


@asynccontextmanager
async def discord() -> AsyncIterator[Discord]:
    fake = Discord()
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_get("/gateway", fake.handle_socket)
    app.router.add_get("/gateway/", fake.handle_socket)
    app.router.add_get("/attachments/{name}", fake.download)
    app.router.add_route("*", "/api/v10/{path:.*}", fake.handle)
    async with serve_app(app) as address:
        fake.url = f"{address}/api/v10"
        try:
            yield fake
        finally:
            await fake.break_connections()
            await asyncio.sleep(0)
