"""A connector for aiohttp that connects to the checked route and nowhere else."""

import ssl
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler

from hermes.net.errors import EgressError
from hermes.net.ssrf import CheckedRoute, connect_route


class PinnedConnector(aiohttp.BaseConnector):
    """Bound to one checked route; names are never resolved again. TLS still verifies the name."""

    def __init__(self, route: CheckedRoute, tls: ssl.SSLContext | None) -> None:
        super().__init__(force_close=True, limit=0)
        self._route = route
        self._tls = tls

    async def _create_connection(self, req: Any, traces: Any, timeout: Any) -> ResponseHandler:
        url = self._route.url
        if (req.url.scheme, req.url.raw_host, req.url.port) != url.origin:
            raise EgressError("The request goes to another host than the one that was checked.")
        sock = await connect_route(self._route)
        is_secure = url.scheme == "https"
        try:
            _, protocol = await self._loop.create_connection(
                self._factory,
                sock=sock,
                ssl=(self._tls or ssl.create_default_context()) if is_secure else None,
                server_hostname=url.host if is_secure else None,
            )
        except ssl.SSLError as error:
            sock.close()
            reason = getattr(error, "verify_message", "") or "the TLS handshake failed"
            raise EgressError(f"{url.host} cannot be trusted: {reason}.") from None
        except BaseException:
            sock.close()
            raise
        return protocol
