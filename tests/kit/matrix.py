"""A Matrix homeserver on loopback: enough for a client without encryption."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.kit.telegram import Fault

TOKEN = "syt_kit_matrix_token_0123456789abcdef"
PASSWORD = "kit-matrix-password-0123456789"
BOT = "@bot:kit"
OWNER = "@owner:kit"
DEVICE = "KITDEVICE"

FaultRule = Callable[[str, dict[str, Any]], Fault | None]


@dataclass
class Room:
    id: str
    members: list[str]
    joined: bool = True
    encrypted: bool = False
    direct: bool = False
    inviter: str = ""


@dataclass
class Shown:
    """A message of the bot as clients show it now, and all it has shown."""

    id: str
    room: str
    content: dict[str, Any]
    versions: list[str] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    deleted: bool = False

    @property
    def text(self) -> str:
        return str(self.content["body"])


class Homeserver:
    """`say` is a person writing; `sent` is what the bot wrote, in order. A sync token is the number
    of the events before it."""

    def __init__(self) -> None:
        self.url = ""
        self.rooms: dict[str, Room] = {}
        self.events: list[dict[str, Any]] = []
        self.sent: list[Shown] = []
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.syncs: list[str] = []
        self.media: dict[str, bytes] = {}
        self.fault: FaultRule = lambda name, body: None
        self.token = TOKEN
        self._ids = itertools.count(1)
        self._changed = asyncio.Condition()
        self._transactions: dict[str, str] = {}

    # -- people ----------------------------------------------------------------------------------

    def add_room(self, *members: str, **more: Any) -> str:
        id = f"!room{len(self.rooms)}:kit"
        self.rooms[id] = Room(id, list(members), **more)
        return id

    async def invite(self, user: str, *, direct: bool = True) -> str:
        """A room of somebody who invites the bot."""
        room = self.add_room(user, joined=False, direct=direct, inviter=user)
        await self.push(room, "m.room.member", {"membership": "invite"}, user, state_key=BOT)
        return room

    async def say(self, room: str, text: str, *, user: str = OWNER, **content: Any) -> str:
        body = {"msgtype": "m.text", "body": text, **content}
        return await self.push(room, "m.room.message", body, user)

    async def push(
        self, room: str, kind: str, content: dict[str, Any], user: str, **more: Any
    ) -> str:
        id = f"$event{next(self._ids)}"
        event = {
            "type": kind,
            "event_id": id,
            "sender": user,
            "room_id": room,
            "origin_server_ts": int(time.time() * 1000),
            "content": content,
            **more,
        }
        async with self._changed:
            self.events.append(event)
            self._changed.notify_all()
        return id

    # -- looking ---------------------------------------------------------------------------------

    def texts(self, room: str | None = None) -> list[str]:
        return [s.text for s in self.sent if not s.deleted and room in (None, s.room)]

    async def until(self, test: Callable[[], Any], timeout: float = 90) -> None:
        try:
            async with asyncio.timeout(timeout), self._changed:
                await self._changed.wait_for(test)
        except TimeoutError:
            raise AssertionError(f"it did not happen; shown: {self.texts()}") from None

    async def until_shown(self, text: str) -> Shown:
        def find() -> list[Shown]:
            return [s for s in self.sent if s.text == text and not s.deleted]

        await self.until(find)
        return find()[-1]

    # -- the API ---------------------------------------------------------------------------------

    async def handle(self, request: web.Request) -> web.StreamResponse:
        path = request.path.partition("/_matrix/")[2].split("/")[2:]
        raw = await request.read()
        is_json = path[0] != "upload"
        body: dict[str, Any] = json.loads(raw) if raw and is_json else {}
        name = next(
            (n for n in ("send", "redact", "typing", "join", "event", "messages") if n in path),
            path[0],
        )
        async with self._changed:
            self.calls.append((name, body))
            self._changed.notify_all()
        if name != "login" and request.headers.get("Authorization") != f"Bearer {self.token}":
            return _error(401, "M_UNKNOWN_TOKEN", "Invalid access token passed.")
        fault = self.fault(name, body)
        if fault is not None and not fault.after:
            return _fail(request, fault)
        answer = await self._answer(request, name, path, body, raw)
        return answer if fault is None else _fail(request, fault)

    async def _answer(
        self, request: web.Request, name: str, path: list[str], body: dict[str, Any], raw: bytes
    ) -> web.StreamResponse:
        me = {"user_id": BOT, "device_id": DEVICE}
        match name:
            case "login":
                if body.get("password") != PASSWORD:
                    return _error(403, "M_FORBIDDEN", "Invalid username or password")
                return web.json_response({**me, "access_token": self.token})
            case "account":
                return web.json_response(me)
            case "sync":
                return web.json_response(await self._sync(request))
            case "send":
                return await self._send(path, body)
            case "redact":
                for shown in self.sent:
                    shown.deleted = shown.deleted or shown.id == path[3]
                return web.json_response({"event_id": f"$event{next(self._ids)}"})
            case "join":
                return await self._join(path[1])
            case "event":
                found = [e for e in self.events if e["event_id"] == path[3]]
                if not found:
                    return _error(404, "M_NOT_FOUND", "Event not found.")
                return web.json_response(found[0])
            case "messages":
                return web.json_response(self._page_back(request, path[1]))
            case "upload":
                self.media[f"media{len(self.media)}"] = raw
                uri = f"mxc://kit/media{len(self.media) - 1}"
                return web.json_response({"content_uri": uri})
            case "keys" if path[1] == "upload":
                return web.json_response({"one_time_key_counts": {"signed_curve25519": 50}})
            case "keys":
                return web.json_response({"device_keys": {}, "failures": {}})
            case "media":
                return web.Response(body=self.media[path[-1]])
            case _:
                return web.json_response({})

    async def _sync(self, request: web.Request) -> dict[str, Any]:
        query = request.query
        since = int(query.get("since", "s0")[1:])
        async with self._changed:
            self.syncs.append(query.get("since", ""))
            self._changed.notify_all()
            try:
                async with asyncio.timeout(int(query.get("timeout", 0)) / 1000):
                    await self._changed.wait_for(lambda: len(self.events) > since)
            except TimeoutError:
                pass
        limit = json.loads(query.get("filter", "{}"))["room"]["timeline"]["limit"]
        joined: dict[str, Any] = {}
        invited: dict[str, Any] = {}
        for room in self.rooms.values():
            if not room.joined:
                invited[room.id] = {"invite_state": {"events": [_invitation(room)]}}
                continue
            new = [e for e in self.events[since:] if e["room_id"] == room.id]
            if any(e["sender"] == BOT and e["type"] == "m.room.member" for e in new):
                new = [e for e in self.events if e["room_id"] == room.id]
            if new or query.get("full_state") == "true":
                joined[room.id] = self._describe_room(room, new, limit)
        return {
            "next_batch": f"s{len(self.events)}",
            "rooms": {"join": joined, "invite": invited, "leave": {}},
            "device_one_time_keys_count": {},
            "to_device": {"events": []},
            "presence": {"events": []},
        }

    def _describe_room(self, room: Room, new: list[dict[str, Any]], limit: int) -> dict[str, Any]:
        state = [_member(user, room.id) for user in room.members]
        if room.encrypted:
            content = {"algorithm": "m.megolm.v1.aes-sha2"}
            state.append(_state("m.room.encryption", "", OWNER, content, room.id))
        first = self.events.index(new[-limit]) if len(new) > limit else 0
        timeline = {"events": new[-limit:], "limited": len(new) > limit, "prev_batch": f"s{first}"}
        return {
            "timeline": timeline,
            "state": {"events": state},
            "ephemeral": {"events": []},
            "account_data": {"events": []},
        }

    def _page_back(self, request: web.Request, room: str) -> dict[str, Any]:
        start, end = int(request.query["from"][1:]), int(request.query["to"][1:])
        limit = int(request.query["limit"])
        found = [n for n in range(end, start) if self.events[n]["room_id"] == room][-limit:]
        answer: dict[str, Any] = {"start": f"s{start}", "state": []}
        answer["chunk"] = [self.events[n] for n in reversed(found)]
        if found:
            answer["end"] = f"s{found[0]}"
        return answer

    async def _send(self, path: list[str], body: dict[str, Any]) -> web.Response:
        room, transaction = path[1], path[-1]
        found = self.rooms.get(room)
        if found is None or not found.joined:
            return _error(403, "M_FORBIDDEN", "User not in room")
        if len(json.dumps(body, ensure_ascii=False).encode()) > 65_000:
            return _error(413, "M_TOO_LARGE", "event too large")
        if transaction in self._transactions:
            return web.json_response({"event_id": self._transactions[transaction]})
        id = self._transactions[transaction] = f"$event{next(self._ids)}"
        relation = body.get("m.relates_to", {})
        async with self._changed:
            if relation.get("rel_type") == "m.replace":
                shown = next(s for s in self.sent if s.id == relation["event_id"])
                shown.content = body["m.new_content"]
            else:
                shown = Shown(id, room, body)
                self.sent.append(shown)
            shown.versions.append(shown.text)
            shown.times.append(time.monotonic())
            self._changed.notify_all()
        await self.push(room, path[3], body, BOT)
        self.events[-1]["event_id"] = id
        return web.json_response({"event_id": id})

    async def _join(self, room: str) -> web.Response:
        found = self.rooms[room]
        found.joined = True
        if BOT not in found.members:
            found.members.append(BOT)
        content = {"membership": "join", "displayname": "bot"}
        await self.push(room, "m.room.member", content, BOT, state_key=BOT)
        return web.json_response({"room_id": room})


def _state(kind: str, key: str, user: str, content: dict[str, Any], room: str) -> dict[str, Any]:
    return {
        "type": kind,
        "state_key": key,
        "sender": user,
        "event_id": f"$state-{kind}-{key}",
        "room_id": room,
        "origin_server_ts": 1,
        "content": content,
    }


def _member(user: str, room: str) -> dict[str, Any]:
    name = user[1:].partition(":")[0]
    content = {"membership": "join", "displayname": name}
    return _state("m.room.member", user, user, content, room)


def _invitation(room: Room) -> dict[str, Any]:
    content = {"membership": "invite", "is_direct": room.direct}
    return _state("m.room.member", BOT, room.inviter, content, room.id)


def _error(status: int, code: str, text: str, **more: Any) -> web.Response:
    return web.json_response({"errcode": code, "error": text, **more}, status=status)


def _fail(request: web.Request, fault: Fault) -> web.StreamResponse:
    if fault.hang_up:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()
    if fault.raw is not None:
        return web.Response(body=fault.raw, status=fault.status)
    return _error(fault.status, "M_UNKNOWN", fault.description, **fault.parameters)


@asynccontextmanager
async def homeserver() -> AsyncIterator[Homeserver]:
    fake = Homeserver()
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_route("*", "/{path:.*}", fake.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield fake
    finally:
        await runner.cleanup()
