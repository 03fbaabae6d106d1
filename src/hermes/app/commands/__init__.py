"""The slash commands of every surface: `commands/NAME.py` defines /NAME."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import Struct

from hermes.config.env import is_inside_agent
from hermes.core.errors import ConfigError
from hermes.core.message import user_message
from hermes.core.text import describe_exception, take_text

if TYPE_CHECKING:
    from hermes.app.commands._own import OwnCommand
    from hermes.app.extensions.plugin_api import PluginCommand
    from hermes.app.runtime import Runtime
    from hermes.app.session import Session
    from hermes.core.message import Message

ONE_SHOT = "oneshot"
"""The surface that runs one command or answers one prompt, then exits."""
Surfaces: TypeAlias = Literal["all", "live", "messenger"]
"""`live`: only in an ongoing conversation, for settings that last no longer than it does.
`messenger`: only in the gateway, which runs it itself."""
SKILL_PREFIX = "skill:"
"""Names a skill even where a command has its name."""
MCP_PREFIX = "mcp:"
"""Names a prompt of an MCP server: /mcp:SERVER:PROMPT."""
_NAME = re.compile(
    r"/((?:skill:)?[A-Za-z][A-Za-z0-9_-]*|mcp:[A-Za-z0-9_-]+:\S+)(?:\s+(.*))?\Z", re.DOTALL
)
ESCAPE_HINT = " (To send it as text, start with //.)"
_YES = frozenset({"yes", "y", "confirm"})
_OTHER_MODULES = {
    "reasoning": "effort",
    "reload-mcp": "reload_mcp",
    "reload-skills": "reload_skills",
}
"""Commands whose module has another name."""
RunCommand: TypeAlias = "Callable[[CommandContext, str], Awaitable[Reply]]"


class CommandContext(Struct, frozen=True):
    """Where a command was entered, and by whom."""

    runtime: Runtime
    session: Session
    surface: str
    is_admin: bool = True
    is_confirmed: bool = False
    """The user has seen the preview and agreed."""


class Reply(Struct, frozen=True):
    """The result of a command."""

    text: str = ""
    session: Session | None = None
    """The session to continue with; None: the same."""
    confirm: str = ""
    """A question to ask first: nothing was done yet. After a yes the same command runs again with
    `is_confirmed` (or with the word `yes` at its end)."""
    choices: tuple[str, ...] = ()
    """The possible answers to `confirm` where yes and no are not enough: the same command runs
    again with the chosen word at its end."""
    read_only: bool = False
    """The session can be read but not continued: another terminal has it open."""
    submit: Message | None = None
    """A message to answer now, as if the user had sent it."""
    suspend: bool = False
    """The next message starts a fresh session."""


class Command(Struct, frozen=True):
    name: str
    help: str
    """One line."""
    run: RunCommand
    """Takes what follows the name. ConfigError when the arguments make no sense."""
    usage: str = ""
    """The arguments, as in `[ID] [yes]`."""
    aliases: tuple[str, ...] = ()
    never_waits: bool = False
    """Runs at once, even while the agent works."""
    admin_only: bool = False
    """In a chat with several people: for administrators only."""
    surfaces: Surfaces = "all"
    needs_model: bool = True
    """False: it also runs where no model can be called, for example without a key."""


def command(
    name: str, help: str, usage: str = "", **options: Any
) -> Callable[[RunCommand], Command]:
    """Makes a function the command /name; `options` are further fields of `Command`."""
    return lambda run: Command(name, help, run, usage, **options)


def parse_command(text: str) -> tuple[str, str] | None:
    """The name and the arguments of a command; None for a message. A message starts with `//`, or
    with a slash and something that cannot be a name (`/etc/hosts`)."""
    found = _NAME.match(text.strip())
    return (found[1].lower(), (found[2] or "").strip()) if found else None


def unescape_message(text: str) -> str:
    """The message without the extra slash that kept it from being a command."""
    return text[1:] if text.startswith("//") else text


def list_names() -> tuple[str, ...]:
    """The names of all commands, without importing any."""
    stems = {file.stem for file in Path(__file__).parent.glob("[a-z]*.py")}
    return tuple(sorted(stems - set(_OTHER_MODULES.values()) | set(_OTHER_MODULES)))


def find_command(name: str) -> Command | None:
    """The command with this name or alias."""
    return _load_command(name) if name in list_names() else load_aliases().get(name)


@cache
def load_aliases() -> dict[str, Command]:
    return {alias: command for command in load_commands() for alias in command.aliases}


@cache
def load_commands() -> tuple[Command, ...]:
    return tuple(map(_load_command, list_names()))


def require_command(name: str, hint: str = "") -> Command:
    """The command with this name; ConfigError with the nearest one and `hint` if there is none."""
    command = find_command(name)
    if command is not None:
        return command
    from difflib import get_close_matches

    close = get_close_matches(name, [*list_names(), *load_aliases()], 1, 0.6)
    advice = f"Did you mean /{close[0]}?" if close else "See /help."
    raise ConfigError(f"Unknown command /{name}. {advice}{hint}")


async def run_command(ctx: CommandContext, name: str, args: str) -> Reply:
    """Run /name. Every refusal is a ConfigError with the sentence to show."""
    plugins = ctx.runtime.plugins
    if find_command(name) is None and plugins is not None and name in plugins.commands:
        return await run_plugin_command(plugins.commands[name], args)
    if name.startswith(MCP_PREFIX):
        prompt = name.removeprefix(MCP_PREFIX)
        text = await ctx.runtime.mcp_servers.expand_prompt(ctx.session, prompt, args)
        return Reply(submit=user_message(text))
    if find_command(name) is None and (own := await _find_own_command(ctx, name)):
        return await _run_own_command(ctx, own, args)
    if find_command(name) is None and (text := await _use_skill(ctx, name, args)):
        return Reply(submit=user_message(text))
    command = require_command(name, ESCAPE_HINT)
    if command.admin_only and not ctx.is_admin:
        raise ConfigError(f"/{command.name} is for administrators.")
    if command.surfaces == "live" and ctx.surface == ONE_SHOT:
        raise ConfigError(
            f"/{command.name} works only in a conversation. A single prompt takes options instead: "
            "see `hermes chat --help`."
        )
    return await command.run(ctx, args)


async def run_plugin_command(command: PluginCommand, args: str) -> Reply:
    """Run a command of a plugin; whatever it raises is a ConfigError."""
    try:
        text = await command.run(args)
        return Reply("" if text is None else take_text(str(text)))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the code of others
        raise ConfigError(f"/{command.name} failed: {describe_exception(error)}") from None


async def has_other_command(runtime: Runtime, name: str) -> bool:
    """Whether /name is a command of a plugin or of the user, or a skill."""
    from hermes.app.commands._own import list_own_commands

    if runtime.plugins is not None and name in runtime.plugins.commands:
        return True
    home, folder = runtime.setup.home, Path(runtime.working_folder)
    if name in await asyncio.to_thread(list_own_commands, home, folder):
        return True
    known = await asyncio.to_thread(runtime.knowledge.list_skill_names, folder)
    return not known.isdisjoint(_spell_skill(name))


def _spell_skill(name: str) -> tuple[str, str]:
    """Names that a skill may have whose command is /name: messengers end a command at a hyphen."""
    name = name.removeprefix(SKILL_PREFIX)
    return name, name.replace("_", "-")


async def _use_skill(ctx: CommandContext, name: str, args: str) -> str:
    for spelling in _spell_skill(name):
        if text := await ctx.runtime.knowledge.use_skill(ctx.session, spelling, args):
            return text
    return ""


async def _find_own_command(ctx: CommandContext, name: str) -> OwnCommand | None:
    from hermes.app.commands._own import list_own_commands

    home, folder = ctx.runtime.setup.home, Path(ctx.session.transcript.meta.cwd)
    return (await asyncio.to_thread(list_own_commands, home, folder)).get(name)


async def _run_own_command(ctx: CommandContext, own: OwnCommand, args: str) -> Reply:
    """The prompt of the user's command; one of a project is shown and confirmed first, once for
    each content."""
    from hermes.config.trust_store import TrustStore, make_decision
    from hermes.core.message import user_message
    from hermes.core.untrusted_text import reveal_hidden

    home = ctx.runtime.setup.home
    if not own.is_trusted(home):
        if not ctx.is_confirmed:
            text = f"/{own.name} comes from this project ({own.file}):\n{reveal_hidden(own.body)}"
            return Reply(text, confirm="Trust this command, now and later?")
        decision = make_decision(own.digest, trusted=True)
        await asyncio.to_thread(TrustStore(home).save_decisions, {str(own.file): decision})
    return Reply(submit=user_message(own.fill_in(args)))


def refuse_agent_tool(action: str) -> None:
    """ConfigError when a tool of an agent runs this program: what people decide is not its to
    change."""
    if is_inside_agent():
        raise ConfigError(f"An agent's tool may not {action}; run this command yourself.")


def require_idle(session: Session) -> None:
    if session.is_busy:
        raise ConfigError("A turn is running. Wait for it to end, or /stop it.")


def take_confirmation(ctx: CommandContext, args: str) -> tuple[bool, list[str]]:
    """Whether the user has confirmed, and the arguments without the word that says so."""
    words = args.split()
    agreed = bool(words) and words[-1].lower() in _YES
    return ctx.is_confirmed or agreed, words[:-1] if agreed else words


@cache
def _load_command(name: str) -> Command:
    module = import_module(f"{__name__}.{_OTHER_MODULES.get(name, name)}")
    return next(c for c in vars(module).values() if isinstance(c, Command) and c.name == name)
