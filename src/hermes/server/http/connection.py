"""Client connections, limited in number and in the time a request may take to arrive."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from hermes.config.api_server import ApiServer
from hermes.server.http import web
from hermes.server.http.errors import ApiError
from hermes.server.http.headers import COMMON_HEADERS, create_request_id
from hermes.server.http.listener import HealthCheck, match_health_check, render_health_response

HEADER_SECONDS = 10.0
SPARE_CONNECTIONS = 8
"""Connections beyond the limit that may ask for the health of the server, and nothing else."""
IDLE_SECONDS = 75.0


class Acceptor(web.ConnectionFactory):
    """Creates connections and limits their number, in total and per address."""

    def __init__(
        self,
        respond: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        on_health_check: Callable[[HealthCheck], None],
        host_names: frozenset[str],
        settings: ApiServer,
    ) -> None:
        super().__init__(
            respond,
            handler_cancellation=True,
            keepalive_timeout=IDLE_SECONDS,
            access_log=None,
            auto_decompress=False,
            max_line_size=16 * 1024,
            max_field_size=16 * 1024,
        )
        self.on_health_check = on_health_check
        """Called after a connection has answered a health check itself."""
        self.host_names = host_names
        self._limit = settings.max_connections
        self._limit_per_address = settings.max_connections_per_address
        self._by_address: Counter[str] = Counter()
        self.total = self.spare = 0

    def __call__(self) -> "Connection":
        return self.make_connection(Connection)

    def admit_connection(self, address: str) -> bool:
        """Count a new connection and return True, or return False when there are too many. An idle
        connection is closed to make room."""
        if self._by_address[address] >= self._limit_per_address:
            self._close_idle(address)
        elif self.total >= self._limit:
            self._close_idle(None)
        if self.total >= self._limit or self._by_address[address] >= self._limit_per_address:
            return False
        self.total += 1
        self._by_address[address] += 1
        return True

    def release_connection(self, address: str) -> None:
        self.total -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]

    def close_all_idle(self) -> None:
        while self._close_idle(None):
            pass

    def _close_idle(self, address: str | None) -> bool:
        for connection in self.connections:
            if isinstance(connection, Connection) and connection.is_idle_from(address):
                connection.close_idle()
                return True
        return False


class Connection(web.HttpConnection):
    """One client connection. Until its first other request it answers health checks as their bytes
    arrive: the usual way takes three rounds of the event loop, long ones with many streams."""

    __slots__ = (
        "_acceptor",
        "_address",
        "_deadline",
        "_health_checks_only",
        "_is_spare",
        "_was_answered",
    )

    def __init__(self, acceptor: Acceptor, **options: Any) -> None:
        super().__init__(acceptor, **options)
        self._acceptor = acceptor
        self._address: str | None = None
        self._health_checks_only = True
        self._was_answered = self._is_spare = False
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        address = str(peer[0]) if isinstance(peer, tuple) and peer else "local"
        if self._acceptor.admit_connection(address):
            self._address = address
        elif self._acceptor.spare < SPARE_CONNECTIONS:
            self._acceptor.spare += 1
            self._is_spare = True
        else:
            self.force_close()
            return
        self._set_deadline(HEADER_SECONDS)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._release_address()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._health_checks_only:
            is_answered = self._answer_health_check(data)
            if self._is_spare:
                self.close_idle()
                return
            if is_answered:
                return
            self._health_checks_only = False
            if self._was_answered:
                self._set_deadline(HEADER_SECONDS)
        super().data_received(data)
        if self.has_request:
            self._clear_deadline()
        elif self._deadline is None and not self.is_closing:  # a request has started to arrive
            self._set_deadline(HEADER_SECONDS)

    def _answer_health_check(self, data: bytes) -> bool:
        transport, began = self.transport, time.monotonic()
        if transport is None or transport.is_closing() or transport.get_write_buffer_size():
            return False
        path = match_health_check(data, self._acceptor.host_names, is_last=self._is_spare)
        if not path:
            return False
        transport.write(render_health_response())
        self._was_answered = True
        self._set_deadline(IDLE_SECONDS)
        check = HealthCheck(path, time.monotonic() - began, self._address or "")
        self._acceptor.on_health_check(check)
        return True

    def is_idle_from(self, address: str | None) -> bool:
        """Whether no request is being answered, on a connection from this address or any."""
        matches = self._address is not None and address in (None, self._address)
        return matches and not self.has_request

    def close_idle(self) -> None:
        self._release_address()
        self.force_close()

    def _release_address(self) -> None:
        self._clear_deadline()
        if self._address is not None:
            self._acceptor.release_connection(self._address)
            self._address = None
        if self._is_spare:
            self._is_spare = False
            self._acceptor.spare -= 1

    def _set_deadline(self, seconds: float) -> None:
        self._clear_deadline()
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(seconds, self._close_overdue)

    def _clear_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _close_overdue(self) -> None:
        self._deadline = None
        self.force_close()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The error response to a request that could not be parsed, or whose handler crashed."""
        text = "The request could not be parsed." if status < 500 else "Internal error."
        error = ApiError(status, text, code="bad_request" if status < 500 else None)
        if status >= 500 and not isinstance(exc, ConnectionError):  # a client that left
            self.log_exception("request crashed", exc_info=exc)
        headers = {**COMMON_HEADERS, "X-Request-Id": create_request_id()}
        response = web.json_reply(error.encode_envelope(), status, headers)
        response.force_close()
        return response
