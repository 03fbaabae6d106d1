"""Short notices between nodes: sent after the commit they tell of, on a connection of their own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from psycopg import AsyncConnection

log = logging.getLogger(__name__)
GATHER_SECONDS = 0.01
"""How long notices for one node are gathered into one."""
_MAX_BYTES = 7000
_RETRY_SECONDS = 0.5
_OPTIONS = "-c synchronous_commit=off -c application_name=hermes-notices"


class NodeNotices:
    """Notices may be lost; who waits for one looks by himself from time to time."""

    def __init__(self, url: str, node: str) -> None:
        self.node = node
        self._url = url
        self._waiting: dict[str, dict[str, None]] = {}
        self._wanted = asyncio.Event()
        self._subscribers: dict[str, list[Callable[[str], None]]] = {}

    def send(self, node: str, topic: str, subject: str) -> None:
        """Tell a node about a subject, without waiting."""
        if node == self.node:
            self._tell(f"{topic} {subject}")
        elif node:
            self._waiting.setdefault(node, {})[f"{topic} {subject}"] = None
            self._wanted.set()

    def subscribe(self, topic: str, receive: Callable[[str], None]) -> None:
        """Have `receive` called with the subjects of this topic."""
        self._subscribers.setdefault(topic, []).append(receive)

    async def exchange_notices(self) -> None:
        """Send and receive until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep(self._send_waiting))
            group.create_task(self._keep(self._receive))

    async def _keep(self, work: Callable[[AsyncConnection[Any]], Any]) -> None:
        import psycopg

        while True:
            with suppress(psycopg.Error):
                connection = await psycopg.AsyncConnection.connect(
                    self._url, autocommit=True, connect_timeout=5, options=_OPTIONS
                )
                async with connection:
                    await work(connection)
            await asyncio.sleep(_RETRY_SECONDS)

    async def _send_waiting(self, db: AsyncConnection[Any]) -> None:
        while True:
            await self._wanted.wait()
            await asyncio.sleep(GATHER_SECONDS)
            self._wanted.clear()
            waiting, self._waiting = self._waiting, {}
            for node, notices in waiting.items():
                for payload in _join_notices(list(notices)):
                    values = (_channel(node), payload)
                    await db.execute("SELECT pg_notify(%s, %s)", values)

    async def _receive(self, db: AsyncConnection[Any]) -> None:
        from psycopg import sql

        await db.execute(sql.SQL("LISTEN {}").format(sql.Identifier(_channel(self.node))))
        async for notice in db.notifies():
            for line in notice.payload.splitlines():
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
