"""Signal, through the HTTP interface of a signal-cli daemon."""

import base64
import io
import logging
import mimetypes
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from hermes.config.platforms import PlatformSettings, is_safe_address
from hermes.config.secrets import Secrets
from hermes.core.errors import ConfigError, ProviderError
from hermes.gateway.adapter import (
    Attachment,
    Capabilities,
    ConnectionFailure,
    Part,
    PlainPlatform,
    PlatformSpec,
    Receiver,
    SendFailure,
    Target,
)
from hermes.gateway.content.signal_markup import render_signal, split_styles
from hermes.gateway.platforms._signal_events import SignalSelf, read_event
from hermes.gateway.transport.api_client import CALL_SECONDS, ApiClient, Unanswered
from hermes.gateway.transport.payload import MALFORMED, decode_object
from hermes.llm.http.lazy_tls import load_aiohttp
from hermes.llm.wire.sse import SseParser

log = logging.getLogger(__name__)

_VARIABLE = "SIGNAL_HTTP_URL"
_ACCOUNT = "SIGNAL_ACCOUNT"
SILENT_SECONDS = 90.0
"""The daemon sends a sign of life every 15 s."""
_UPLOAD_SECONDS = 120.0
_LIMIT_SECONDS = 60.0
_GROUP = re.compile(r"[A-Za-z0-9+/_-]{20,}={0,2}")
_PERSON = re.compile(r"\+?\d{5,}|[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}")
_FORGOTTEN = ("not registered", "not found", "not a group member", "not a member")


class SignalSettings(PlatformSettings, frozen=True):
    pass


class SignalError(Exception):
    """An error of the daemon."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        self.code = int(error.get("code") or 0)
        self.message = str(error.get("message") or "unknown error")[:200]
        super().__init__(f"signal-cli said: {self.message}")


class SignalDaemon:
    """Calls methods of the daemon, for one account."""

    def __init__(self, url: str, account: str, proxy: str) -> None:
        self.url = url.rstrip("/")
        self.account = account
        self._client = ApiClient("signal-cli", self.url, proxy)

    async def call(
        self, method: str, *, seconds: float = CALL_SECONDS, limit: int = 0, **params: Any
    ) -> Any:
        """The result of a method; parameters that are None are left out."""
        given = {name: value for name, value in params.items() if value is not None}
        body = {
            "jsonrpc": "2.0",
            "id": "1",
            "method": method,
            "params": {"account": self.account, **given},
        }
        status, answer = await self._client.request(
            "POST",
            f"{self.url}/api/v1/rpc",
            seconds=seconds,
            limit=limit,
            data=io.BytesIO(msgspec.json.encode(body)),
            headers={"Content-Type": "application/json"},
        )
        try:
            found = msgspec.json.decode(answer, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise Unanswered(f"signal-cli answered {status} without JSON", sent=True) from None
        if error := found.get("error"):
            raise SignalError(error)
        return found.get("result")

    async def check(self) -> SignalSelf:
        """The account, if the daemon has it."""
        status, _ = await self._client.request("GET", f"{self.url}/api/v1/check")
        if status != 200:
            raise Unanswered(f"signal-cli answered {status}", sent=True)
        found = await self.call("getUserStatus", recipient=[self.account])
        uuid = next((str(row["uuid"]) for row in found or () if row.get("uuid")), "")
        return SignalSelf(self.account, uuid)

    def open_events(self) -> Any:
        """The stream of events. The daemon keeps the last ones; the inbox knows which are new."""
        return self._client.open_stream(
            f"{self.url}/api/v1/events?account={quote(self.account)}",
            silence=SILENT_SECONDS,
            headers={"Accept": "text/event-stream", "Last-Event-ID": "0"},
        )

    async def close(self) -> None:
        await self._client.close()


class SignalPlatform(PlainPlatform):
    """One account. Nothing is confirmed to the daemon: after a break it repeats what it keeps."""

    capabilities = Capabilities(
        longest_part=2000,
        measure=len,
        render_markup=render_signal,
        typing_seconds=10.0,
        marks_bots=False,
    )

    def __init__(self, daemon: SignalDaemon, settings: SignalSettings) -> None:
        self._daemon = daemon
        self._listed = tuple(map(str, (*settings.allowed_users, *settings.admins)))

    async def run(self, receiver: Receiver) -> None:
        if not is_safe_address(self._daemon.url):
            text = f"{_VARIABLE} is plain http to another machine; use https"
            raise ConnectionFailure("unconfigured", text, fatal=True)
        aiohttp = load_aiohttp()
        try:
            me = await self._daemon.check()
            async with self._daemon.open_events() as response:
                if response.status != 200:
                    text = f"signal-cli answered {response.status}"
                    raise ConnectionFailure("unreachable", text)
                receiver.report_connected()
                await self._read_events(receiver, me, response.content)
        except SignalError as error:
            raise _explain_refusal(error) from None
        except Unanswered as error:
            raise ConnectionFailure("unreachable", str(error)) from None
        except (aiohttp.ClientError, TimeoutError, OSError, ProviderError) as error:
            text = f"the connection to signal-cli broke ({type(error).__name__})"
            raise ConnectionFailure("unreachable", text) from None

    async def _read_events(self, receiver: Receiver, me: SignalSelf, content: Any) -> None:
        parser = SseParser()
        async for piece in content.iter_any():
            for _, data in parser.feed(piece):
                await self._receive_event(receiver, me, data)
        raise ConnectionFailure("unreachable", "signal-cli closed the connection")

    async def _receive_event(self, receiver: Receiver, me: SignalSelf, data: bytes) -> None:
        try:
            event = decode_object(data)
            account = event.get("account")
            if account is not None and not me.is_same(account, account):
                return
            message = read_event(event, me, self._listed)
        except MALFORMED:
            log.exception("an event of signal-cli was left out")
            return
        if message is not None:
            await receiver.receive_message(message)

    async def send_part(self, target: Target, part: Part) -> str:
        text, styles = split_styles(part.markup) if part.markup else (part.text, [])
        sent, _, author = target.reply_to.partition(":")
        result = await self._send(
            "send",
            **_address(target),
            message=text,
            textStyle=styles or None,
            quoteTimestamp=int(sent) if author else None,
            quoteAuthor=author or None,
        )
        return str(_check_results(result))

    async def send_file(self, target: Target, content: bytes, name: str) -> str:
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        safe = re.sub(r"[^\w.-]", "_", name)
        data = base64.b64encode(content).decode()
        attachment = f"data:{kind};filename={safe};base64,{data}"
        result = await self._send(
            "send", seconds=_UPLOAD_SECONDS, **_address(target), attachments=[attachment]
        )
        return str(_check_results(result))

    async def show_typing(self, target: Target) -> None:
        await self._send("sendTyping", **_address(target))

    async def fetch_attachment(
        self, attachment: Attachment, write: Callable[[bytes], None], limit: int
    ) -> None:
        found = await self._send(
            "getAttachment",
            seconds=_UPLOAD_SECONDS,
            limit=limit * 4 // 3 + 1000,
            id=attachment.ref,
        )
        try:
            write(base64.b64decode(found["data"]))
        except (KeyError, TypeError, ValueError):
            raise SendFailure("rejected", "signal-cli does not have it") from None

    async def _send(self, method: str, **params: Any) -> Any:
        try:
            return await self._daemon.call(method, **params)
        except SignalError as error:
            raise _explain_error(error) from None
        except Unanswered as error:
            raise error.failure from None

    async def close(self) -> None:
        await self._daemon.close()


def _address(target: Target) -> dict[str, Any]:
    """Where to send: to a person's id or number, else to a group."""
    if _PERSON.fullmatch(target.chat):
        return {"recipient": [target.chat]}
    if _GROUP.fullmatch(target.chat):
        return {"groupId": target.chat}
    raise SendFailure("gone", f"{target.chat} is neither a person nor a group of Signal")


