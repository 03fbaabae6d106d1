"""Asks an endpoint about its models, in small requests beside the model calls."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from msgspec import Struct

from hermes.core.errors import ProviderError
from hermes.llm.credential_use import CredentialUse
from hermes.llm.endpoints.endpoint import ModelEndpoint
from hermes.llm.endpoints.model_facts import ModelFacts
from hermes.llm.endpoints.model_info import list_url, model_names, query_model
from hermes.llm.http.transport import Exchange, Transport
from hermes.llm.http.watchdog import Timeouts, Watchdog
from hermes.llm.provider_spec import InfoSource
from hermes.llm.providers import find_provider

_SECONDS = 5.0
_LARGEST_LIST = 4 * 2**20


class ListResponse(Struct, frozen=True):
    """The response to a request for the list of models."""

    status: int = 0
    date: str = ""
    """The time by the provider's clock."""
    problem: str = ""
    """Why there was no response."""


class ModelListing:
    def __init__(
        self, endpoint: ModelEndpoint, transport: Transport, credentials: CredentialUse
    ) -> None:
        self._endpoint = endpoint
        self._transport = transport
        self._credentials = credentials

    async def list_models(self) -> tuple[str, ...]:
        """The names of the endpoint's models; empty: it has no list."""
        url = list_url(self._endpoint.base_url, self._endpoint.target.wire)
        return model_names(await self._fetch_json("GET", url)) if url else ()

    async def check_access(self) -> ListResponse:
        """Request the list of models, which costs nothing and needs the key."""
        base_url = self._endpoint.base_url
        url = list_url(base_url, self._endpoint.target.wire) or base_url
        try:
            async with self._send_query("GET", url) as (exchange, _):
                return ListResponse(exchange.status, exchange.headers.get("Date", ""))
        except ProviderError as error:
            return ListResponse(problem=self._credentials.redact_failure(error.failure).message)

    async def query_facts(self) -> ModelFacts:
        """What the endpoint says about its model."""
        target = self._endpoint.target
        spec = find_provider(target.provider)
        ways: tuple[InfoSource, ...] = spec.about if spec else ("list", "props", "show")
        return await query_model(self._fetch_json, target, self._endpoint.base_url, ways)

    async def query_size(self) -> float | None:
        """Billions of parameters of its model, as the endpoint's list says."""
        target = self._endpoint.target
        url = self._endpoint.base_url
        return (await query_model(self._fetch_json, target, url, ("list",))).parameters

    async def _fetch_json(self, method: str, url: str, body: bytes = b"") -> Any:
        """The JSON at an address of this endpoint; None: there is none."""
        try:
            async with self._send_query(method, url, body) as (exchange, watchdog):
                if exchange.status != 200:
                    return None
                return msgspec.json.decode(await watchdog.wait(exchange.read_all(_LARGEST_LIST)))
        except (ProviderError, ValueError):
            return None

    @asynccontextmanager
    async def _send_query(
        self, method: str, url: str, body: bytes = b""
    ) -> AsyncIterator[tuple[Exchange, Watchdog]]:
        watchdog = Watchdog(Timeouts(0, 0, _SECONDS), self._endpoint.host)
        exchange: Exchange | None = None
        try:
            headers = self._credentials.build_headers(await self._credentials.prepare_query())
            sending = self._transport.send(method, url, headers=headers, body=body)
            exchange = await watchdog.wait(sending)
            yield exchange, watchdog
        finally:
            watchdog.stop()
            if exchange is not None:
                exchange.close()
