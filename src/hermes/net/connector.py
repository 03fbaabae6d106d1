"""aiohttp's way to a server, replaced: it connects where the route says and nowhere else."""

from __future__ import annotations

import ssl
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler

from hermes.net.errors import EgressError
from hermes.net.ssrf import CheckedRoute, connect_route


class PinnedConnector(aiohttp.BaseConnector):
    """Knows one checked route; names are never looked up again. TLS is still for the name."""

    def __init__(self, route: CheckedRoute, tls: ssl.SSLContext | None) -> None:
        super().__init__(force_close=True, limit=0)
        self._route = route
        self._tls = tls

    async def _create_connection(self, req: Any, traces: Any, timeout: Any) -> ResponseHandler:
        location = self._route.location
        if (req.url.scheme, req.url.raw_host, req.url.port) != location.origin:
            raise EgressError("The request does not go where it was allowed to go.")
        sock = await connect_route(self._route)
        secure = location.scheme == "https"
        try:
            _, protocol = await self._loop.create_connection(
                self._factory,
                sock=sock,
                ssl=(self._tls or ssl.create_default_context()) if secure else None,
                server_hostname=location.host if secure else None,
            )
        except ssl.SSLError as error:
            sock.close()
            why = getattr(error, "verify_message", "") or "the TLS handshake failed"
            raise EgressError(f"{location.host} cannot be trusted: {why}.") from None
        except BaseException:
            sock.close()
            raise
        return protocol
