"""The way of a message: who sent it, stored once, then to a command or to its conversation."""

import asyncio
import json
import logging
import time
from collections.abc import Coroutine
from typing import Any
from urllib.parse import unquote

import msgspec
from msgspec import Struct, structs

from hermes.app.commands import unescape_message
from hermes.core.store import InboxEntry
from hermes.gateway import texts
from hermes.gateway.adapter import ButtonPress, Inbound, Part, SendFailure, Target
from hermes.gateway.chat_commands import ChatCommands
from hermes.gateway.conversations import ConversationActor, Conversations
from hermes.gateway.hub import Hub, Item, OpenPlatform
from hermes.gateway.people.access import (
    Role,
    build_key,
    decide_role,
    is_addressed,
    may_answer,
    name_sender,
)
from hermes.gateway.people.loop_breaker import LastAnswer, LoopBreaker
from hermes.gateway.people.owner import Owner
from hermes.gateway.people.pairing_desk import PairingDesk
from hermes.store.tables.mailbox import SqlPairings

log = logging.getLogger(__name__)

STALE_SECONDS = 1.0
"""How long old messages of a chat are counted before it is told about them."""
_MOST_ALBUMS = 100
_CURSORS = "gateway_cursor"
GONE = "This is no longer open."


class StoredMessage(Struct, frozen=True):
    """A message as the inbox keeps it."""

    message: Inbound
    role: Role


def encode_message(message: Inbound, role: Role) -> tuple[Inbound, bytes]:
    """A message as it is stored: with question marks for halves of characters."""
    try:
        return message, msgspec.msgpack.encode(StoredMessage(message, role))
    except UnicodeEncodeError:
        read = json.dumps(msgspec.to_builtins(message), ensure_ascii=False)
        message = msgspec.json.decode(read.encode("utf-8", "replace"), type=Inbound)
        return message, msgspec.msgpack.encode(StoredMessage(message, role))


