"""One endpoint as a Provider: request out, answer in, every failure classified and redacted."""

import asyncio
from collections.abc import AsyncGenerator

from hermes.core.errors import ProviderError
from hermes.core.events import StreamEvent
from hermes.core.message import Target
from hermes.core.provider import Request, ResponseSink
from hermes.llm.auth.cooldown import Cooldowns
from hermes.llm.auth.key_pool import Credential
from hermes.llm.credential_use import CredentialUse, Sleep
from hermes.llm.endpoints.endpoint import ModelEndpoint
from hermes.llm.http.tape import note_failure
from hermes.llm.http.transport import Exchange, Transport
from hermes.llm.http.watchdog import Timeouts, Watchdog
from hermes.llm.request_encoder import EncodedRequest, RequestEncoder
from hermes.llm.response_reader import ResponseReader, raise_for_status
from hermes.llm.side_requests.media import MediaRequests
from hermes.llm.side_requests.model_list import ModelListing

_LARGE_PROMPT = 400_000
"""Bytes, about 100,000 tokens: a model may need so long to read them that it looks stalled."""


class Client:
    """Shared by all sessions that use its endpoint; it holds no state of a conversation."""

    def __init__(
        self,
        endpoint: ModelEndpoint,
        transport: Transport,
        cooldowns: Cooldowns | None = None,
        *,
        sleep: Sleep = asyncio.sleep,
        credentials: CredentialUse | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.credentials = credentials or CredentialUse(
            endpoint, transport, cooldowns or Cooldowns(), sleep
        )
        self.listing = ModelListing(endpoint, transport, self.credentials)
        self.media = MediaRequests(endpoint, transport, self.credentials)
        self._transport = transport
        self._encoder = RequestEncoder(endpoint)
        transport.find_proxy(endpoint.base_url)  # raises now for a proxy that cannot be used

    @property
    def target(self) -> Target:
        return self.endpoint.target

    async def stream(
        self, request: Request, sink: ResponseSink
    ) -> AsyncGenerator[list[StreamEvent], None]:
        """Fill `sink`; see core.provider."""
        encoded = self._encoder.encode_request(request)
        if encoded.notices:
            yield encoded.notices
        sink.request_size = len(encoded.body)
        sink.offered_tools = encoded.offered_tools
        if (wait := self._transport.before_call) is not None:
            await wait(len(encoded.body))
        key = await self.credentials.prepare_call()
        watchdog = Watchdog(self._call_timeouts(encoded), self.endpoint.host)
        exchange: Exchange | None = None
        try:
            exchange = await watchdog.wait(self._send_call(encoded, key, request.fresh))
            await raise_for_status(exchange, watchdog, self._encoder.wire.read_error)
            self._encoder.remember_prompt(request, encoded)
            wire = self._encoder.wire
            decoder = wire.Decoder(sink, encoded.quirks)
            reader = ResponseReader(exchange, watchdog, decoder, sink, wire.STREAM_TYPE)
            while True:
                try:
                    more = await reader.read_more()
                except ProviderError:
                    if events := sink.drain_events():
                        yield events
                    raise
                if events := sink.drain_events() if more else sink.finish_events():
                    yield events
                if not more:
                    return
        except ProviderError as error:
            failure = self.credentials.redact_failure(error.failure)
            note_failure(failure)
            raise ProviderError(failure) from None
        finally:
            watchdog.stop()
            if exchange is not None:
                exchange.close()

    async def _send_call(self, encoded: EncodedRequest, key: Credential, fresh: bool) -> Exchange:
        url, body = encoded.url, encoded.body
        headers = await self.credentials.sign_headers(key, url, body)
        return await self._transport.send("POST", url, headers=headers, body=body, fresh=fresh)

    def _call_timeouts(self, encoded: EncodedRequest) -> Timeouts:
        limits = self.endpoint.timeouts
        factor = 2.0 if len(encoded.body) > _LARGE_PROMPT else 1.0
        ttfb = limits.ttfb if encoded.streams else 0.0
        return Timeouts(ttfb, limits.stale * factor, limits.total)
