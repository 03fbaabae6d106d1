"""Short notices between nodes: sent after the commit they tell of, on a connection of their own."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hermes.core.errors import StoreError
from hermes.store.postgres.connection import add_limits
from hermes.store.postgres.errors import translate_error

if TYPE_CHECKING:
    from psycopg import AsyncConnection

log = logging.getLogger(__name__)
GATHER_SECONDS = 0.01
"""How long notices for one node are gathered into one."""
_MAX_BYTES = 7000
_RETRY_SECONDS = 0.5
_OPTIONS = "-c synchronous_commit=off -c application_name=hermes-notices"
Receive = Callable[[str], None]


class NodeNotices:
    """Notices may be lost; who waits for one looks by himself from time to time. One connection
    sends and receives."""

    def __init__(self, url: str, node: str) -> None:
        self.node = node
        self.failure: StoreError | None = None
        """Why the database cannot be reached; it is known as soon as the connection breaks."""
        self._url = url
        self._waiting: dict[str, dict[str, None]] = {}
        self._wanted = asyncio.Event()
        self._subscribers: dict[str, list[Receive]] = {}
        self._channels: dict[str, list[Receive]] = {_channel(node): [self._read_payload]}
        self._heard: set[str] = set()
        """Channels that the connection listens to."""

    def send(self, node: str, topic: str, subject: str) -> None:
        """Tell a node about a subject, without waiting."""
        if node == self.node:
            self._tell(f"{topic} {subject}")
        elif node:
            self._waiting.setdefault(node, {})[f"{topic} {subject}"] = None
            self._wanted.set()

    def subscribe(self, topic: str, receive: Receive) -> None:
        """Have `receive` called with the subjects of this topic."""
        self._subscribers.setdefault(topic, []).append(receive)

    def listen(self, channels: Iterable[str], receive: Receive) -> None:
        """Have `receive` called with whatever anybody sends to these channels."""
        for channel in channels:
            self._channels.setdefault(channel, []).append(receive)
        self._wanted.set()

    def forget(self, receive: Receive) -> None:
        for receivers in self._channels.values():
            with suppress(ValueError):
                receivers.remove(receive)

    async def exchange_notices(self) -> None:
        """Send and receive until cancelled."""
        import psycopg

        while True:
            began = time.monotonic()
            try:
                connection = await psycopg.AsyncConnection.connect(
                    add_limits(self._url), autocommit=True, options=_OPTIONS
                )
                self.failure = None
                async with connection:
                    await self._serve(connection)
            except psycopg.Error as error:
                failure = translate_error(error)
                self.failure = failure if failure.code == "away" else None
            if time.monotonic() - began < _RETRY_SECONDS:
                await asyncio.sleep(_RETRY_SECONDS)

    async def _serve(self, db: AsyncConnection[Any]) -> None:
        """While nothing is sent the socket is read as soon as something arrives there."""
        db.add_notify_handler(lambda notice: self._receive(notice.channel, notice.payload))
        loop, socket = asyncio.get_running_loop(), db.fileno()
        self._heard.clear()
        self._wanted.set()
        try:
            while True:
                await self._wanted.wait()
                await asyncio.sleep(GATHER_SECONDS)
                self._wanted.clear()
                await self._hear_channels(db)
                await self._send_waiting(db)
                if db.closed:
                    return
                loop.add_reader(socket, self._read_socket, db, socket)
        finally:
            if not db.closed:  # otherwise the number may be that of another connection by now
                loop.remove_reader(socket)

    async def _hear_channels(self, db: AsyncConnection[Any]) -> None:
        from psycopg import sql

        for channel in [name for name in self._channels if name not in self._heard]:
            await db.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
            self._heard.add(channel)

    async def _send_waiting(self, db: AsyncConnection[Any]) -> None:
        waiting, self._waiting = self._waiting, {}
        for node, notices in waiting.items():
            for payload in _join_notices(list(notices)):
                values = (_channel(node), payload)
                await db.execute("SELECT pg_notify(%s, %s)", values)

    def _read_socket(self, db: AsyncConnection[Any], socket: int) -> None:
        import psycopg

        try:
            db.pgconn.consume_input()
            while notice := db.pgconn.notifies():
                self._receive(notice.relname.decode(), notice.extra.decode(errors="replace"))
        except psycopg.Error:  # the connection is broken: another one is opened
            asyncio.get_running_loop().remove_reader(socket)
            self._wanted.set()

    def _receive(self, channel: str, payload: str) -> None:
        for receive in tuple(self._channels.get(channel, ())):
            receive(payload)

    def _read_payload(self, payload: str) -> None:
        for line in payload.splitlines():
            self._tell(line)

    def _tell(self, line: str) -> None:
        topic, _, subject = line.partition(" ")
        for receive in self._subscribers.get(topic, ()):
            receive(subject)


def _channel(node: str) -> str:
    return f"node_{node}"[:63]


def _join_notices(notices: list[str]) -> list[str]:
    """Lines in as few payloads as PostgreSQL takes."""
    payloads: list[str] = []
    for line in notices:
        if payloads and len(payloads[-1]) + len(line) < _MAX_BYTES:
            payloads[-1] += f"\n{line}"
        else:
            payloads.append(line)
    return payloads
