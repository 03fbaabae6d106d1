"""Commands in chats: who may run them, the gateway's own, those of the registry, quick ones."""

import logging
import re
import time
from collections.abc import Awaitable, Callable

from msgspec import Struct

from hermes.app.commands import (
    ESCAPE_HINT,
    Command,
    CommandContext,
    find_command,
    has_other_command,
    load_commands,
    parse_command,
    run_command,
    run_plugin_command,
)
from hermes.app.commands import Reply as CommandReply
from hermes.app.session import Session
from hermes.config.schema import GatewaySection, QuickCommand
from hermes.core.errors import ConfigError, HermesError, ToolError
from hermes.core.message import ToolCall
from hermes.core.tool import Toolbox, Verdict, ignore_progress
from hermes.gateway import texts
from hermes.gateway.content.voice import can_speak
from hermes.gateway.conversations import ConversationActor, Group
from hermes.gateway.hub import Hub, Item
from hermes.gateway.open_questions import describe_answer
from hermes.gateway.people.access import Role, may_answer, may_run_command, name_sender
from hermes.gateway.people.owner import Owner
from hermes.tools.registry import load_tool

log = logging.getLogger(__name__)

_MAX_ALIASES = 5
"""Aliases that may stand for each other."""
_APPROVALS = ("approve", "deny")


class GatewayActions(Struct, frozen=True):
    """What commands ask of the process."""

    restart: Callable[[Item], Awaitable[None]]
    describe_platforms: Callable[[], str]


