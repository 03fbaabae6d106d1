"""The way of a message: who sent it, stored once, then to a command or to its conversation."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import msgspec
from msgspec import Struct, structs

from hermes.app.commands import (
    Command,
    CommandContext,
    find_command,
    parse_command,
    require_command,
    run_command,
    run_plugin_command,
    unescape_message,
)
from hermes.app.commands import Reply as CommandReply
from hermes.core.errors import ConfigError, HermesError
from hermes.core.store import InboxEntry
from hermes.gateway import texts
from hermes.gateway.access import (
    GUEST_COMMANDS,
    Role,
    build_key,
    decide_role,
    is_addressed,
    may_answer,
    may_run_command,
    name_sender,
)
from hermes.gateway.adapter import ButtonPress, Inbound, Part, SendFailure, Target
from hermes.gateway.conversations import ConversationActor, Conversations, Group
from hermes.gateway.hub import Hub, Item
from hermes.gateway.open_questions import describe_answer
from hermes.gateway.owner import Owner
from hermes.gateway.pairing_desk import PairingDesk
from hermes.store.mailbox import SqlitePairings

log = logging.getLogger(__name__)

STALE_SECONDS = 1.0
"""How long old messages of a chat are counted before it is told about them."""
GONE = "This is no longer open."


class StoredMessage(Struct, frozen=True):
    """A message as the inbox keeps it."""

    message: Inbound
    role: Role


class GatewayActions(Struct, frozen=True):
    """What commands ask of the process."""

    restart: Callable[[Item], Awaitable[None]]
    describe_platforms: Callable[[], str]


class Router:
    """Nothing of a person without access is stored, fetched or sent to a model."""

    def __init__(
        self,
        hub: Hub,
        conversations: Conversations,
        pairings: SqlitePairings,
        owner: Owner,
        actions: GatewayActions,
    ) -> None:
        self._hub = hub
        self._conversations = conversations
        self._pairings = pairings
        self._desk = PairingDesk(pairings)
        self._owner = owner
        self._actions = actions
        self._stale: dict[tuple[str, str], int] = {}

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
        message = self._expand_text(platform, message)
        if not is_addressed(settings, message):
            return False
        if self._hub.runtime.services.hooks:
            found = await self._apply_hooks(platform, message)
            if found is None:
                return False
            message = found
        key = self._build_key(platform, message)
        body = msgspec.msgpack.encode(StoredMessage(message, role))
        mailbox = self._hub.mailbox
        if message.edited:
            n = await mailbox.replace_waiting(platform, message.chat, message.id, body)
            actor = self._conversations.find_actor(key)
            if n and actor is not None:
                actor.replace_message(message.id, message)
            return False
        is_stale = self._is_stale(message)
        entry = InboxEntry(platform, message.chat, message.id, key, body)
        n = await mailbox.add_message(structs.replace(entry, state="done") if is_stale else entry)
        if not n:
            return False
        await self._hub.outbox.revive_chat(platform, message.chat)
        if role == "admin" and message.chat_type == "dm":
            await self._owner.remember_admin(platform, message.chat)
        item = Item(n, platform, message, role)
        if is_stale:
            self._count_stale(item)
        else:
            await self.dispatch(item, key)
        return True

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
        is_paired = message.user not in settings.allowed_users and await self._pairings.is_paired(
            platform, message.user
        )
        return decide_role(settings, message, is_paired=is_paired)

    def _expand_text(self, platform: str, message: Inbound) -> Inbound:
        """A known command addresses the agent, in groups too."""
        parsed = self._parse_command(platform, message)
        if parsed is not None and find_command(parsed[0]) is not None:
            return structs.replace(message, addressed=True)
        return message

    def _parse_command(self, platform: str, message: Inbound) -> tuple[str, str] | None:
        capabilities = self._hub.platforms[platform].platform.capabilities
        if not capabilities.commands:
            return None
        text = message.text
        if capabilities.bang_commands and text.startswith("!"):
            text = "/" + text[1:]
        parsed = parse_command(text)
        if parsed is None:
            return None
        name, args = parsed
        return (name if find_command(name) else name.replace("_", "-")), args

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
        if text:
            try:
                await found.platform.send_part(Target(message.chat), Part(text))
            except SendFailure as error:
                log.info("a pairing code on %s was not delivered: %s", platform, error)

    def _is_stale(self, message: Inbound) -> bool:
        hours = self._hub.settings.stale_hours
        return bool(hours and message.sent and message.sent < time.time() - hours * 3600)

    def _count_stale(self, item: Item) -> None:
        place = (item.platform, item.message.chat)
        self._stale[place] = self._stale.get(place, 0) + 1
        if self._stale[place] == 1:
            self._hub.runtime.spawn_task(self._tell_stale(item), "old messages")

    async def _tell_stale(self, item: Item) -> None:
        await asyncio.sleep(STALE_SECONDS)
        n = self._stale.pop((item.platform, item.message.chat), 0)
        await self._hub.say(item.address, texts.STALE.format(n=n))

    async def dispatch(self, item: Item, key: str) -> None:
        """Act on a stored message."""
        if item.message.deliver_only:
            address = self._hub.parse_address(item.message.deliver)
            await self._hub.say(address, item.message.text)
            await self._hub.mailbox.set_state([item.n], "done")
            return
        actor = self._conversations.get_actor(key)
        parsed = self._parse_command(item.platform, item.message)
        if parsed is not None:
            # On its own: /stop waits for the turn to end, and the platform must go on receiving.
            self._follow_task(actor, self._run_command(item, actor, *parsed))
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

    async def _run_command(
        self, item: Item, actor: ConversationActor, name: str, args: str
    ) -> None:
        # Running from here on: a command that a crash cut off is not run a second time.
        await self._hub.mailbox.set_state([item.n], "running")
        try:
            text = await self._execute(item, actor, name, args)
        except HermesError as error:
            text = str(error)
        except Exception:
            log.exception("/%s failed", name)
            text = texts.INTERNAL_ERROR
        if text:
            await self._hub.say(item.address, text)
        if not actor.holds(item):
            await self._hub.mailbox.set_state([item.n], "done")

    async def _execute(
        self, item: Item, actor: ConversationActor, name: str, args: str, confirmed: bool = False
    ) -> str:
        plugins = self._hub.runtime.plugins
        if find_command(name) is None and plugins is not None and name in plugins.commands:
            if item.role != "admin":
                raise ConfigError(f"/{name} is for administrators.")
            return (await run_plugin_command(plugins.commands[name], args)).text
        command = require_command(name, " (To send it as text, start with //.)")
        self._check_rights(item, actor, command)
        match command.name:
            case "restart":
                await self._actions.restart(item)
                return ""
            case "stop" if actor.is_starting:
                await actor.suspend()
                return texts.STOPPED_STARTING
            case "platforms":
                return self._actions.describe_platforms()
            case "sethome":
                await self._owner.set_home_chat(item.address)
                return texts.HOME_CHAT_SET
            case "help" if not args:
                return self._list_commands(item.role)
        session, _ = await actor.slot.open_session(
            item, renews=False, needs_model=command.needs_model
        )
        context = CommandContext(
            self._hub.runtime,
            session,
            item.platform,
            is_admin=item.role == "admin",
            is_confirmed=confirmed,
        )
        if command.name == "approve" and item.role != "admin":
            args = args.replace("always", "session")  # a rule for everybody is the owner's
        reply = await run_command(context, name, args)
        await self._follow_reply(item, actor, command, reply)
        if reply.confirm:
            return f"{reply.text}\n\n{reply.confirm} Send /{name} {args} yes".replace("  ", " ")
        return reply.text

    def _check_rights(self, item: Item, actor: ConversationActor, command: Command) -> None:
        if not may_run_command(item.role, command.name, admin_only=command.admin_only):
            raise ConfigError(f"/{command.name} is for administrators.")
        if command.name in ("approve", "deny") and not may_answer(
            item.role, item.message.user, actor.requester[0]
        ):
            raise ConfigError(texts.NOT_YOURS.format(name=actor.requester[1]))
        if actor.has_turn and not command.never_waits:
            raise ConfigError(texts.TURN_RUNNING)

    async def _follow_reply(
        self, item: Item, actor: ConversationActor, command: Command, reply: CommandReply
    ) -> None:
        if command.name in ("approve", "deny") and actor.session is not None:
            answer = "deny" if command.name == "deny" else _find_answer(item.message.text)
            line = describe_answer(answer, _name_person(item.message))
            await self._hub.questions.close_answered(actor.session, line)
        if reply.session is not None:
            await actor.slot.adopt_session(reply.session, item)
        if reply.suspend:
            await actor.suspend()
        await actor.slot.save_settings(item)
        if reply.submit is not None:
            actor.enqueue_group(Group([item], time.monotonic(), reply.submit))

    def _list_commands(self, role: Role) -> str:
        commands = list_visible_commands(role)
        return "\n".join(f"/{command.name} – {command.help}" for command in commands)

    async def receive_press(self, platform: str, press: ButtonPress) -> str:
        """What to show to the person who pressed a button."""
        message = Inbound(press.chat, press.chat_type, press.user, press.id, is_bot=press.is_bot)
        role = await self._find_role(platform, message)
        found = self._hub.questions.find(press.data)
        if role in ("nobody", "stranger"):
            return ""
        if found is None:
            return GONE
        asked, index = found
        if not may_answer(role, press.user, asked.requester):
            return texts.NOT_YOURS.format(name=asked.requester_name or "the requester")
        name = name_sender(press.user_name) or press.user
        is_admin = role == "admin"
        answered = await self._hub.questions.answer(asked, index, name, is_admin=is_admin)
        return "" if answered else GONE


def list_visible_commands(role: Role) -> list[Command]:
    from hermes.app.commands import load_commands

    return [
        command
        for command in load_commands()
        if may_run_command(role, command.name, admin_only=command.admin_only)
        and (role != "guest" or command.name in GUEST_COMMANDS)
    ]


def _find_answer(text: str) -> str:
    words = text.lower().split()
    return next((word for word in ("session", "always") if word in words), "once")


def _name_person(message: Inbound) -> str:
    return name_sender(message.user_name) or message.user
