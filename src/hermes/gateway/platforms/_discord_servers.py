"""What administrators may see of the servers that the bot is in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from hermes.core.errors import ToolError
from hermes.gateway.adapter import SendFailure

if TYPE_CHECKING:
    from hermes.gateway.platforms._discord_client import DiscordClient

T = TypeVar("T")
_MOST_CHANNELS = 200
_MOST_MEMBERS = 50


class DiscordServers:
    """Implements `tools._services.ServerAccess`."""

    def __init__(
        self, try_call: Callable[[Callable[[DiscordClient], Awaitable[Any]]], Awaitable[Any]]
    ) -> None:
        self._try_call = try_call

    async def list_channels(self) -> list[dict[str, Any]]:
        async def list_rows(client: DiscordClient) -> list[dict[str, Any]]:
            rows: list[dict[str, Any]] = []
            for server in client.guilds:
                channels: tuple[Any, ...] = (*server.text_channels, *server.threads)
                rows += [
                    {"server": server.name, "id": str(channel.id), "name": channel.name}
                    for channel in channels
                ]
            return rows[:_MOST_CHANNELS]

        return await self._look_up(list_rows)

    async def find_members(self, name: str) -> list[dict[str, Any]]:
        async def find_rows(client: DiscordClient) -> list[dict[str, Any]]:
            return [
                {"server": server.name, **_describe_member(member)}
                for server in client.guilds
                for member in await client.search_members(server.id, name, _MOST_MEMBERS)
            ]

        return await self._look_up(find_rows)

    async def read_messages(self, channel: str, count: int) -> list[dict[str, Any]]:
        if not channel.isdecimal():
            raise ToolError("The id of a channel is a number; list_channels shows it.")

        async def read_rows(client: DiscordClient) -> list[dict[str, Any]]:
            place = client.get_partial_messageable(int(channel))
            found = [
                {
                    "at": message.created_at.isoformat(timespec="seconds"),
                    "author": message.author.display_name,
                    "text": message.content,
                }
                async for message in place.history(limit=count)
            ]
            return found[::-1]

        return await self._look_up(read_rows)

    async def _look_up(self, call: Callable[[DiscordClient], Awaitable[T]]) -> T:
        try:
            found: T = await self._try_call(call)
        except SendFailure as failure:
            raise ToolError(f"{failure}.") from None
        return found


def _describe_member(member: dict[str, Any]) -> dict[str, Any]:
    user = member["user"]
    shown = member.get("nick") or user.get("global_name") or user["username"]
    return {"id": str(user["id"]), "name": shown, "user": user["username"]}
