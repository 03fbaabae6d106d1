"""What the parts of the gateway share: the runtime, the platforms and the way to chats."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from weakref import WeakValueDictionary

import msgspec
from msgspec import Struct

from hermes.agent.loop import CutTurn
from hermes.app.agents import Options
from hermes.app.runtime import Runtime
from hermes.config.platforms import PlatformSettings
from hermes.config.schema import BusyMode, GatewaySection
from hermes.core.errors import StoreError
from hermes.core.provider import Effort
from hermes.core.store import Conversation
from hermes.gateway.adapter import ChatType, Inbound, Platform
from hermes.gateway.content.media import MediaCache
from hermes.gateway.content.reply import Content
from hermes.gateway.open_questions import OpenQuestions
from hermes.gateway.outbox import FIRST_WAIT, LONGEST_WAIT, Outbox
from hermes.gateway.people.access import Role
from hermes.gateway.process.state_file import PlatformStatus
from hermes.gateway.turn_reply import ReplyAddress, deliveries
from hermes.llm.endpoints.endpoint import ModelChoice
from hermes.store.tables.mailbox import SqlMailbox

log = logging.getLogger(__name__)


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


class CarriedResult(Struct, frozen=True):
    """The result of a scheduled job that the next message brings along."""

    job: str
    text: str
    taint: int


class ConversationSettings(Struct, frozen=True, omit_defaults=True):
    """What was set for a conversation, and where it takes place."""

    platform: str = ""
    chat: str = ""
    thread: str = ""
    chat_type: ChatType = "dm"
    choice: ModelChoice = ModelChoice()
    effort: Effort | None = None
    busy_mode: BusyMode | None = None
    carried: tuple[CarriedResult, ...] = ()
    fast: bool = False
    personality: str = ""
    footer: bool = False
    """Whether a line about the model stands below answers."""
    voice: bool = False
    """Whether answers are spoken, too."""

    @property
    def address(self) -> ReplyAddress:
        return ReplyAddress(self.platform, self.chat, self.thread, in_group=self.chat_type != "dm")

    @property
    def options(self) -> Options:
        return Options(
            choice=self.choice,
            effort=self.effort,
            fast=self.fast,
            personality=self.personality,
        )


def decode_settings(row: Conversation) -> ConversationSettings:
    if not row.settings:
        return ConversationSettings()
    return msgspec.msgpack.decode(row.settings, type=ConversationSettings)


class Hub(Struct):
    runtime: Runtime
    mailbox: SqlMailbox
    outbox: Outbox
    questions: OpenQuestions
    settings: GatewaySection
    platforms: dict[str, OpenPlatform]
    media: MediaCache
    slots: asyncio.Semaphore
    """Admits the turns that may run at the same time."""
    is_draining: bool = False
    cut: CutTurn = CutTurn()
    """What is known of turns that the end of a process cut off."""
    damage: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    """Set when the session database was found to be damaged."""
    statuses: dict[str, PlatformStatus] = {}
    locks: WeakValueDictionary[str, asyncio.Lock] = msgspec.field(
        default_factory=WeakValueDictionary
    )
    homes: dict[str, ReplyAddress] = {}
    """Platform -> the chat that /sethome named."""

    def note_error(self, error: BaseException | None) -> bool:
        """Whether the error shows that the session database is damaged; it is then repaired."""
        if isinstance(error, StoreError) and error.code == "damaged":
            self.damage.set()
            return True
        return False

    async def store_patiently(self, write: Callable[[], Awaitable[object]]) -> None:
        """Store something as soon as the database takes it. A damaged one never does: after its
        repair what was under way is recovered."""
        wait = FIRST_WAIT
        while True:
            try:
                await write()
                return
            except StoreError as error:
                if self.note_error(error):
                    return
                log.warning("the end of a turn waits for the database: %s", error)
            await asyncio.sleep(wait)
            wait = min(LONGEST_WAIT, 2 * wait)

    async def note_done(self, numbers: Sequence[int]) -> None:
        """What these messages asked for is done, which is stored when the database takes it."""
        await self.store_patiently(partial(self.mailbox.set_state, numbers, "done"))

    async def say(self, address: ReplyAddress, text: str, *, done: tuple[int, ...] = ()) -> None:
        """Send a text of the gateway itself; without a platform it goes to the log. `done`: the
        messages that are answered with it."""
        if not address.platform:
            deliveries.info("%s", text)
            await self.mailbox.set_state(done, "done")
            return
        content = Content(text, address.thread, in_group=address.in_group, plain=True)
        await self.outbox.post(address.platform, address.chat, content, done=done)

    def lock_conversation(self, key: str) -> asyncio.Lock:
        """Held while a conversation is read, changed and stored again."""
        return self._get_lock(key)

    def lock_voice(self, platform: str, chat: str) -> asyncio.Lock:
        """Held while a voice note of a chat is transcribed, or an answer spoken."""
        return self._get_lock(f"voice {platform} {chat}")

    def _get_lock(self, name: str) -> asyncio.Lock:
        lock = self.locks.get(name)
        if lock is None:
            lock = self.locks[name] = asyncio.Lock()
        return lock

    async def change_conversation(
        self, key: str, change: Callable[[Conversation], Conversation]
    ) -> Conversation:
        async with self.lock_conversation(key):
            old = await self.mailbox.get_conversation(key)
            if (new := change(old)) != old:
                await self.mailbox.put_conversation(new)
        return new

    def list_homes(self) -> list[ReplyAddress]:
        """The home chats: what /sethome named goes before the settings."""
        found = []
        for name, platform in self.platforms.items():
            if name in self.homes:
                found.append(self.homes[name])
            elif platform.settings.home_chat:
                found.append(ReplyAddress(name, str(platform.settings.home_chat)))
        return found

    def is_connected(self, platform: str) -> bool:
        return platform in self.statuses and self.statuses[platform].state == "connected"

    def find_address(self, item: Item) -> ReplyAddress:
        """Where what is said about a message goes."""
        deliver = item.message.deliver
        return self.parse_address(deliver) if deliver else item.address

    def parse_address(self, deliver: str) -> ReplyAddress:
        """`PLATFORM:CHAT[:THREAD]`, `home`, or `log`: nowhere."""
        if deliver == "home":
            homes = self.list_homes()
            connected = [home for home in homes if self.is_connected(home.platform)]
            return next(iter(connected or homes), ReplyAddress(""))
        platform, _, rest = deliver.partition(":")
        chat, _, thread = rest.partition(":")
        if rest.startswith("!"):  # the ids of Matrix have colons; that of a thread begins with $
            chat, mark, event = rest.partition(":$")
            thread = f"${event}" if mark else ""
        return ReplyAddress(platform if chat else "", chat, thread)
