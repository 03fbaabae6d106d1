"""Connections of clients: bounded in number, and in the time to say what they want."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from hermes.server.http import web
from hermes.server.http.early_listener import HEADERS, Answered, answer, asked
from hermes.server.http.errors import ApiError

HEADER_SECONDS = 10.0
IDLE_SECONDS = 75.0
Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Acceptor(web.Server):
    """Counts connections, in all and by address; one too many is closed at once."""

    def __init__(self, handler: Handler, *, most: int, most_each: int) -> None:
        super().__init__(
            handler,
            handler_cancellation=True,
            keepalive_timeout=IDLE_SECONDS,
            access_log=None,
            auto_decompress=False,
            max_line_size=16 * 1024,
            max_field_size=16 * 1024,
        )
        self._most = most
        self._most_each = most_each
        self.names: frozenset[str] = frozenset()
        """What the server goes by."""
        self.noted: Callable[[Answered], None] = lambda _: None
        """Told of what a connection has answered by itself."""
        self._open: Counter[str] = Counter()
        self.total = 0

    def __call__(self) -> Connection:
        return Connection(self, loop=self._loop, **self._kwargs)

    def enter(self, address: str) -> bool:
        """When it is full, one that waits for nothing makes room."""
        if self._open[address] >= self._most_each:
            self._make_room(address)
        elif self.total >= self._most:
            self._make_room(None)
        if self.total >= self._most or self._open[address] >= self._most_each:
            return False
        self.total += 1
        self._open[address] += 1
        return True

    def dismiss_idle(self) -> None:
        """The server stops: who asks for nothing is not waited for."""
        while self._make_room(None):
            pass

    def _make_room(self, address: str | None) -> bool:
        for connection in self.connections:
            if isinstance(connection, Connection) and connection.idle_from(address):
                connection.dismiss()
                return True
        return False

    def leave(self, address: str) -> None:
        self.total -= 1
        self._open[address] -= 1
        if not self._open[address]:
            del self._open[address]


class Connection(web.RequestHandler):
    """One that only ever asks whether the server lives is answered as soon as it is heard: the
    usual way takes three rounds of the loop, and beside a thousand streams a round is long."""

    __slots__ = ("_acceptor", "_address", "_asks_more", "_patience", "_was_answered")

    def __init__(self, acceptor: Acceptor, **rest: Any) -> None:
        super().__init__(acceptor, **rest)
        self._acceptor = acceptor
        self._address: str | None = None
        self._asks_more = self._was_answered = False
        self._patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        address = str(peer[0]) if isinstance(peer, tuple) and peer else "local"
        if not self._acceptor.enter(address):
            self.force_close()
            return
        self._address = address
        self._patience = self._loop.call_later(HEADER_SECONDS, self._lose_patience)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._leave()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self._asks_more:
            if self._answered(data):
                return
            self._asks_more = True
            if self._was_answered:
                self._wait(HEADER_SECONDS)
        super().data_received(data)
        if self._messages or self._request_in_progress:
            if self._patience is not None:
                self._patience.cancel()
                self._patience = None
        elif self._patience is None and not self._force_close:  # a request has begun to come
            self._patience = self._loop.call_later(HEADER_SECONDS, self._lose_patience)

    def _answered(self, data: bytes) -> bool:
        transport, began = self.transport, time.monotonic()
        if transport is None or transport.is_closing() or transport.get_write_buffer_size():
            return False
        path = asked(data, self._acceptor.names)
        if not path:
            return False
        transport.write(answer())
        self._was_answered = True
        self._wait(IDLE_SECONDS)
        self._acceptor.noted(Answered(path, time.monotonic() - began, self._address or ""))
        return True

    def idle_from(self, address: str | None) -> bool:
        """Whether it has asked for nothing; None: from wherever."""
        asked = bool(self._messages) or self._request_in_progress
        return not asked and self._address is not None and address in (None, self._address)

    def dismiss(self) -> None:
        self._leave()
        self.force_close()

    def _leave(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        if self._address is not None:
            self._acceptor.leave(self._address)
            self._address = None

    def _wait(self, seconds: float) -> None:
        if self._patience is not None:
            self._patience.cancel()
        self._patience = self._loop.call_later(seconds, self._lose_patience)

    def _lose_patience(self) -> None:
        self._patience = None
        self.force_close()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """A request that could not be understood gets the same envelope as any other error."""
        said = "The request could not be understood." if status < 500 else "Internal error."
        error = ApiError(status, said, code="bad_request" if status < 500 else None)
        if status >= 500 and not isinstance(exc, ConnectionError):  # that is a client who left
            self.log_exception("request crashed", exc_info=exc)
        response = web.Response(
            body=error.body(), status=status, headers=HEADERS, content_type="application/json"
        )
        response.force_close()
        return response
