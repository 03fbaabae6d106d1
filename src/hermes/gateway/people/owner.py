"""Notices for the owner: each once, to the chat where they read them."""

from hermes.core.store import Object, Objects
from hermes.gateway.hub import Hub
from hermes.gateway.turn_reply import ReplyAddress

_NOTICES = "gateway_notice"
_HOME = "gateway_home"
_ADMIN_CHATS = "gateway_admin"


class Owner:
    """The home chat of a platform, else the first administrator's direct chat once it is known."""

    def __init__(self, hub: Hub, objects: Objects) -> None:
        self._hub = hub
        self._objects = objects
        self._known_admins: set[tuple[str, str]] = set()

    async def set_home_chat(self, address: ReplyAddress) -> None:
        body = "\n".join((address.chat, address.thread)).encode()
        await self._objects.put(_HOME, address.platform, body)
        self._hub.homes[address.platform] = ReplyAddress(
            address.platform, address.chat, address.thread
        )

    async def restore_homes(self) -> None:
        for stored in await self._objects.list_all(_HOME):
            self._hub.homes[stored.id] = _read_address(stored)

    async def remember_admin(self, platform: str, user: str, chat: str) -> None:
        """The direct chat of an administrator."""
        if (platform, user) not in self._known_admins:
            self._known_admins.add((platform, user))
            await self._objects.put(_ADMIN_CHATS, f"{platform} {user}", chat.encode())

    async def list_admin_chats(self) -> list[ReplyAddress]:
        """The direct chats of those who are administrators now, in the order of the settings."""
        stored = {s.id: s.body.decode() for s in await self._objects.list_all(_ADMIN_CHATS)}
        return [
            ReplyAddress(name, stored[f"{name} {user}"])
            for name, found in self._hub.platforms.items()
            for user in found.settings.admins or found.settings.allowed_users
            if f"{name} {user}" in stored
        ]

    async def find_address(self) -> ReplyAddress | None:
        if (home := self._hub.find_home()) is not None:
            return home
        return next(iter(await self.list_admin_chats()), None)

    async def tell(self, code: str, text: str, *, avoid: str = "") -> None:
        """Send a notice unless one of this code was sent before. `avoid`: a platform that cannot
        be used for it."""
        address = await self.find_address()
        if address is None or address.platform == avoid:
            return
        if await self._objects.add(_NOTICES, code, b""):
            await self._hub.say(address, text)


def _read_address(stored: Object) -> ReplyAddress:
    chat, _, thread = stored.body.decode().partition("\n")
    return ReplyAddress(stored.id, chat, thread)
