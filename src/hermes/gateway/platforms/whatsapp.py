"""WhatsApp: Meta's Cloud API, received by a signed webhook."""

import asyncio
import hashlib
import hmac
import logging
import mimetypes
from collections.abc import Callable, Coroutine, Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from hermes.config.platforms import PlatformSettings, is_safe_address
from hermes.config.secrets import Secrets
from hermes.core.errors import ConfigError
from hermes.gateway.adapter import (
    Attachment,
    ButtonPress,
    Capabilities,
    ConnectionFailure,
    FailureKind,
    Part,
    PlainPlatform,
    PlatformSpec,
    Receiver,
    SendFailure,
    Target,
)
from hermes.gateway.content.whatsapp_markup import render_whatsapp
from hermes.gateway.platforms._whatsapp_messages import (
    address_message,
    list_changes,
    read_message,
    write_message,
)
from hermes.gateway.transport.api_client import CALL_SECONDS, ApiClient, Unanswered
from hermes.gateway.transport.listener import open_listener
from hermes.gateway.transport.payload import (
    MALFORMED,
    decode_object,
    is_same_secret,
    read_number,
)
from hermes.llm.http.lazy_tls import load_aiohttp

log = logging.getLogger(__name__)

_API = "https://graph.facebook.com/v23.0"
_VARIABLE = "WHATSAPP_CLOUD_ACCESS_TOKEN"
_NUMBER = "WHATSAPP_CLOUD_PHONE_NUMBER_ID"
_SECRET = "WHATSAPP_CLOUD_APP_SECRET"
_VERIFY = "WHATSAPP_CLOUD_VERIFY_TOKEN"
PATH = "/whatsapp/webhook"
CHECK_SECONDS = 600.0
"""How often the token is tried."""
_MEDIA_HOSTS = ("fbsbx.com", "fbcdn.net", "facebook.com", "whatsapp.net")
"""Files are fetched, with the token, from these hosts and the API's own only."""
_MAX_REMEMBERED = 1000
_WAITS = {4: 60.0, 80007: 60.0, 130429: 5.0, 131048: 60.0, 131056: 10.0}
_KINDS: dict[int, FailureKind] = {
    0: "fatal",
    10: "fatal",
    190: "fatal",
    200: "fatal",
    1: "certain",
    2: "certain",
    131000: "certain",
    131016: "certain",
    131026: "gone",
    131030: "gone",
}
_CLOSED_WINDOW = 131047
_MAX_DELIVERY = 4_194_304
"""Meta joins messages to deliveries of up to 3 MB."""


class WhatsappSettings(PlatformSettings, frozen=True):
    webhook_host: str = "127.0.0.1"
    webhook_port: int = 8645


class WhatsappAccess(Struct, frozen=True):
    token: str
    number_id: str
    app_secret: str
    verify_token: str
    base_url: str

    def find_problem(self) -> str:
        """What is missing; empty: nothing."""
        if not is_safe_address(self.base_url):
            return "base_url is plain http to another machine; use https"
        given = {_NUMBER: self.number_id, _SECRET: self.app_secret, _VERIFY: self.verify_token}
        missing = next((name for name, value in given.items() if not value), "")
        return f"{missing} is not set; run hermes gateway setup whatsapp" if missing else ""


class GraphError(Exception):
    """An answer of the Graph API that is no success."""

    def __init__(self, status: int, error: Mapping[str, Any]) -> None:
        self.status = status
        self.code = int(error.get("code") or 0) if "code" in error else -1
        details = (error.get("error_data") or {}).get("details") or error.get("message")
        self.details = str(details or "no reason")[:200]
        super().__init__(f"WhatsApp answered {status}: {self.details}")

    @property
    def is_refusal(self) -> bool:
        """Whether the token itself is refused."""
        return self.status == 401 or _KINDS.get(self.code) == "fatal"

    @property
    def failure(self) -> SendFailure:
        text = self.details.lower()
        if self.code == _CLOSED_WINDOW:
            sentence = (
                "they have not written for 24 hours, and WhatsApp takes no answer after that; "
                "it can be sent again when they write"
            )
            return SendFailure("rejected", sentence)
        if self.code in _WAITS or self.status == 429:
            return SendFailure("wait", str(self), wait=_WAITS.get(self.code, 5.0))
        if self.is_refusal:
            return SendFailure("fatal", str(self))
        if self.code in _KINDS:
            return SendFailure(_KINDS[self.code], str(self))
        if "at most" in text or "too long" in text:
            return SendFailure("too_long", str(self))
        if "context" in text or "message_id" in text:
            return SendFailure("target", str(self))
        if self.status == 504:
            return SendFailure("ambiguous", str(self))
        return SendFailure("certain" if self.status >= 500 else "rejected", str(self))