class ChatCommands:
    """A command that a crash cut off is not run a second time."""

    def __init__(self, hub: Hub, owner: Owner, actions: GatewayActions) -> None:
        self._hub = hub
        self._owner = owner
        self._actions = actions

    def parse_message(self, platform: str, text: str) -> tuple[str, str] | None:
        """The command in a message and its arguments; None: it is none. Aliases are followed."""
        capabilities = self._hub.platforms[platform].platform.capabilities
        if not capabilities.commands:
            return None
        if capabilities.bang_commands and text.startswith("!"):
            text = "/" + text[1:]
        parsed = parse_command(text)
        for _ in range(_MAX_ALIASES):
            quick = self.find_quick(parsed[0]) if parsed is not None else None
            if parsed is None or quick is None or quick.type != "alias":
                break
            parsed = parse_command(f"/{quick.target.lstrip('/')} {parsed[1]}".strip())
        if parsed is None:
            return None
        name, args = parsed
        with_hyphens = name.replace("_", "-")  # as menus write it
        is_menus = not self._is_known(name) and self._is_known(with_hyphens)
        return (with_hyphens if is_menus else name), args

    def _is_known(self, name: str) -> bool:
        return find_command(name) is not None or self.find_quick(name) is not None

    async def exists(self, platform: str, text: str) -> bool:
        """Whether a text is a command that there is, of whatever kind."""
        parsed = self.parse_message(platform, text)
        if parsed is None:
            return False
        return self._is_known(parsed[0]) or await has_other_command(self._hub.runtime, parsed[0])

    def find_quick(self, name: str) -> QuickCommand | None:
        """A command of the settings; those of the registry go before it."""
        quick = self._hub.settings.quick_commands.get(name)
        return quick if quick is not None and find_command(name) is None else None

    async def run(self, item: Item, actor: ConversationActor, name: str, args: str) -> None:
        """Run a command and say what it answers."""
        await self._hub.mailbox.set_state([item.n], "running")
        text = await self._try_command(item, actor, name, args)
        done = () if actor.holds(item) else (item.n,)
        if text:
            await self._hub.say(item.address, text, done=done)
        else:
            await self._hub.mailbox.set_state(done, "done")

    async def _try_command(
        self, item: Item, actor: ConversationActor, name: str, args: str, confirmed: bool = False
    ) -> str:
        try:
            return await self._execute(item, actor, name, args, confirmed)
        except HermesError as error:
            self._hub.note_error(error)
            return str(error)
        except Exception:
            log.exception("/%s failed", name)
            return texts.INTERNAL_ERROR

    async def _execute(
        self, item: Item, actor: ConversationActor, name: str, args: str, confirmed: bool
    ) -> str:
        command = find_command(name)
        if command is None:
            return await self._execute_other(item, actor, name, args, confirmed)
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
            case "footer" | "voice":
                return await self._set_switch(item, actor, command.name, args.lower())
            case "help" | "commands" if not args:
                return self.list_commands(item.role)
        if command.name == "approve" and item.role != "admin":
            # A rule for everybody is the owner's.
            args = re.sub("always", "session", args, flags=re.IGNORECASE)
        session, _ = await actor.slot.open_session(item, needs_model=command.needs_model)
        reply = await self._run_registered(item, session, name, args, confirmed)
        if command.name in _APPROVALS:
            await self._close_approval(item, session, command.name)
        return await self._follow_reply(item, actor, f"/{name} {args}".strip(), reply)

    async def _set_switch(self, item: Item, actor: ConversationActor, name: str, word: str) -> str:
        if word not in ("", "on", "off", "status"):
            raise ConfigError(f"/{name} takes on or off.")
        if name == "voice" and word == "on":
            session, _ = await actor.slot.open_session(item)
            if not can_speak(session):
                raise ConfigError(texts.NO_SPEECH)
        wanted = word == "on" if word in ("on", "off") else None
        is_on = await actor.slot.set_switch(item, name, on=wanted)
        return f"{texts.SWITCHES[name]}: {'on' if is_on else 'off'}."

    async def _execute_other(
        self, item: Item, actor: ConversationActor, name: str, args: str, confirmed: bool
    ) -> str:
        """A quick command, a plugin's, a skill, or a command that the user has written."""
        quick = self.find_quick(name)
        plugins = self._hub.runtime.plugins
        is_plugins = plugins is not None and name in plugins.commands
        if (quick is not None or is_plugins) and item.role != "admin":
            raise ConfigError(texts.ADMINS_ONLY.format(name=name))
        if item.role == "guest":
            raise ConfigError(f"Unknown command /{name}. See /help.{ESCAPE_HINT}")
        if actor.has_turn:
            raise ConfigError(texts.TURN_RUNNING)
        if quick is not None:
            session, _ = await actor.slot.open_session(item, needs_model=False)
            return await run_quick(session, quick.command)
        if plugins is not None and is_plugins:
            return (await run_plugin_command(plugins.commands[name], args)).text
        session, _ = await actor.slot.open_session(item, needs_model=False)
        reply = await self._run_registered(item, session, name, args, confirmed)
        return await self._follow_reply(item, actor, f"/{name} {args}".strip(), reply)

    async def _run_registered(
        self, item: Item, session: Session, name: str, args: str, confirmed: bool
    ) -> CommandReply:
        context = CommandContext(
            self._hub.runtime,
            session,
            item.platform,
            is_admin=item.role == "admin",
            is_confirmed=confirmed,
        )
        return await run_command(context, name, args)

    def _check_rights(self, item: Item, actor: ConversationActor, command: Command) -> None:
        if not may_run_command(item.role, command.name, admin_only=command.admin_only):
            raise ConfigError(texts.ADMINS_ONLY.format(name=command.name))
        user, name = actor.requester
        is_foreign = actor.has_turn and not may_answer(item.role, item.message.user, user)
        if command.name in _APPROVALS and is_foreign:
            raise ConfigError(texts.NOT_YOURS.format(name=name or user))
        if actor.has_turn and not command.never_waits:
            raise ConfigError(texts.TURN_RUNNING)

    async def _close_approval(self, item: Item, session: Session, name: str) -> None:
        answer = "deny" if name == "deny" else _find_answer(item.message.text)
        person = name_sender(item.message.user_name) or item.message.user
        await self._hub.questions.close_answered(session, describe_answer(answer, person))

    async def _follow_reply(
        self, item: Item, actor: ConversationActor, line: str, reply: CommandReply
    ) -> str:
        """Do what the reply of a command asks for; returns what to say."""
        if reply.session is not None:
            await actor.slot.adopt_session(reply.session, item)
        if reply.suspend:
            await actor.suspend()
        await actor.slot.save_settings(item)
        if reply.submit is not None:
            actor.enqueue_group(Group([item], time.monotonic(), reply.submit))
        if not reply.confirm:
            return reply.text
        return await self._ask_first(item, actor, line, reply)

    async def _ask_first(
        self, item: Item, actor: ConversationActor, line: str, reply: CommandReply
    ) -> str:
        """Ask with buttons where there are some; returns the question where there are none."""
        words = reply.choices or ("yes",)
        hint = " or ".join(f"{line} {word}" for word in words)
        text = f"{reply.text}\n\n{reply.confirm}".strip()
        if not self._hub.platforms[item.platform].platform.capabilities.buttons:
            return f"{text} Send {hint}"

        async def run_again(word: str) -> None:
            parsed = parse_command(line if not reply.choices else f"{line} {word}")
            if word == texts.NO or parsed is None:
                return
            said = await self._try_command(item, actor, *parsed, confirmed=not reply.choices)
            if said:
                await self._hub.say(item.address, said)

        requester = (item.message.user, item.message.user_name)
        await self._hub.questions.ask_choice(
            f"{text} ({hint})", (*words, texts.NO), item.address, requester, run_again
        )
        return ""

    def list_commands(self, role: Role) -> str:
        rows = [f"/{command.name} – {command.help}" for command in list_visible_commands(role)]
        return "\n".join([*rows, *self._list_quick(role)])

    def _list_quick(self, role: Role) -> list[str]:
        return [
            f"/{name} – {quick.target if quick.type == 'alias' else quick.command}"
            for name, quick in sorted(self._hub.settings.quick_commands.items())
            if role == "admin" or (role == "user" and quick.type == "alias")
        ]


def list_visible_commands(role: Role) -> list[Command]:
    """What somebody with this role may run."""
    return [
        command
        for command in load_commands()
        if may_run_command(role, command.name, admin_only=command.admin_only)
    ]


async def run_quick(session: Session, command: str) -> str:
    """Run a command of the settings in the sandbox of the session; what it printed."""
    terminal = load_tool("terminal")
    call = ToolCall("quick", "terminal", "{}")
    context = session.host.tool_context(call, Verdict(True), Toolbox(), ignore_progress)
    try:
        result = await terminal.run(terminal.params(command=command), context)
    except ToolError as error:
        return str(error)
    text = result if isinstance(result, str) else str(result.content)
    return session.agent.redactor.redact(text).strip() or "(no output)"


def check_quick_commands(settings: GatewaySection) -> None:
    """ConfigError when one of them says nothing."""
    for name, quick in settings.quick_commands.items():
        key = "command" if quick.type == "exec" else "target"
        if not getattr(quick, key).strip():
            raise ConfigError(f"config.yaml: gateway.quick_commands.{name} needs a {key}.")


def _find_answer(text: str) -> str:
    words = text.lower().split()
    return next((word for word in ("session", "always") if word in words), "once")
