"""Notices for the owner: each once, to the chat where they read them."""

from hermes.core.store import Objects
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
        self._known_admins: set[str] = set()

    async def set_home_chat(self, address: ReplyAddress) -> None:
        body = "\n".join((address.chat, address.thread)).encode()
        await self._objects.put(_HOME, address.platform, body)

    async def remember_admin(self, platform: str, chat: str) -> None:
        """The first one of each platform counts."""
        if platform not in self._known_admins:
            self._known_admins.add(platform)
            await self._objects.add(_ADMIN_CHATS, platform, chat.encode())

    async def find_address(self) -> ReplyAddress | None:
        for kind in (_HOME, _ADMIN_CHATS):
            for name, found in self._hub.platforms.items():
                if kind == _HOME and found.settings.home_chat:
                    return ReplyAddress(name, str(found.settings.home_chat))
                stored = await self._objects.get(kind, name, owner="")
                if stored is not None:
                    chat, _, thread = stored.body.decode().partition("\n")
                    return ReplyAddress(name, chat, thread)
        return None

    async def tell(self, code: str, text: str, *, avoid: str = "") -> None:
        """Send a notice unless one of this code was sent before. `avoid`: a platform that cannot
        be used for it."""
        address = await self.find_address()
        if address is None or address.platform == avoid:
            return
        if await self._objects.add(_NOTICES, code, b""):
            await self._hub.say(address, text)