class Router:
    """Nothing of a person without access is stored, fetched or sent to a model."""

    def __init__(
        self,
        hub: Hub,
        conversations: Conversations,
        pairings: SqlPairings,
        owner: Owner,
        commands: ChatCommands,
    ) -> None:
        self._hub = hub
        self._conversations = conversations
        self._pairings = pairings
        self._desk = PairingDesk(pairings)
        self._owner = owner
        self._commands = commands
        self._loops = LoopBreaker()
        self._albums: dict[tuple[str, str, str, str], None] = {}
        """Those that address the agent."""
        self._stale: dict[tuple[str, str], list[int]] = {}
        """The old messages of each chat that it has not been told about."""

    async def receive_message(self, platform: str, message: Inbound) -> bool:
        """Store a message and act on it; whether it is new. When this returns it may be
        confirmed."""
        role = await self._find_role(platform, message)
        if role == "nobody":
            return False
        if role == "stranger":
            await self._greet_stranger(platform, message)
            return False
        settings = self._hub.platforms[platform].settings
        message = await self._mark_addressed(platform, message)
        if not is_addressed(settings, message):
            return False
        if self._hub.runtime.services.hooks:
            found = await self._apply_hooks(platform, message)
            if found is None:
                return False
            message = found
        if message.edited:
            await self._replace_message(platform, message, role)
            return False
        message, body = encode_message(message, role)
        key = self._build_key(platform, message)
        n = await self._hub.mailbox.add_message(
            InboxEntry(platform, message.chat, message.id, key, body)
        )
        if not n:
            return False
        if await self._hub.outbox.revive_chat(platform, message.chat):
            await self._owner.forget_notices(f"{platform} {message.chat} gone")
        if role == "admin" and message.chat_type == "dm":
            await self._owner.remember_admin(platform, message.user, message.chat)
        item = Item(n, platform, message, role)
        if not await self._break_loop(item, key):
            await self.dispatch(item, key, time.time())
        return True

    async def _replace_message(self, platform: str, edited: Inbound, role: Role) -> None:
        """An edit replaces a message of the same person that still waits: not every service makes
        sure that nobody edits what others wrote. It stays in its place."""
        mailbox = self._hub.mailbox
        entry = await mailbox.find_waiting(platform, edited.chat, edited.id)
        if entry is None:
            return
        old = msgspec.msgpack.decode(entry.body, type=StoredMessage).message
        if old.user != edited.user:
            log.warning("an edit of somebody else's message on %s was ignored", platform)
            return
        quote = edited.quote or old.quote
        edited = structs.replace(edited, thread=old.thread, session=old.session, quote=quote)
        edited, body = encode_message(edited, role)
        n = await mailbox.replace_waiting(platform, edited.chat, edited.id, body)
        actor = self._conversations.find_actor(entry.key)
        if n and actor is not None:
            actor.replace_message(edited.id, edited)

    async def _break_loop(self, item: Item, key: str) -> bool:
        """Whether the message is one of a program that talks with us; it is not answered then."""
        capabilities = self._hub.platforms[item.platform].platform.capabilities
        actor = self._conversations.find_actor(key)
        text = item.message.text.strip()
        is_command = self._commands.parse_message(item.platform, text) is not None
        if capabilities.marks_bots or is_command:
            return False
        last = actor.last_answer if actor is not None else LastAnswer()
        verdict = self._loops.judge_message(
            key, text, is_reaction=last.is_recent, is_echo=last.says(text)
        )
        if verdict == "answer":
            return False
        if verdict == "tell":
            log.warning("a loop on %s was ended: %s repeats itself", item.platform, key)
            await self._hub.say(item.address, texts.LOOP, done=(item.n,))
        else:
            await self._hub.mailbox.set_state([item.n], "done")
        return True

    def note_error(self, error: Exception) -> None:
        self._hub.note_error(error)

    async def _apply_hooks(self, platform: str, message: Inbound) -> Inbound | None:
        """The message as hooks want it answered; None: not at all."""
        from hermes.app.extensions.dispatch_hooks import decide_dispatch

        runtime = self._hub.runtime
        about = {"chat_id": message.chat, "user_id": message.user, "text": message.text}
        about["message_id"] = message.id
        hooks, folder = runtime.services.hooks, runtime.working_folder
        decision = await decide_dispatch(hooks, platform, folder, about)
        if decision is None:
            return message
        if decision.action == "skip":
            return None
        return structs.replace(message, text=decision.text)

    async def _find_role(self, platform: str, message: Inbound) -> Role:
        found = self._hub.platforms[platform]
        if found.platform.capabilities.authenticates:
            return "user"
        settings = found.settings
        is_known = settings.lets_in(message.user)
        is_paired = not is_known and await self._pairings.is_paired(platform, message.user)
        return decide_role(settings, message, is_paired=is_paired)

    async def _mark_addressed(self, platform: str, message: Inbound) -> Inbound:
        """In groups, commands that exist address the agent too, and pictures whose album does: its
        caption belongs to one of them."""
        if message.chat_type == "dm":
            return message
        album = (platform, message.chat, message.user, message.album)
        if not message.addressed:
            is_addressed = album in self._albums or await self._commands.exists(
                platform, message.text
            )
            message = structs.replace(message, addressed=is_addressed)
        if message.addressed and message.album:
            self._albums[album] = None
            while len(self._albums) > _MOST_ALBUMS:
                del self._albums[next(iter(self._albums))]
        return message

    def _build_key(self, platform: str, message: Inbound) -> str:
        settings, setup = self._hub.settings, self._hub.runtime.setup
        name = setup.profile_name
        return build_key(
            "main" if name == "default" else name,
            platform,
            message,
            group_per_user=settings.group_sessions_per_user,
            thread_per_user=settings.thread_sessions_per_user,
        )

    async def _greet_stranger(self, platform: str, message: Inbound) -> None:
        found = self._hub.platforms[platform]
        if not (found.settings.pairs_people and found.platform.capabilities.pairs):
            return
        name = name_sender(message.user_name)
        text = await self._desk.greet_stranger(platform, message.user, name, message.chat)
        if text:  # others do not wait for the answer to a stranger
            self._hub.runtime.spawn_task(_tell_stranger(found, message.chat, text), "pairing")

    def _is_stale(self, message: Inbound, received: float) -> bool:
        hours = self._hub.settings.stale_hours
        return bool(hours and message.sent and message.sent < received - hours * 3600)

    def _note_stale(self, item: Item) -> None:
        stale = self._stale.setdefault((item.platform, item.message.chat), [])
        stale.append(item.n)
        if len(stale) == 1:
            self._hub.runtime.spawn_task(self._tell_stale(item), "old messages")

    async def _tell_stale(self, item: Item) -> None:
        await asyncio.sleep(STALE_SECONDS)
        stale = self._stale.pop((item.platform, item.message.chat))
        await self._hub.say(item.address, texts.STALE.format(n=len(stale)), done=tuple(stale))

    async def dispatch(self, item: Item, key: str, received: float) -> None:
        """Act on a message that was stored at that time."""
        if self._is_stale(item.message, received):
            self._note_stale(item)
            return
        if item.message.deliver_only:
            address = self._hub.parse_address(item.message.deliver)
            await self._hub.say(address, item.message.text, done=(item.n,))
            return
        actor = self._conversations.get_actor(key)
        parsed = self._commands.parse_message(item.platform, item.message.text)
        if parsed is not None:
            # On its own: /stop waits for the turn to end, and the platform must go on receiving.
            self._follow_task(actor, self._commands.run(item, actor, *parsed))
            return
        text = unescape_message(item.message.text)
        item = structs.replace(item, message=structs.replace(item.message, text=text))
        if actor.unfinished:
            self._follow_task(actor, self._enqueue_after(actor, item, set(actor.unfinished)))
        else:
            await actor.enqueue(item)

    def _follow_task(self, actor: ConversationActor, work: Coroutine[Any, Any, None]) -> None:
        """Start work that later messages of the conversation wait for."""
        task = self._hub.runtime.spawn_task(work, f"chat {actor.key}")
        actor.unfinished.add(task)
        task.add_done_callback(actor.unfinished.discard)

    async def _enqueue_after(
        self, actor: ConversationActor, item: Item, earlier: set[asyncio.Task[None]]
    ) -> None:
        await asyncio.wait(earlier)
        await actor.enqueue(item)

    async def receive_press(self, platform: str, press: ButtonPress) -> str:
        """What to show to the person who pressed a button."""
        message = Inbound(press.chat, press.chat_type, press.user, press.id, is_bot=press.is_bot)
        role = await self._find_role(platform, message)
        found = self._hub.questions.find(press.data)
        if press.is_bot:
            return ""
        if found is None:
            return "" if role in ("nobody", "stranger") else GONE
        asked, index = found
        if not may_answer(role, press.user, asked.requester):
            return texts.NOT_YOURS.format(name=asked.requester_name or "the requester")
        name = name_sender(press.user_name) or press.user
        is_admin = role == "admin"
        answered = await self._hub.questions.answer(asked, index, name, is_admin=is_admin)
        return "" if answered else GONE

    async def list_chats(self, platform: str) -> tuple[str, ...]:
        """The chats of a platform that have conversations."""
        keys = [key.split(":") for key in await self._hub.mailbox.list_keys("agent:")]
        chats = [unquote(parts[4]) for parts in keys if parts[2] == platform]
        return tuple(dict.fromkeys(chats))

    async def load_cursor(self, platform: str) -> str:
        found = await self._hub.runtime.store.objects.get(_CURSORS, platform, owner="")
        return found.body.decode() if found is not None else ""

    async def save_cursor(self, platform: str, cursor: str) -> None:
        await self._hub.runtime.store.objects.put(_CURSORS, platform, cursor.encode())


async def _tell_stranger(found: OpenPlatform, chat: str, text: str) -> None:
    try:
        await found.platform.send_part(Target(chat), Part(text))
    except SendFailure as error:
        log.info("a pairing code on %s was not delivered: %s", found.name, error)
