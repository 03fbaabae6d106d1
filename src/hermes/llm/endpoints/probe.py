"""Finds out what answers at an address: which wire, which models, and whether /v1 is missing."""

import asyncio
import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from hermes.core.errors import ProviderError
from hermes.core.wire_names import DEFAULT_WIRE
from hermes.llm.auth.key_pool import Credential, clean_key
from hermes.llm.endpoints.endpoint import CUSTOM
from hermes.llm.endpoints.match import choose_wire
from hermes.llm.endpoints.model_info import list_url, model_names
from hermes.llm.http.transport import Transport
from hermes.llm.providers import find_provider, provider_index
from hermes.llm.wire import load_wire, wire_facts, wire_names
from hermes.llm.wire.convert import as_dict
from hermes.version import VERSION

SECONDS = 10.0
_VERSION = re.compile(r"/v\d\w*(?:/|$)")
_DENIED = (401, 403)


class Probe(Struct, frozen=True):
    """An empty `wire` means that nothing there speaks a known protocol."""

    base_url: str
    wire: str = ""
    models: tuple[str, ...] = ()
    needs_key: bool = False
    problem: str = ""
    """Why nothing was found, in a few words."""


class _Response(Struct, frozen=True):
    status: int = 0
    body: Any = None
    problem: str = ""


class Prober:
    """Sends the key to no address but the one it was given for."""

    def __init__(self, transport: Transport, key: Credential) -> None:
        self._transport = transport
        self._key = key

    async def probe_address(self, base_url: str, api_mode: str = "") -> Probe:
        """Probe the address, with /v1 added if it is missing and answers there."""
        path = wire_facts(choose_wire(base_url, api_mode, CUSTOM)).list_path
        if not _VERSION.search(base_url.partition("://")[2]) and not path.startswith("/v1"):
            versioned = await self._probe_exactly(f"{base_url}/v1", api_mode)
            if versioned.wire:
                return versioned
        return await self._probe_exactly(base_url, api_mode)

    async def _probe_exactly(self, base_url: str, api_mode: str) -> Probe:
        configured = choose_wire(base_url, api_mode, CUSTOM) if api_mode else ""
        guess = choose_wire(base_url, "", CUSTOM)
        listed = await self._send_request("GET", list_url(base_url, guess) or f"{base_url}/models")
        models = model_names(listed.body)
        if listed.status == 200 and models:
            return Probe(base_url, configured or _wire_of_list(listed.body) or guess, models)
        if listed.status == 0:
            return Probe(base_url, problem=listed.problem)
        denied = listed.status in _DENIED and isinstance(listed.body, Mapping)
        if denied and guess != DEFAULT_WIRE:
            return Probe(base_url, configured or guess, needs_key=True)
        return await self._provoke_refusal(base_url, configured, listed, denied=denied)

    async def _provoke_refusal(
        self, base_url: str, configured: str, listed: _Response, *, denied: bool
    ) -> Probe:
        """Send empty requests: the form of the refusal tells which wire is spoken."""
        for wire in (name for name in wire_names() if wire_facts(name).probe):
            url = load_wire(wire).build_url(base_url, "", stream=False)
            response = await self._send_request("POST", url, b"{}")
            if response.status in (400, 401, 403, 422, 429) and _is_refusal(response.body, wire):
                return Probe(base_url, configured or wire, needs_key=response.status in _DENIED)
        problem = f"it answered with status {listed.status} and speaks no known protocol"
        return Probe(base_url, DEFAULT_WIRE if denied else "", needs_key=denied, problem=problem)

    async def _send_request(self, method: str, url: str, body: bytes = b"") -> _Response:
        headers = {"Accept": "application/json", "User-Agent": f"hermes/{VERSION}"}
        for name in provider_index().wire_references.values():
            headers |= row.headers if (row := find_provider(name)) else {}
        if body:
            headers["Content-Type"] = "application/json"
        if self._key.value:
            key = clean_key(self._key)
            headers |= {"Authorization": f"Bearer {key}", "x-api-key": key}
        try:
            async with asyncio.timeout(SECONDS):
                exchange = await self._transport.send(method, url, headers=headers, body=body)
                try:
                    raw = await exchange.read_all(4 << 20)
                finally:
                    exchange.close()
        except TimeoutError:
            return _Response(problem=f"no answer within {SECONDS:.0f} s")
        except ProviderError as error:
            return _Response(problem=str(error))
        try:
            return _Response(exchange.status, msgspec.json.decode(raw))
        except ValueError:
            return _Response(exchange.status)


def _wire_of_list(body: Any) -> str:
    """The only wire that lists models in this form; empty: several do."""
    rows = as_dict(body).get("models")
    first = rows[0] if isinstance(rows, list) and rows else None
    keys = {*as_dict(body), *as_dict(first)}
    marks = {wire: wire_facts(wire).list_marks for wire in wire_names()}
    return next((wire for wire, listed in marks.items() if listed and keys >= {*listed}), "")


def _is_refusal(body: Any, wire: str) -> bool:
    if wire_facts(wire).typed_errors:
        return as_dict(body).get("type") == "error"
    return not {"error", "detail", "message"}.isdisjoint(as_dict(body))