def _check_results(result: Any) -> int:
    """The time of a message that reached somebody."""
    rows = (result or {}).get("results") or ()
    kinds = [str(row.get("type")) for row in rows]
    if not kinds or "SUCCESS" in kinds:
        return int((result or {}).get("timestamp") or 0)
    waits = [float(row.get("retryAfterSeconds") or 0) for row in rows]
    match kinds[0]:
        case "RATE_LIMIT_FAILURE":
            raise SendFailure("wait", "Signal limits the rate", wait=max(waits) or _LIMIT_SECONDS)
        case "UNREGISTERED_FAILURE":
            raise SendFailure("gone", "they are not on Signal any more")
        case "IDENTITY_FAILURE":
            text = "their safety number changed; trust it with signal-cli trust"
            raise SendFailure("rejected", text)
        case kind:
            raise SendFailure("certain", f"signal-cli reported {kind[:50]}")


def _explain_error(error: SignalError) -> SendFailure:
    text = error.message.lower()
    if error.code == -5 or "rate limit" in text:
        return SendFailure("wait", str(error), wait=_LIMIT_SECONDS)
    if error.code == -1 and any(words in text for words in _FORGOTTEN):
        return SendFailure("gone", str(error))
    if error.code in (-2, -3, -32603):  # it broke while sending
        return SendFailure("ambiguous", str(error))
    return SendFailure("rejected", str(error))


def _explain_refusal(error: SignalError) -> ConnectionFailure:
    if error.code in (-32602, -1):
        text = f"signal-cli has no account {_ACCOUNT}; register or link it ({error.message})"
        return ConnectionFailure("unauthorized", text, fatal=True)
    return ConnectionFailure("unreachable", str(error))


def _make_daemon(settings: SignalSettings, secrets: Secrets) -> SignalDaemon:
    variable = settings.token_env or _VARIABLE
    url = secrets.get(variable) or settings.base_url
    account = secrets.get(_ACCOUNT)
    if not url or not account:
        missing = _ACCOUNT if url else variable
        raise ConfigError(f"{missing} is not set. Run: hermes gateway setup signal")
    return SignalDaemon(url, account, settings.proxy)


def _open_platform(settings: SignalSettings, secrets: Secrets) -> SignalPlatform:
    return SignalPlatform(_make_daemon(settings, secrets), settings)


async def check_account(settings: SignalSettings, secrets: Secrets) -> str:
    """The account; ConfigError when the daemon does not have it."""
    daemon = _make_daemon(settings, secrets)
    try:
        me = await daemon.check()
    except (SignalError, Unanswered) as error:
        advice = "Check that the daemon runs and has the account."
        raise ConfigError(f"{error}. Nothing was saved. {advice}") from None
    finally:
        await daemon.close()
    return me.account


PLATFORM = PlatformSpec(
    "signal", _VARIABLE, SignalSettings, _open_platform, check_account, (_ACCOUNT,)
)
