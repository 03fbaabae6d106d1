"""The chats that the owner may reach: what the tool `send_message` may write to."""

from hermes.core.errors import ToolError
from hermes.core.redaction.redactor import Redactor
from hermes.gateway.content.reply import Content
from hermes.gateway.hub import Hub
from hermes.gateway.people.owner import Owner
from hermes.gateway.turn_reply import ReplyAddress


class ReachableChats:
    """Implements `tools._services.ChatAccess`: home chats, direct chats of administrators, and the
    groups of the settings."""

    def __init__(self, hub: Hub, owner: Owner) -> None:
        self._hub = hub
        self._owner = owner
        self._redact = Redactor(hub.runtime.setup.secrets.redactable_values()).redact

    async def list_targets(self) -> list[str]:
        home = ["home"] if self._owner.find_address() is not None else []
        return [*home, *sorted(await self._find_places())]

    async def _find_places(self) -> set[str]:
        """`PLATFORM:CHAT`, without threads."""
        places = {
            f"{name}:{chat}"
            for name, found in self._hub.platforms.items()
            for chat in (found.settings.home_chat, *found.settings.allowed_chats)
            if chat
        }
        homes = {f"{a.platform}:{a.chat}" for a in self._hub.homes.values()}
        admins = {f"{a.platform}:{a.chat}" for a in self._owner.list_admin_chats()}
        return places | {place for place in homes | admins if self._is_served(place)}

    def _is_served(self, place: str) -> bool:
        return place.partition(":")[0] in self._hub.platforms

    async def send(self, target: str, text: str) -> None:
        """Put a message into the outbox; ToolError when the chat is not among the targets."""
        address = await self._find_address(target)
        content = Content(self._redact(text), address.thread, in_group=address.in_group)
        await self._hub.outbox.post(address.platform, address.chat, content)

    async def _find_address(self, target: str) -> ReplyAddress:
        if target == "home":
            home = self._owner.find_address()
            if home is None:
                raise ToolError("There is no home chat. The owner sets one with /sethome.")
            return home
        address = self._hub.parse_address(target)
        if f"{address.platform}:{address.chat}" not in await self._find_places():
            raise ToolError(f"{target} is not a chat that the owner may reach. Nothing was sent.")
        return address
