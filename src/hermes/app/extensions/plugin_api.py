"""What a plugin is given: everything it may register, its settings, its secrets, its folder."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

from msgspec import Struct

from hermes.app.extensions.plugin_memory import PluginMemory
from hermes.app.extensions.plugin_thread import PluginThread
from hermes.app.extensions.plugin_tool import PluginTool, make_plugin_tool
from hermes.config.paths import make_private_folder
from hermes.core.errors import ConfigError
from hermes.core.hooks import HOOK_KEYWORDS, UNCALLED_HOOKS
from hermes.core.tool import Risk, ToolContext
from hermes.tools.registry import list_tool_names

if TYPE_CHECKING:
    from hermes.llm.provider_spec import ProviderSpec
    from hermes.skills.skill import Skill

log = logging.getLogger(__name__)

_TOOL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}\Z")
_PLATFORM_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}\Z")
_COMMANDS_FOLDER = Path(__file__).parents[1] / "commands"
_COMMAND_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}\Z")


class PluginCommand(Struct, frozen=True):
    """A slash command of a plugin."""

    name: str
    help: str
    usage: str
    run: Callable[[str], Awaitable[Any]]
    """Takes what follows the name."""


class PluginRegistrations:
    """What one plugin has registered; used only once its `register` has returned."""

    def __init__(self) -> None:
        self.tools: list[PluginTool] = []
        self.commands: list[PluginCommand] = []
        self.hooks: list[tuple[str, Callable[..., Any]]] = []
        self.skills: list[Skill] = []
        self.providers: list[ProviderSpec] = []
        self.platforms: list[Any] = []
        self.memories: dict[str, PluginMemory] = {}

    def list_names(self) -> list[str]:
        """What is added, each with its kind."""
        return [
            *(f"tool {tool.name}" for tool in self.tools),
            *(f"command /{command.name}" for command in self.commands),
            *(f"hook {name}" for name in dict.fromkeys(name for name, _ in self.hooks)),
            *(f"skill {skill.name}" for skill in self.skills),
            *(f"provider {row.name}" for row in self.providers),
            *(f"messenger {spec.name}" for spec in self.platforms),
            *(f"memory provider {name}" for name in self.memories),
        ]


class PluginSurroundings(Struct, frozen=True):
    """What a plugin may use of the program around it."""

    settings: Mapping[str, Any]
    secret_names: Collection[str]
    find_secret: Callable[[str], str | None]
    data_folder: Path
    ask_model: Callable[[str], Awaitable[str]]
    taken_tools: Collection[str]
    """Names of tools of the plugins before it."""
    taken_commands: Collection[str]
    taken_memories: Collection[str]


class PluginApi:
    """The argument of a plugin's `register`."""

    def __init__(self, name: str, thread: PluginThread, around: PluginSurroundings) -> None:
        self.name = name
        self.registered = PluginRegistrations()
        self._thread = thread
        self._around = around

    @property
    def config(self) -> Mapping[str, Any]:
        """Its settings: plugins.entries.NAME."""
        return self._around.settings

    @property
    def data(self) -> Path:
        """A private folder for its own files."""
        make_private_folder(self._around.data_folder)
        return self._around.data_folder

    def secret(self, name: str) -> str | None:
        """A variable of the environment or .env that its plugin.yaml names in requires_env."""
        if name not in self._around.secret_names:
            raise ConfigError(f"{name} is not in requires_env of {self.name}.")
        return self._around.find_secret(name)

    async def ask_model(self, prompt: str) -> str:
        """The model's answer to a prompt outside every conversation."""
        return await self._around.ask_model(prompt)

    def register_tool(  # noqa: PLR0913 - as in the original
        self,
        name: str,
        toolset: str,
        schema: Mapping[str, Any],
        handler: Callable[..., Any],
        *,
        description: str = "",
        risk: str = "network",
        check_fn: Callable[[], Any] | None = None,
        requires_env: Collection[str] | None = None,
        is_async: bool = False,
        emoji: str = "",
    ) -> None:
        """Offer a tool. `handler(args, **kw)` returns text. `check_fn`: whether it can be used
        here; without a variable of `requires_env` it cannot."""
        if not _TOOL_NAME.match(name):
            raise ValueError(f"{name!r} cannot be the name of a tool")
        own = {tool.name for tool in self.registered.tools}
        if name in list_tool_names() or name in own or name in self._around.taken_tools:
            raise ValueError(f"there is a tool {name} already")
        if risk not in get_args(Risk):
            raise ValueError(f"risk must be one of {', '.join(get_args(Risk))}, not {risk!r}")
        if any(not self._around.find_secret(variable) for variable in requires_env or ()):
            return
        if check_fn is not None and not check_fn():
            return

        async def call(args: dict[str, Any], ctx: ToolContext) -> Any:
            session = ctx.session_id
            return await self._thread.call(handler, args, session_id=session, task_id=session)

        made = make_plugin_tool(
            name,
            toolset or self.name,
            schema,
            call,
            description=description,
            risk=cast("Risk", risk),
        )
        self.registered.tools.append(made)

    def register_command(
        self, name: str, handler: Callable[..., Any], description: str = "", args_hint: str = ""
    ) -> None:
        """Offer /name. `handler(raw_args)` returns what to show, or None."""
        name = name.lstrip("/").lower()
        if not _COMMAND_NAME.match(name):
            raise ValueError(f"{name!r} cannot be the name of a command")
        own = {command.name for command in self.registered.commands}
        if name in own or name in self._around.taken_commands or _is_builtin_command(name):
            raise ValueError(f"there is a command /{name} already")

        async def run(args: str) -> Any:
            return await self._thread.call(handler, args)

        self.registered.commands.append(PluginCommand(name, description, args_hint, run))

    def register_hook(self, name: str, callback: Callable[..., Any]) -> None:
        if name not in HOOK_KEYWORDS and name not in UNCALLED_HOOKS:
            raise ValueError(f"there is no hook {name}")
        if not callable(callback):
            raise TypeError(f"the callback of {name} is not a function")
        if name in UNCALLED_HOOKS:
            log.info("plugin %s: nothing calls the hook %s", self.name, name)
        else:
            self.registered.hooks.append((name, _give_task_id(callback)))

    def register_skill(self, name: str, path: str | Path) -> None:
        """Offer the skill in a folder, as `plugin:name`."""
        from hermes.skills.skill import read_plugin_skill

        folder = Path(path)
        folder = folder.parent if folder.name == "SKILL.md" else folder
        self.registered.skills.append(read_plugin_skill(folder, f"{self.name}:{name}"))

    def register_provider(self, row: ProviderSpec) -> None:
        """Offer a model provider; a built-in one cannot be replaced."""
        from hermes.llm.providers import find_provider

        if find_provider(row.name) is not None:
            raise ValueError(f"there is a provider {row.name} already")
        self.registered.providers.append(row)

    def register_platform(self, spec: Any) -> None:
        """Offer a messenger to the gateway: a `hermes.gateway.adapter.PlatformSpec`."""
        if not _PLATFORM_NAME.match(str(getattr(spec, "name", ""))):
            raise ValueError(f"{getattr(spec, 'name', spec)!r} cannot be the name of a platform")
        self.registered.platforms.append(spec)

    def register_memory_provider(self, provider: Any) -> None:
        """Offer a place where memory is kept as well, chosen by `memory.provider: NAME`. Its name
        is `provider.name`, else the plugin's."""
        name = str(getattr(provider, "name", "") or self.name)
        if name in self.registered.memories or name in self._around.taken_memories:
            raise ValueError(f"there is a memory provider {name} already")
        self.registered.memories[name] = PluginMemory(provider, self._thread)


def _give_task_id(callback: Callable[..., Any]) -> Callable[..., Any]:
    """The callback, with the session's id as its `task_id` if it has such a parameter, as the
    original's examples do."""
    try:
        parameters = inspect.signature(callback).parameters
    except (TypeError, ValueError):  # not every callable has a signature
        return callback
    if "task_id" not in parameters:
        return callback
    return lambda **keywords: callback(task_id=keywords["session_id"], **keywords)


def _is_builtin_command(name: str) -> bool:
    """Whether /name has a module; what is an alias of one takes precedence anyway."""
    return (_COMMANDS_FOLDER / f"{name}.py").is_file()
