"""What the parts of the gateway share: the runtime, the platforms and the way to chats."""

from __future__ import annotations

import asyncio

import msgspec
from msgspec import Struct

from hermes.app.agents import Options
from hermes.app.runtime import Runtime
from hermes.config.platforms import PlatformSettings
from hermes.config.schema import BusyMode, GatewaySection
from hermes.core.provider import Effort
from hermes.core.store import Conversation
from hermes.gateway.access import Role
from hermes.gateway.adapter import ChatType, Inbound, Platform
from hermes.gateway.content.media import MediaCache
from hermes.gateway.open_questions import OpenQuestions
from hermes.gateway.outbox import Content, Outbox
from hermes.gateway.turn_reply import ReplyAddress, deliveries
from hermes.llm.endpoints.endpoint import ModelChoice
from hermes.store.mailbox import SqliteMailbox


class OpenPlatform(Struct, frozen=True):
    """A platform that is on."""

    name: str
    settings: PlatformSettings
    platform: Platform


class Item(Struct, frozen=True):
    """A stored message on its way to the agent."""

    n: int
    """Its number in the inbox; 0: it is none of a person's."""
    platform: str
    message: Inbound
    role: Role

    @property
    def address(self) -> ReplyAddress:
        message = self.message
        in_group = message.chat_type != "dm"
        return ReplyAddress(self.platform, message.chat, message.thread, message.id, in_group)


class ConversationSettings(Struct, frozen=True, omit_defaults=True):
    """What was set for a conversation, and where it takes place."""

    platform: str = ""
    chat: str = ""
    thread: str = ""
    chat_type: ChatType = "dm"
    choice: ModelChoice = ModelChoice()
    effort: Effort | None = None
    busy_mode: BusyMode | None = None

    @property
    def address(self) -> ReplyAddress:
        return ReplyAddress(self.platform, self.chat, self.thread, in_group=self.chat_type != "dm")

    @property
    def options(self) -> Options:
        return Options(choice=self.choice, effort=self.effort)


def decode_settings(row: Conversation) -> ConversationSettings:
    if not row.settings:
        return ConversationSettings()
    return msgspec.msgpack.decode(row.settings, type=ConversationSettings)


class Hub(Struct):
    runtime: Runtime
    mailbox: SqliteMailbox
    outbox: Outbox
    questions: OpenQuestions
    settings: GatewaySection
    platforms: dict[str, OpenPlatform]
    media: MediaCache
    slots: asyncio.Semaphore
    """Admits the turns that may run at the same time."""
    is_draining: bool = False

    async def say(self, address: ReplyAddress, text: str) -> None:
        """Send a text of the gateway itself; without a platform it goes to the log."""
        if not address.platform:
            deliveries.info("%s", text)
            return
        content = Content(text, address.thread, in_group=address.in_group, plain=True)
        await self.outbox.post(address.platform, address.chat, content)

    def parse_address(self, deliver: str) -> ReplyAddress:
        """`PLATFORM:CHAT[:THREAD]`, `home`, or `log`: nowhere."""
        if deliver == "home":
            for found in self.platforms.values():
                if found.settings.home_chat:
                    return ReplyAddress(found.name, str(found.settings.home_chat))
            return ReplyAddress("")
        platform, _, rest = deliver.partition(":")
        chat, _, thread = rest.partition(":")
        if rest.startswith("!"):  # the ids of Matrix have colons; that of a thread begins with $
            chat, mark, event = rest.partition(":$")
            thread = f"${event}" if mark else ""
        return ReplyAddress(platform if chat else "", chat, thread)
