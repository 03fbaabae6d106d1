"""The slash commands, one registry for every surface: `commands/NAME.py` defines /NAME."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

from hermes.core.errors import ConfigError

if TYPE_CHECKING:
    from hermes.app.runtime import Runtime
    from hermes.app.session import Session
    from hermes.core.message import Message

ONE_SHOT = "oneshot"
"""The surface that runs one command, or answers one prompt, and ends."""
Surfaces: TypeAlias = Literal["all", "live"]
"""`live`: only where a conversation goes on; for what counts only as long as it does."""
_NAME = re.compile(r"/([A-Za-z][A-Za-z0-9_-]*)(?:\s+(.*))?\Z", re.DOTALL)
MEANT = " A message that begins with a slash needs two: //{}"
_SURE = frozenset({"yes", "y", "confirm"})


class CommandContext(Struct, frozen=True):
    """Where a command was given, and by whom."""

    runtime: Runtime
    session: Session
    surface: str
    admin: bool = True
    confirmed: bool = False
    """The user has seen the preview and said yes."""


class Reply(Struct, frozen=True):
    """What came of a command."""

    text: str = ""
    session: Session | None = None
    """The session to go on with from now on; None: the same."""
    confirm: str = ""
    """Nothing was done yet: this is asked first, and with a yes the same command is run again with
    `confirmed` (or with the word `yes` at its end)."""
    submit: Message | None = None
    """What is now to be answered, as if the user had sent it."""
    suspend: bool = False
    """The next message starts a fresh session."""


class Command(Struct, frozen=True):
    name: str
    help: str
    """One line."""
    run: Callable[[CommandContext, str], Awaitable[Reply]]
    """Given what stands behind the name. ConfigError for arguments that mean nothing."""
    usage: str = ""
    """The arguments, as in `[ID] [yes]`."""
    aliases: tuple[str, ...] = ()
    never_waits: bool = False
    """Is run at once, also while the agent works."""
    admin: bool = False
    """In a chat with several people: not for everybody."""
    surfaces: Surfaces = "all"
    needs_model: bool = True
    """False: it also runs where no model can be called, for want of a key for instance."""


def parse(text: str) -> tuple[str, str] | None:
    """The name and the arguments of a command; None for a message. `//` begins a message with a
    slash, and what cannot be a name (`/etc/hosts`) is one as it is."""
    found = _NAME.match(text.strip())
    return (found[1].lower(), (found[2] or "").strip()) if found else None


def message_text(text: str) -> str:
    """What was meant by a message: without the slash that kept it from being a command."""
    return text[1:] if text.startswith("//") else text


def names() -> tuple[str, ...]:
    """Of all commands, without importing any."""
    files = Path(__file__).parent.glob("[a-z]*.py")
    return tuple(sorted(file.stem.replace("_", "-") for file in files))


def find(name: str) -> Command | None:
    """By its name or an alias."""
    return _load(name) if name in names() else aliases().get(name)


@cache
def aliases() -> dict[str, Command]:
    return {alias: command for command in registry() for alias in command.aliases}


@cache
def registry() -> tuple[Command, ...]:
    return tuple(map(_load, names()))


def known(name: str, more: str = "") -> Command:
    """ConfigError with the nearest name, and `more`, when there is none."""
    command = find(name)
    if command is not None:
        return command
    from difflib import get_close_matches

    close = get_close_matches(name, [*names(), *aliases()], 1, 0.6)
    hint = f"did you mean /{close[0]}?" if close else "/help lists them."
    raise ConfigError(f"There is no command /{name}; {hint}{more}")


async def run(ctx: CommandContext, name: str, args: str) -> Reply:
    """Run /name. Every refusal is a ConfigError with the sentence to show."""
    command = known(name, MEANT.format(name))
    if command.admin and not ctx.admin:
        raise ConfigError(f"/{command.name} is for administrators.")
    if command.surfaces == "live" and ctx.surface == ONE_SHOT:
        raise ConfigError(
            f"/{command.name} counts only while a conversation goes on; for a single prompt there "
            "are options: hermes chat --help."
        )
    return await command.run(ctx, args)


def sure(ctx: CommandContext, args: str) -> tuple[bool, list[str]]:
    """Whether the user has confirmed, and the arguments without the word that says so."""
    words = args.split()
    said = bool(words) and words[-1].lower() in _SURE
    return ctx.confirmed or said, words[:-1] if said else words


@cache
def _load(name: str) -> Command:
    module = import_module(f"{__name__}.{name.replace('-', '_')}")
    command: Command = module.COMMAND
    return command
