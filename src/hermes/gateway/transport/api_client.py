"""Calls the HTTP interface of a messenger, and tells what may have arrived from what did not."""

from collections.abc import Callable
from typing import Any

from hermes.config.env import find_proxy
from hermes.gateway.adapter import SendFailure
from hermes.llm.http.lazy_tls import load_aiohttp

CALL_SECONDS = 30.0
_DOWNLOAD_SECONDS = 300.0


class Unanswered(Exception):
    """A call without a usable answer. `sent`: whether the request may have arrived."""

    def __init__(self, text: str, *, sent: bool) -> None:
        super().__init__(text)
        self.sent = sent

    @property
    def failure(self) -> SendFailure:
        return SendFailure("ambiguous" if self.sent else "certain", str(self))


class ApiClient:
    """One pool of connections. Addresses may hold tokens, so no error shows one."""

    def __init__(self, service: str, base_url: str, proxy: str) -> None:
        self._service = service
        self._proxy = proxy or find_proxy(base_url) or None
        self._session: Any = None

    async def request(
        self,
        method: str,
        url: str,
        *,
        seconds: float = CALL_SECONDS,
        limit: int = 0,
        **options: Any,
    ) -> tuple[int, bytes]:
        """The status and the body of an answer; raises Unanswered, and SendFailure when it has
        more than `limit` bytes."""
        aiohttp = load_aiohttp()
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=10)
        try:
            async with self._open_session().request(
                method, url, timeout=timeout, proxy=self._proxy, allow_redirects=False, **options
            ) as response:
                return response.status, await _read_body(response, limit)
        except aiohttp.ClientConnectorError:
            raise Unanswered(f"{self._service} cannot be reached", sent=False) from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unanswered(self._describe_break(error), sent=True) from None

    async def download(self, url: str, write: Callable[[bytes], None], **options: Any) -> None:
        """Hand over a file piece by piece."""
        aiohttp = load_aiohttp()
        timeout = aiohttp.ClientTimeout(total=_DOWNLOAD_SECONDS, sock_read=30)
        try:
            async with self._open_session().get(
                url, timeout=timeout, proxy=self._proxy, allow_redirects=False, **options
            ) as response:
                if response.status != 200:
                    text = f"{self._service} answered {response.status}"
                    raise SendFailure("rejected", text)
                async for piece in response.content.iter_any():
                    write(piece)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise SendFailure("certain", self._describe_break(error)) from None

    def open_stream(self, url: str, *, silence: float, **options: Any) -> Any:
        """A response that goes on until the other side ends it, or is silent for so long."""
        aiohttp = load_aiohttp()
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=silence)
        return self._open_session().get(
            url, timeout=timeout, proxy=self._proxy, allow_redirects=False, **options
        )

    def _describe_break(self, error: Exception) -> str:
        return f"the connection to {self._service} broke ({type(error).__name__})"

    def _open_session(self) -> Any:
        if self._session is None:
            aiohttp = load_aiohttp()
            self._session = aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar())
        return self._session

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()


async def _read_body(response: Any, limit: int) -> bytes:
    if not limit:
        body: bytes = await response.read()
        return body
    pieces: list[bytes] = []
    size = 0
    async for piece in response.content.iter_any():
        size += len(piece)
        if size > limit:
            raise SendFailure("rejected", "it is too large")
        pieces.append(piece)
    return b"".join(pieces)
