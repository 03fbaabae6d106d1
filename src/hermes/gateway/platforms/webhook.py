"""Webhooks: signed deliveries of other programs, each a message with a prompt of its route."""

import asyncio
import base64
import binascii
import hashlib
import hmac
import re
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

import msgspec

from hermes.config.platforms import PlatformSettings
from hermes.config.schema import Count, EnvName, Section
from hermes.config.secrets import Secrets
from hermes.gateway.adapter import (
    Capabilities,
    ConnectionFailure,
    Inbound,
    Part,
    PlainPlatform,
    PlatformSpec,
    Receiver,
    SendFailure,
    Target,
)
from hermes.gateway.transport.listener import open_listener
from hermes.gateway.transport.payload import decode_json, is_same_secret

_VARIABLE = "WEBHOOK_SECRET"
MAX_AGE = 300.0
_FIELD = re.compile(r"\{([A-Za-z0-9_.\-]+)\}")
_RAW = "__raw__"
_LONGEST_FIELD = 20_000
_DELIVERY_HEADERS = ("X-GitHub-Delivery", "svix-id", "X-Request-ID")


class WebhookRoute(Section, frozen=True):
    prompt: str = "{__raw__}"
    """`{a.b.0}` is taken from the payload; `{__raw__}` is all of it."""
    secret_env: EnvName = ""
    """None: the secret of all routes."""
    events: tuple[str, ...] = ()
    """The events that count; empty: all."""
    deliver: str = "log"
    """PLATFORM:CHAT[:THREAD], home, or log."""
    deliver_only: bool = False
    """The prompt itself is delivered, and no model is called."""
    toolsets: tuple[str, ...] | None = None
    session: str = ""
    """The conversation that all deliveries share; empty: each has its own."""


class WebhookSettings(PlatformSettings, frozen=True):
    host: str = "127.0.0.1"
    port: int = 8644
    max_body_bytes: Count = 1_048_576
    rate_limit: Count = 30
    """Deliveries a minute and route."""
    routes: dict[str, WebhookRoute] = msgspec.field(default_factory=dict)


class WebhookRefusal(Exception):
    """An answer other than accepted."""

    def __init__(self, status: int, text: str, **headers: str) -> None:
        super().__init__(text)
        self.status = status
        self.headers = headers