class GraphApi:
    """Calls the Graph API with the token in a header."""

    def __init__(self, access: WhatsappAccess, proxy: str) -> None:
        self._access = access
        self._client = ApiClient("WhatsApp", access.base_url, proxy)
        self._headers = {"Authorization": f"Bearer {access.token}"}

    async def call(
        self, method: str, path: str, *, seconds: float = CALL_SECONDS, **options: Any
    ) -> dict[str, Any]:
        url = f"{self._access.base_url}/{path}"
        status, body = await self._client.request(
            method, url, seconds=seconds, headers=self._headers, **options
        )
        try:
            answer = msgspec.json.decode(body, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError):
            if status >= 500:
                raise GraphError(status, {"message": "server error"}) from None
            raise Unanswered(f"WhatsApp answered {status} without JSON", sent=True) from None
        if status >= 400 or "error" in answer:
            raise GraphError(status, answer.get("error") or {})
        return answer

    async def download(self, url: str, write: Callable[[bytes], None]) -> None:
        host = urlsplit(url).hostname or ""
        own = urlsplit(self._access.base_url).hostname
        is_theirs = any(host == name or host.endswith(f".{name}") for name in _MEDIA_HOSTS)
        if host != own and not (is_theirs and url.startswith("https://")):
            raise SendFailure("rejected", "it is not on a server of WhatsApp")
        await self._client.download(url, write, headers=self._headers)

    async def describe_number(self) -> str:
        """Our number and name; the call that tries the token."""
        fields = {"fields": "display_phone_number,verified_name"}
        found = await self.call("GET", self._access.number_id, params=fields)
        return f"{found.get('display_phone_number', '')} {found.get('verified_name', '')}".strip()

    async def close(self) -> None:
        await self._client.close()


class WhatsappPlatform(PlainPlatform):
    """One number. A delivery is answered with 200 when its messages are stored; Meta repeats the
    others for days."""

    capabilities = Capabilities(
        longest_part=4096,
        measure=len,
        render_markup=render_whatsapp,
        typing_seconds=20.0,
        buttons=True,
        marks_bots=False,
    )

    def __init__(self, api: GraphApi, access: WhatsappAccess, settings: WhatsappSettings) -> None:
        self._api = api
        self._access = access
        self._settings = settings
        self._listed = tuple(map(str, (*settings.allowed_users, *settings.admins)))
        self._receiver: Receiver | None = None
        self._latest: dict[str, str] = {}
        """The last message of each chat: the typing indicator belongs to it."""
        self._pressed: dict[str, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, receiver: Receiver) -> None:
        if problem := self._access.find_problem():
            raise ConnectionFailure("unconfigured", problem, fatal=True)
        self._receiver = receiver
        routes = {("GET", PATH): self._verify_subscription, ("POST", PATH): self._handle_delivery}
        settings = self._settings
        try:
            await self._api.describe_number()
            async with open_listener(
                settings.webhook_host,
                settings.webhook_port,
                routes,
                max_body_bytes=_MAX_DELIVERY,
            ):
                receiver.report_connected()
                while True:
                    await asyncio.sleep(CHECK_SECONDS)
                    await self._api.describe_number()
        except GraphError as error:
            raise _explain_refusal(error) from None
        except Unanswered as error:
            raise ConnectionFailure("unreachable", str(error)) from None

    async def _verify_subscription(self, request: Any) -> Any:
        from aiohttp import web

        query = request.query
        if not is_same_secret(query.get("hub.verify_token", ""), self._access.verify_token):
            return web.Response(status=403)
        return web.Response(text=query.get("hub.challenge", ""))

    async def _handle_delivery(self, request: Any) -> Any:
        from aiohttp import web

        body: bytes = await request.read()
        given = request.headers.get("X-Hub-Signature-256", "")
        if not is_same_secret(given, sign_body(self._access.app_secret, body)):
            return web.Response(status=401)
        try:
            payload = decode_object(body)
        except ValueError:
            return web.Response(status=400)
        for value in list_changes(payload, self._access.number_id):
            for message in value.get("messages") or ():
                await self._receive_message(message, value)
        return web.Response()

    async def _receive_message(self, message: Mapping[str, Any], value: Mapping[str, Any]) -> None:
        assert self._receiver is not None
        try:
            found = read_message(message, value, self._listed)
        except MALFORMED:  # not what Meta describes
            log.exception("a message of WhatsApp was left out")
            return
        if isinstance(found, ButtonPress):
            await self._receive_press(found)
        elif found is not None:
            _remember(self._latest, found.chat, found.id)
            if await self._receiver.receive_message(found):
                self._start(self._mark_read(found.id))

    async def _receive_press(self, press: ButtonPress) -> None:
        assert self._receiver is not None
        if press.id in self._pressed:
            return
        _remember(self._pressed, press.id, None)
        text = await self._receiver.receive_press(press)
        if text:
            self._start(self._tell_presser(press, text))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something that the answer to a delivery does not wait for."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _mark_read(self, id: str, **more: Any) -> None:
        body = {"messaging_product": "whatsapp", "status": "read", "message_id": id, **more}
        try:
            await self._post_message(body)
        except SendFailure as failure:
            log.info("a message on WhatsApp was not marked as read: %s", failure)

    async def _tell_presser(self, press: ButtonPress, text: str) -> None:
        try:
            await self.send_part(Target(press.chat), Part(text))
        except SendFailure as failure:
            log.info("an answer to a button on WhatsApp was not delivered: %s", failure)

    async def send_part(self, target: Target, part: Part) -> str:
        return _read_id(await self._post_message(write_message(target, part)))

    async def send_file(self, target: Target, content: bytes, name: str) -> str:
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        form = load_aiohttp().FormData()
        form.add_field("messaging_product", "whatsapp")
        form.add_field("type", kind)
        form.add_field("file", content, filename=name, content_type=kind)
        path = f"{self._access.number_id}/media"
        try:
            uploaded = await self._api.call("POST", path, seconds=2 * CALL_SECONDS, data=form)
        except Unanswered as error:  # nobody has seen it yet
            raise SendFailure("certain", str(error)) from None
        except GraphError as error:
            raise error.failure from None
        id = str(uploaded.get("id", ""))
        if kind in ("image/jpeg", "image/png"):
            body = address_message(target, "image", {"id": id})
        else:
            body = address_message(target, "document", {"id": id, "filename": name})
        return _read_id(await self._post_message(body))

    async def show_typing(self, target: Target) -> None:
        if id := self._latest.get(target.chat):
            await self._mark_read(id, typing_indicator={"type": "text"})

    async def fetch_attachment(
        self, attachment: Attachment, write: Callable[[bytes], None], limit: int
    ) -> None:
        try:
            found = await self._api.call("GET", attachment.ref)
        except GraphError as error:
            raise error.failure from None
        except Unanswered as error:
            raise error.failure from None
        if read_number(found.get("file_size")) > limit:
            raise SendFailure("rejected", f"it is larger than {limit:,} bytes")
        await self._api.download(str(found.get("url", "")), write)

    async def _post_message(self, body: dict[str, Any]) -> dict[str, Any]:
        try:
            return await self._api.call("POST", f"{self._access.number_id}/messages", json=body)
        except GraphError as error:
            raise error.failure from None
        except Unanswered as error:
            raise error.failure from None

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._api.close()


