"""Chats whose id has changed: their sessions, replies, jobs and permissions follow them."""

from msgspec import structs

from hermes.core.store import Objects
from hermes.gateway.conversations import Conversations
from hermes.gateway.hub import Hub
from hermes.gateway.schedule import GatewaySchedule

_MOVES = "gateway_moved"


class ChatMoves:
    """Remembers every move, because the settings still name the old id."""

    def __init__(
        self,
        hub: Hub,
        objects: Objects,
        conversations: Conversations,
        schedule: GatewaySchedule,
    ) -> None:
        self._hub = hub
        self._objects = objects
        self._conversations = conversations
        self._schedule = schedule

    async def follow_chat(self, platform: str, old: str, new: str) -> None:
        keys = {}
        for prefix in await self._hub.mailbox.list_keys("agent:"):
            parts = prefix.split(":")
            if parts[2] == platform and parts[4] == old:
                keys[prefix] = ":".join((*parts[:4], new, *parts[5:]))
        await self._hub.mailbox.move_chat(platform, old, new, keys)
        await self._objects.put(_MOVES, f"{platform} {new}", old.encode())
        self._hub.outbox.lanes.rename_chat(platform, old, new)
        self._conversations.rename_keys(keys)
        await self._schedule.follow_keys(keys)
        self._permit_moved(platform, old, new)

    async def restore_moves(self) -> None:
        for stored in await self._objects.list_all(_MOVES):
            platform, _, new = stored.id.partition(" ")
            self._permit_moved(platform, stored.body.decode(), new)

    def _permit_moved(self, platform: str, old: str, new: str) -> None:
        found = self._hub.platforms.get(platform)
        if found is None or old not in found.settings.allowed_chats:
            return
        chats = (*found.settings.allowed_chats, new)
        settings = structs.replace(found.settings, allowed_chats=chats)
        self._hub.platforms[platform] = structs.replace(found, settings=settings)
