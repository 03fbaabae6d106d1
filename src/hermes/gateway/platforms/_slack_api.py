"""Calls Slack's Web API and opens its sockets."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from hermes.config.env import find_proxy
from hermes.config.platforms import is_safe_address
from hermes.gateway.adapter import ConnectionFailure, FailureKind, SendFailure
from hermes.llm.http.lazy_tls import load_aiohttp

CALL_SECONDS = 30.0
HEARTBEAT_SECONDS = 20.0
"""A ping without an answer for half of it ends the socket."""
_FILE_HOSTS = ("files.slack.com", "slack.com")
_REFUSED = frozenset(
    "invalid_auth not_authed account_inactive token_revoked token_expired "
    "not_allowed_token_type".split()
)
_KINDS: dict[FailureKind, str] = {
    "gone": "channel_not_found is_archived not_in_channel user_not_found user_disabled "
    "cannot_dm_bot restricted_action messages_tab_disabled",
    "too_long": "msg_too_long msg_blocks_too_long",
    "edit_lost": "message_not_found cant_update_message edit_window_closed cant_delete_message",
    "target": "thread_not_found invalid_thread_ts cannot_reply_to_message",
    "markup": "invalid_blocks invalid_blocks_format",
    # Slack: some aspect of the operation may have succeeded.
    "ambiguous": "internal_error fatal_error",
    "certain": "request_timeout service_unavailable team_added_to_org",
}
_FAILURES = {error: kind for kind, errors in _KINDS.items() for error in errors.split()}


class SlackError(Exception):
    """An answer of Slack that is no success."""

    def __init__(self, status: int, error: str, retry_after: float = 0.0) -> None:
        super().__init__(f"Slack answered {error or status}")
        self.status = status
        self.error = error
        self.retry_after = retry_after

    @property
    def is_refusal(self) -> bool:
        return self.error in _REFUSED


class SlackUnanswered(Exception):
    """A call without a usable answer. `sent`: whether the request may have arrived."""

    def __init__(self, text: str, *, sent: bool) -> None:
        super().__init__(text)
        self.sent = sent


def read_seconds(headers: Mapping[str, str]) -> float:
    """How long Slack wants us to wait; a second where it does not say in numbers."""
    try:
        return max(0.0, float(headers.get("Retry-After") or 1))
    except ValueError:
        return 1.0


class SlackApi:
    """One pool of connections."""

    def __init__(self, base_url: str, proxy: str) -> None:
        self.base_url = base_url
        self._proxy = proxy or find_proxy(base_url) or None
        self._session: Any = None

    async def call(
        self, method: str, token: str, fields: Mapping[str, Any], *, form: bool = False
    ) -> dict[str, Any]:
        """The answer of a method; fields that are None are left out. `form`: the method takes no
        JSON."""
        body = {name: value for name, value in fields.items() if value is not None}
        options: dict[str, Any] = {"data": body} if form else {"json": body}
        headers = {"Authorization": f"Bearer {token}"}
        url = f"{self.base_url}/{method}"
        status, answer_headers, content = await self._post(url, headers=headers, **options)
        if status == 429:
            raise SlackError(status, "ratelimited", read_seconds(answer_headers))
        try:
            answer = msgspec.json.decode(content, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError):
            if status >= 500:
                raise SlackError(status, "") from None
            text = f"Slack answered {status} without JSON"
            raise SlackUnanswered(text, sent=True) from None
        if not answer.get("ok"):
            raise SlackError(status, str(answer.get("error", ""))[:100])
        return answer

    async def upload(self, url: str, content: bytes) -> None:
        status, _, _ = await self._post(url, data=content)
        if status != 200:
            raise SlackError(status, "")

    async def _post(self, url: str, **options: Any) -> tuple[int, Mapping[str, str], bytes]:
        aiohttp = load_aiohttp()
        timeout = aiohttp.ClientTimeout(total=CALL_SECONDS, sock_connect=10)
        try:
            async with self._open_session().post(
                url, timeout=timeout, proxy=self._proxy, allow_redirects=False, **options
            ) as response:
                return response.status, response.headers, await response.read()
        except aiohttp.ClientConnectorError:
            raise SlackUnanswered("Slack cannot be reached", sent=False) from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            text = f"the connection to Slack broke ({type(error).__name__})"
            raise SlackUnanswered(text, sent=True) from None

    async def open_socket(self, app_token: str) -> Any:
        """A socket that has said hello; raises ConnectionFailure."""
        try:
            answer = await self.call("apps.connections.open", app_token, {}, form=True)
        except SlackError as error:
            raise explain_refusal(error, "SLACK_APP_TOKEN") from None
        except SlackUnanswered as error:
            raise ConnectionFailure("unreachable", str(error)) from None
        address = str(answer.get("url", ""))
        if not is_safe_address(address.replace("ws", "http", 1)):
            text = "the address of Slack's socket is not encrypted"
            raise ConnectionFailure("error", text, fatal=True)
        aiohttp = load_aiohttp()
        try:
            async with asyncio.timeout(CALL_SECONDS):
                socket = await self._open_session().ws_connect(
                    address, heartbeat=HEARTBEAT_SECONDS, proxy=self._proxy, max_msg_size=0
                )
                await socket.receive()
                return socket
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            text = f"Slack's socket cannot be opened ({type(error).__name__})"
            raise ConnectionFailure("unreachable", text) from None

    async def download(self, url: str, token: str, write: Callable[[bytes], None]) -> None:
        host = urlsplit(url).hostname
        is_slack = host in (*_FILE_HOSTS, urlsplit(self.base_url).hostname)
        if not is_slack or not is_safe_address(url):
            raise SendFailure("rejected", "it is not stored at Slack")
        aiohttp = load_aiohttp()
        try:
            async with self._open_session().get(
                url,
                headers={"Authorization": f"Bearer {token}"},
                timeout=aiohttp.ClientTimeout(total=300, sock_read=30),
                proxy=self._proxy,
                allow_redirects=False,
            ) as response:
                if response.status != 200:
                    raise SendFailure("rejected", f"Slack answered {response.status}")
                async for piece in response.content.iter_any():
                    write(piece)
        except (aiohttp.ClientError, TimeoutError) as error:
            text = f"the connection to Slack broke ({type(error).__name__})"
            raise SendFailure("certain", text) from None

    def _open_session(self) -> Any:
        if self._session is None:
            aiohttp = load_aiohttp()
            self._session = aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar())
        return self._session

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()


def explain_refusal(error: SlackError, variable: str) -> ConnectionFailure:
    """Why it cannot be connected."""
    if error.is_refusal or error.status == 401:
        text = f"Slack refused {variable} ({error.error}); copy it again from the app's page"
        return ConnectionFailure("unauthorized", text, fatal=True)
    if error.error == "missing_scope":
        text = f"{variable} lacks a scope; see docs/gateway.md"
        return ConnectionFailure("unauthorized", text, fatal=True)
    return ConnectionFailure("unreachable", str(error), wait=error.retry_after or None)


def explain_failure(error: SlackError | SlackUnanswered) -> SendFailure:
    """What a failed call means for what was to be sent."""
    if isinstance(error, SlackUnanswered):
        return SendFailure("ambiguous" if error.sent else "certain", str(error))
    if error.error == "ratelimited":
        return SendFailure("wait", str(error), wait=error.retry_after or 1.0)
    if error.is_refusal:
        return SendFailure("fatal", str(error))
    if error.error in _FAILURES:
        return SendFailure(_FAILURES[error.error], str(error))
    if error.status == 504:
        return SendFailure("ambiguous", str(error))
    return SendFailure("certain" if error.status >= 500 else "rejected", str(error))