def sign_body(secret: str, body: bytes) -> str:
    """The signature that Meta sends along."""
    return f"sha256={hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}"


def _remember(known: dict[str, Any], key: str, value: Any) -> None:
    known.pop(key, None)
    known[key] = value
    while len(known) > _MAX_REMEMBERED:
        del known[next(iter(known))]


def _read_id(answer: Mapping[str, Any]) -> str:
    rows: list[dict[str, Any]] = answer.get("messages") or [{}]
    return str(rows[0].get("id", ""))


def _explain_refusal(error: GraphError) -> ConnectionFailure:
    if error.is_refusal:
        text = "WhatsApp refused the token; make a new one in the app's settings at Meta"
        return ConnectionFailure("unauthorized", text, fatal=True)
    return ConnectionFailure("unreachable", str(error))


def _make_access(settings: WhatsappSettings, secrets: Secrets) -> WhatsappAccess:
    variable = settings.token_env or _VARIABLE
    token = secrets.get(variable)
    if token is None:
        raise ConfigError(f"{variable} is not set. Run: hermes gateway setup whatsapp")
    base_url = (settings.base_url or _API).rstrip("/")
    number, secret, verify = (secrets.get(name) or "" for name in (_NUMBER, _SECRET, _VERIFY))
    return WhatsappAccess(token, number, secret, verify, base_url)


def _open_platform(settings: WhatsappSettings, secrets: Secrets) -> WhatsappPlatform:
    access = _make_access(settings, secrets)
    return WhatsappPlatform(GraphApi(access, settings.proxy), access, settings)


async def check_token(settings: WhatsappSettings, secrets: Secrets) -> str:
    """Our number; ConfigError when the token does not work or a variable is missing."""
    access = _make_access(settings, secrets)
    if problem := access.find_problem():
        raise ConfigError(f"{problem}. Nothing was saved.")
    api = GraphApi(access, settings.proxy)
    try:
        return await api.describe_number()
    except (GraphError, Unanswered) as error:
        raise ConfigError(f"{error}. Nothing was saved. Check the token and try again.") from None
    finally:
        await api.close()


PLATFORM = PlatformSpec(
    "whatsapp",
    _VARIABLE,
    WhatsappSettings,
    _open_platform,
    check_token,
    (_NUMBER, _SECRET, _VERIFY),
)
