"""Memory that another program keeps too: what it must be able to do, and one behind HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import Struct

from hermes.core.errors import HermesError

if TYPE_CHECKING:
    import aiohttp

HTTP = "http"
"""The name of the provider that is built in."""
_DELIVERY_SECONDS = 60.0
"""A delivery may take long: giving up on one that arrived would repeat it."""
_MAX_ANSWER = 1 << 20
_RETRIED = frozenset({401, 403, 408, 425, 429})
"""Refusals that may pass; others concern this one delivery."""
_OK = range(200, 300)
_SERVER_ERRORS = range(500, 600)


class ProviderFailed(HermesError):
    """It did not do what it was asked; the same can be tried again."""


class RecalledFact(Struct, frozen=True):
    text: str
    id: str | int = ""
    time: str | float = ""


class _Recalled(Struct, frozen=True):
    facts: tuple[RecalledFact, ...] = ()


class MemoryProvider(Protocol):
    """A scope is named by the 16 hexadecimal digits of its folder."""

    async def recall_facts(self, scope: str, query: str, limit: int) -> tuple[RecalledFact, ...]:
        """What it knows about the query, best first. ProviderFailed if it does not say."""

    async def deliver(self, path: str, body: dict[str, Any], key: str) -> str:
        """Hand over a change, a turn or the end of a conversation; what it refused for good, else
        nothing. `key` is the same when it is tried again. ProviderFailed: try again."""

    async def check_health(self) -> None:
        """ProviderFailed when it cannot be used now."""

    async def close(self) -> None: ...


class HttpProvider:
    """A service that takes JSON by POST."""

    def __init__(self, url: str, key: str, seconds: float) -> None:
        self._url = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._seconds = seconds
        self._session: aiohttp.ClientSession | None = None

    async def recall_facts(self, scope: str, query: str, limit: int) -> tuple[RecalledFact, ...]:
        wish = {"scope": scope, "query": query, "limit": limit}
        status, answer = await self._request("POST", "/recall", wish, self._seconds)
        if status not in _OK:
            raise ProviderFailed(f"/recall answered with status {status}")
        return parse_recalled(answer)[:limit]

    async def deliver(self, path: str, body: dict[str, Any], key: str) -> str:
        status, _ = await self._request("POST", path, body, _DELIVERY_SECONDS, key)
        if status in _OK:
            return ""
        if status in _RETRIED or status in _SERVER_ERRORS:
            raise ProviderFailed(f"{path} answered with status {status}")
        return f"{path} was refused with status {status}"

    async def check_health(self) -> None:
        status, _ = await self._request("GET", "/health", None, self._seconds)
        if status not in _OK:
            raise ProviderFailed(f"/health answered with status {status}")

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _request(
        self, method: str, path: str, body: Any, seconds: float, key: str = ""
    ) -> tuple[int, bytes]:
        import aiohttp

        if self._session is None:
            self._session = aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar())
        headers = {**self._headers, **({"Idempotency-Key": key} if key else {})}
        data = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            data = msgspec.json.encode(body)
        try:
            async with self._session.request(
                method,
                f"{self._url}{path}",
                data=data,
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=seconds),
                allow_redirects=False,
            ) as response:
                answer = bytearray()
                async for piece in response.content.iter_any():
                    answer += piece
                    if len(answer) > _MAX_ANSWER:
                        raise ProviderFailed(f"{path} answered with more than 1 MB")
                return response.status, bytes(answer)
        except TimeoutError:
            raise ProviderFailed(f"{path} did not answer in {seconds:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            words = " ".join(str(error).split()) or type(error).__name__
            raise ProviderFailed(f"{path}: {words}") from None


def parse_recalled(answer: bytes) -> tuple[RecalledFact, ...]:
    try:
        return msgspec.json.decode(answer, type=_Recalled).facts
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ProviderFailed("/recall did not answer with facts") from None
