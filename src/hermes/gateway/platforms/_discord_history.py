"""Messages that Discord did not bring while the gateway was away, read from the chats it knows."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeAlias

import discord

from hermes.gateway.adapter import Receiver

OVERLAP_SECONDS = 300.0
"""Read again after a restart: clocks differ, and what was stored already counts once."""
_MOST_MISSED = 2000
_MOST_PEOPLE = 20
_Channel: TypeAlias = Any
"""The library has a dozen classes of channels."""


class MissedMessages:
    """The cursor is the time up to which everything was received, and the time of the first start:
    what was written before that is not for the gateway."""

    def __init__(
        self,
        client: discord.Client,
        receiver: Receiver,
        chats: tuple[str, ...],
        people: tuple[str, ...],
    ) -> None:
        self._client = client
        self._receiver = receiver
        self._chats = chats
        self._people = people
        self._last = 0.0
        self._first = 0.0

    async def load_cursor(self) -> None:
        """The first start leaves a mark before anything can be missed."""
        stored = await self._receiver.load_cursor()
        last, _, first = stored.partition(" ")
        self._first = float(first or time.time())
        self._last = float(last or 0)
        if not stored:
            await self.save_cursor(self._first)

    async def save_cursor(self, moment: float) -> None:
        await self._receiver.save_cursor(f"{moment} {self._first}")

    async def read_messages(self, store: Callable[[discord.Message], Awaitable[None]]) -> None:
        """Hand over what came since the cursor, the oldest of each chat first."""
        begin = time.time()
        if self._last:
            since = max(self._last - OVERLAP_SECONDS, self._first)
            known = await self._receiver.list_chats()
            for chat in dict.fromkeys((*known, *self._chats, *await self._list_direct())):
                for channel in await self._find_channels(chat):
                    for message in await _read_channel(channel, _make_snowflake(since)):
                        await store(message)
        await self.save_cursor(begin)

    async def _list_direct(self) -> list[str]:
        """The direct chats of the people who may talk, also of those who never did."""
        found: list[str] = []
        for person in [person for person in self._people if person.isdecimal()][:_MOST_PEOPLE]:
            with suppress(discord.NotFound, discord.Forbidden):
                channel = await self._client.http.start_private_message(int(person))
                found.append(str(channel["id"]))
        return found

    async def _find_channels(self, chat: str) -> list[_Channel]:
        """The chat and its active threads."""
        client = self._client
        try:
            channel = client.get_channel(int(chat)) or await client.fetch_channel(int(chat))
        except (ValueError, discord.NotFound, discord.Forbidden):
            return []
        return [channel, *getattr(channel, "threads", ())]


async def _read_channel(channel: _Channel, after: int) -> list[discord.Message]:
    missed: list[discord.Message] = []
    try:
        async for message in channel.history(limit=_MOST_MISSED):
            if message.id <= after:
                break
            missed.append(message)
    except (discord.NotFound, discord.Forbidden, AttributeError):
        return []  # deleted, closed to us, or without messages
    return missed[::-1]


def _make_snowflake(seconds: float) -> int:
    """The smallest id of that moment."""
    return max(0, int(seconds * 1000) - discord.utils.DISCORD_EPOCH) << 22