def is_signed(secret: str, headers: Mapping[str, str], body: bytes, now: float) -> bool:
    """Whether the holder of the secret sent exactly this body, and just now where that is told."""
    key = secret.encode()
    if signature := headers.get("X-Webhook-Signature-V2"):
        timestamp = headers.get("X-Webhook-Timestamp", "")
        if not _is_recent(timestamp, now):
            return False
        expected = hmac.new(key, timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()
        return _is_equal(signature, expected)
    if signature := headers.get("X-Hub-Signature-256"):
        expected = "sha256=" + hmac.new(key, body, hashlib.sha256).hexdigest()
        return _is_equal(signature, expected)
    if token := headers.get("X-Gitlab-Token"):
        return _is_equal(token, secret)
    if signature := headers.get("svix-signature"):
        return _is_svix_signed(secret, headers, body, now, signature)
    return False


def _is_svix_signed(
    secret: str, headers: Mapping[str, str], body: bytes, now: float, signature: str
) -> bool:
    timestamp = headers.get("svix-timestamp", "")
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
        signed = f"{headers.get('svix-id', '')}.{timestamp}.".encode() + body
    except (binascii.Error, ValueError):
        return False
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    given = [part.partition(",")[2] for part in signature.split() if part.startswith("v1,")]
    return _is_recent(timestamp, now) and any(_is_equal(one, expected) for one in given)


def _is_equal(given: str, expected: str) -> bool:
    return is_same_secret(given.strip(), expected)


def _is_recent(timestamp: str, now: float) -> bool:
    try:
        return abs(now - float(timestamp)) <= MAX_AGE
    except ValueError:
        return False


def fill_prompt(template: str, payload: Any, raw: str) -> str:
    """The prompt with its fields; one that the payload does not have is empty."""

    def find_field(found: re.Match[str]) -> str:
        if found[1] == _RAW:
            return _shorten(raw)
        value: Any = payload
        for part in found[1].split("."):
            if isinstance(value, dict):
                value = value.get(part)
            elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
                value = value[int(part)]
            else:
                return ""
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        return "" if value is None else _shorten(text)

    return _FIELD.sub(find_field, template)


def _shorten(text: str) -> str:
    """What the agent reads of a long value, and that it is not all."""
    if len(text) <= _LONGEST_FIELD:
        return text
    return (
        f"{text[:_LONGEST_FIELD]}\n[cut: the first {_LONGEST_FIELD:,} of {len(text):,} characters]"
    )


class WebhookPlatform(PlainPlatform):
    capabilities = Capabilities(
        pairs=False, commands=False, attended=False, authenticates=True, longest_part=1_000_000
    )

    def __init__(self, settings: WebhookSettings, secrets: Mapping[str, str | None]) -> None:
        self._settings = settings
        self._secrets = secrets
        self._recent: dict[str, deque[float]] = {name: deque() for name in settings.routes}
        self._receiver: Receiver | None = None

    async def run(self, receiver: Receiver) -> None:
        missing = [name for name, secret in self._secrets.items() if not secret]
        if missing:
            text = f"the route {missing[0]} has no secret; set {_VARIABLE} or its secret_env"
            raise ConnectionFailure("unconfigured", text, fatal=True)
        self._receiver = receiver
        routes = {("POST", "/webhooks/{route}"): self._handle_request}
        settings = self._settings
        async with open_listener(
            settings.host, settings.port, routes, max_body_bytes=settings.max_body_bytes
        ):
            receiver.report_connected()
            await asyncio.Event().wait()

    async def _handle_request(self, request: Any) -> Any:
        from aiohttp import web

        try:
            status, answer = await self._receive(request)
        except WebhookRefusal as refusal:
            body = {"error": str(refusal)}
            return web.json_response(body, status=refusal.status, headers=refusal.headers)
        except web.HTTPRequestEntityTooLarge:
            return web.json_response({"error": "The body is too large."}, status=413)
        return web.json_response(answer, status=status)

    async def _receive(self, request: Any) -> tuple[int, dict[str, str]]:
        name = request.match_info["route"]
        route = self._settings.routes.get(name)
        if route is None:
            raise WebhookRefusal(404, "There is no such route.")
        body: bytes = await request.read()
        headers = request.headers
        if not is_signed(self._secrets[name] or "", headers, body, time.time()):
            raise WebhookRefusal(401, "The signature is missing, wrong or too old.")
        self._check_rate(name)
        payload = _parse_payload(body)
        event = headers.get("X-GitHub-Event") or (
            str(payload.get("event_type", "")) if isinstance(payload, dict) else ""
        )
        if route.events and event not in route.events:
            return 200, {"status": "ignored"}
        delivery = next((headers[h] for h in _DELIVERY_HEADERS if headers.get(h)), "")
        delivery = delivery[:200] or hashlib.sha256(body).hexdigest()
        raw = body.decode("utf-8", "replace")
        text = fill_prompt(route.prompt, payload, raw)
        assert self._receiver is not None
        is_new = await self._receiver.receive_message(
            Inbound(
                chat=name,
                chat_type="dm",
                user=name,
                id=delivery,
                text=text,
                session=route.session or delivery,
                deliver=route.deliver,
                deliver_only=route.deliver_only,
                toolsets=route.toolsets,
            )
        )
        if not is_new:
            return 200, {"status": "duplicate", "delivery_id": delivery}
        return 202, {"status": "accepted", "delivery_id": delivery}

    def _check_rate(self, name: str) -> None:
        recent, now = self._recent[name], time.monotonic()
        while recent and recent[0] <= now - 60:
            recent.popleft()
        if len(recent) >= self._settings.rate_limit:
            wait = str(int(recent[0] + 60 - now) + 1)
            raise WebhookRefusal(429, "Too many deliveries.", **{"Retry-After": wait})
        recent.append(now)

    async def send_part(self, target: Target, part: Part) -> str:
        raise SendFailure("rejected", "webhooks cannot be answered")


def _parse_payload(body: bytes) -> Any:
    try:
        return decode_json(body)
    except ValueError:
        raise WebhookRefusal(400, "The body is not JSON.") from None


def _open_platform(settings: WebhookSettings, secrets: Secrets) -> WebhookPlatform:
    shared = settings.token_env or _VARIABLE
    found = {
        name: secrets.get(route.secret_env or shared) for name, route in settings.routes.items()
    }
    return WebhookPlatform(settings, found)


PLATFORM = PlatformSpec("webhook", _VARIABLE, WebhookSettings, _open_platform)
