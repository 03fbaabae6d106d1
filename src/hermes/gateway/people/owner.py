"""Notices for the owner: each once, to the chat where they read them."""

from hermes.core.store import Objects
from hermes.gateway.hub import Hub
from hermes.gateway.turn_reply import ReplyAddress

_NOTICES = "gateway_notice"
_WAITING = "gateway_waiting_notice"
_HOME = "gateway_home"
_ADMIN_CHATS = "gateway_admin"


class Owner:
    """The home chat of a platform, else the first administrator's direct chat once it is known."""

    def __init__(self, hub: Hub, objects: Objects) -> None:
        self._hub = hub
        self._objects = objects
        self._admin_chats: dict[tuple[str, str], str] = {}
        self._avoiding: dict[str, tuple[str, str]] = {}
        """What waits for a chat on another platform: the text and the platform, by code."""

    async def set_home_chat(self, address: ReplyAddress) -> None:
        self._hub.homes[address.platform] = ReplyAddress(
            address.platform, address.chat, address.thread
        )
        await self._objects.put(_HOME, address.platform, _encode_chat(address))
        await self._tell_waiting()

    async def restore_chats(self) -> None:
        """Load what is known from earlier processes."""
        for stored in await self._objects.list_all(_HOME):
            chat, _, thread = stored.body.decode().partition("\n")
            self._hub.homes[stored.id] = ReplyAddress(stored.id, chat, thread)
        for stored in await self._objects.list_all(_ADMIN_CHATS):
            platform, _, user = stored.id.partition(" ")
            self._admin_chats[platform, user] = stored.body.decode()
        await self._tell_waiting()

    async def save_chats(self) -> None:
        """Store everything again, after the database was replaced."""
        for address in self._hub.homes.values():
            await self._objects.put(_HOME, address.platform, _encode_chat(address))
        for (platform, user), chat in self._admin_chats.items():
            await self._objects.put(_ADMIN_CHATS, f"{platform} {user}", chat.encode())

    async def remember_admin(self, platform: str, user: str, chat: str) -> None:
        """The direct chat of an administrator."""
        if self._admin_chats.get((platform, user)) != chat:
            self._admin_chats[platform, user] = chat
            await self._objects.put(_ADMIN_CHATS, f"{platform} {user}", chat.encode())
            await self._tell_waiting()

    def list_admin_chats(self) -> list[ReplyAddress]:
        """The direct chats of those who are administrators now, in the order of the settings."""
        return [
            ReplyAddress(name, self._admin_chats[name, str(user)])
            for name, found in self._hub.platforms.items()
            for user in found.settings.admins or found.settings.allowed_users
            if (name, str(user)) in self._admin_chats
        ]

    def find_address(self, avoid: str = "") -> ReplyAddress | None:
        """Where the owner reads notices, on a connected platform if there is one. `avoid`: a
        platform that cannot be used."""
        known = [a for a in (*self._hub.list_homes(), *self.list_admin_chats())]
        usable = [address for address in known if address.platform != avoid]
        connected = [a for a in usable if self._hub.is_connected(a.platform)]
        return next(iter(connected or usable), None)

    async def tell(self, code: str, text: str, *, avoid: str = "") -> None:
        """Send a notice unless one of this code was sent before; it waits until a chat of the
        owner is known. `avoid`: a platform that cannot be used for it; it waits no longer than
        this process runs then, because the next one may find the platform well."""
        address = self.find_address(avoid)
        if address is None and avoid:
            self._avoiding[code] = (text, avoid)
        elif address is None:
            await self._objects.add(_WAITING, code, text.encode())
        elif await self._objects.add(_NOTICES, code, b""):
            await self._hub.say(address, text)

    async def forget_notices(self, beginning: str) -> None:
        """Notices whose code begins like this are sent again: what they told is over."""
        for stored in await self._objects.list_all(_NOTICES):
            if stored.id.startswith(beginning):
                await self._objects.remove(_NOTICES, stored.id, owner="")

    async def _tell_waiting(self) -> None:
        if self.find_address() is None:
            return
        for code, (text, avoid) in list(self._avoiding.items()):
            if self.find_address(avoid) is not None:
                del self._avoiding[code]
                await self.tell(code, text, avoid=avoid)
        for stored in await self._objects.list_all(_WAITING):
            await self.tell(stored.id, stored.body.decode())
            await self._objects.remove(_WAITING, stored.id, owner="")


def _encode_chat(address: ReplyAddress) -> bytes:
    return "\n".join((address.chat, address.thread)).encode()
