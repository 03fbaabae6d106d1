"""What answers at an address: an API, in which protocol, with which models; or /v1 was left out."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from hermes.core.errors import ProviderError
from hermes.llm.auth.key_pool import Credential, usable
from hermes.llm.endpoints.catalog import wire_for
from hermes.llm.http.transport import Transport
from hermes.llm.provider_spec import WireName
from hermes.version import VERSION

SECONDS = 10.0
_VERSION = re.compile(r"/v\d\w*(?:/|$)")
_DENIED = (401, 403)


class Probe(Struct, frozen=True):
    """`wire` None: nothing there speaks a protocol we know."""

    base_url: str
    wire: WireName | None = None
    models: tuple[str, ...] = ()
    needs_key: bool = False
    said: str = ""
    """Why not, in a few words."""


class _Heard(Struct, frozen=True):
    status: int = 0
    body: Any = None
    said: str = ""


class Prober:
    """Asks; sends the key only to the address it was given for."""

    def __init__(self, transport: Transport, key: Credential) -> None:
        self._transport = transport
        self._key = key

    async def at(self, base_url: str, api_mode: str = "") -> Probe:
        """With /v1 at its end where it was left out and that answers, else as it is."""
        parts = base_url.partition("://")[2]
        if not _VERSION.search(parts) and wire_for(base_url, api_mode, "custom") != "anthropic":
            versioned = await self._one(f"{base_url}/v1", api_mode)
            if versioned.wire is not None:
                return versioned
        return await self._one(base_url, api_mode)

    async def _one(self, base_url: str, api_mode: str) -> Probe:
        told = wire_for(base_url, api_mode, "custom") if api_mode else None
        guess = wire_for(base_url, "", "custom")
        path = "/v1/models" if guess == "anthropic" and not base_url.endswith("/v1") else "/models"
        listed = await self._ask("GET", base_url + path)
        models = _names(listed.body)
        if listed.status == 200 and models:
            return Probe(base_url, told or _spoken(listed.body, guess), models)
        if listed.status == 0:
            return Probe(base_url, said=listed.said)
        denied = listed.status in _DENIED and isinstance(listed.body, Mapping)
        if denied and guess != "chat":
            return Probe(base_url, told or guess, needs_key=True)
        return await self._asked(base_url, told, listed, denied=denied)

    async def _asked(
        self, base_url: str, told: WireName | None, listed: _Heard, *, denied: bool
    ) -> Probe:
        """No list: an empty request is refused in the words of a protocol."""
        ways: tuple[tuple[WireName, str], ...] = (
            ("chat", "/chat/completions"),
            ("responses", "/responses"),
            ("anthropic", "/messages" if base_url.endswith("/v1") else "/v1/messages"),
        )
        for wire, path in ways:
            heard = await self._ask("POST", base_url + path, b"{}")
            if heard.status in (400, 401, 403, 422, 429) and _refusal(heard.body, wire):
                return Probe(base_url, told or wire, needs_key=heard.status in _DENIED)
        said = f"it answers {listed.status} and knows none of the protocols"
        return Probe(base_url, "chat" if denied else None, needs_key=denied, said=said)

    async def _ask(self, method: str, url: str, body: bytes = b"") -> _Heard:
        headers = {"Accept": "application/json", "User-Agent": f"hermes/{VERSION}"}
        headers["anthropic-version"] = "2023-06-01"
        if body:
            headers["Content-Type"] = "application/json"
        if self._key.value:
            key = usable(self._key)
            headers |= {"Authorization": f"Bearer {key}", "x-api-key": key}
        try:
            async with asyncio.timeout(SECONDS):
                exchange = await self._transport.send(method, url, headers=headers, body=body)
                try:
                    raw = await exchange.all(4 << 20)
                finally:
                    exchange.close()
        except TimeoutError:
            return _Heard(said=f"no answer within {SECONDS:.0f} s")
        except ProviderError as error:
            return _Heard(said=str(error))
        try:
            return _Heard(exchange.status, msgspec.json.decode(raw))
        except ValueError:
            return _Heard(exchange.status)


def _names(body: Any) -> tuple[str, ...]:
    rows = body
    if isinstance(body, Mapping):
        rows = body.get("data") or body.get("models")
    if not isinstance(rows, list):
        return ()
    found = [str(r.get("id") or r.get("name") or "") for r in rows if isinstance(r, Mapping)]
    return tuple(name.removeprefix("models/") for name in found if name)


def _spoken(body: Any, guess: WireName) -> WireName:
    """Lists differ by protocol."""
    if isinstance(body, Mapping):
        if "has_more" in body and "first_id" in body:
            return "anthropic"
        rows = body.get("models")
        first = rows[0] if isinstance(rows, list) and rows else None
        if isinstance(first, Mapping) and "supportedGenerationMethods" in first:
            return "gemini"
    return guess


def _refusal(body: Any, wire: WireName) -> bool:
    if not isinstance(body, Mapping):
        return False
    if wire == "anthropic":
        return body.get("type") == "error"
    return "error" in body or "detail" in body or "message" in body
