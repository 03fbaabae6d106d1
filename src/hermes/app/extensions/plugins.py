"""Loads the enabled plugins, each on its own: one that fails leaves nothing behind."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct

from hermes.app.extensions.plugin_api import PluginApi, PluginCommand, PluginSurroundings
from hermes.app.extensions.plugin_memory import PluginMemory
from hermes.app.extensions.plugin_output import THREAD_PREFIX, PluginOutput
from hermes.app.extensions.plugin_sources import (
    PluginSource,
    list_local_plugins,
    list_packaged_plugins,
)
from hermes.app.extensions.plugin_thread import PluginThread
from hermes.app.extensions.plugin_tool import PluginTool
from hermes.config.load import Setup
from hermes.config.paths import plugins_folder
from hermes.core.errors import ConfigError
from hermes.core.hooks import Hook, HookOwner, HookTable
from hermes.core.text import describe_exception
from hermes.memory.provider import HTTP
from hermes.skills.skill import Skill

log = logging.getLogger(__name__)

LOAD_SECONDS = 10.0
"""How long the import and `register` of a plugin may take."""
_DATA_FOLDER = ".data"
_NOT_LOADED = "it could not be loaded"


class LoadedPlugin(Struct, frozen=True):
    name: str
    owner: HookOwner
    source: PluginSource | None = None
    """None: there is no such plugin."""
    problem: str = ""
    """Why it was not loaded; empty: it was."""
    api: PluginApi | None = None

    @property
    def state(self) -> str:
        if self.problem:
            return f"failed: {self.problem}"
        if self.owner.is_off:
            return f"failed: switched off after {self.owner.faults} faults: {self.owner.last_fault}"
        return "enabled"


class Plugins:
    """The plugins of a process and what they have registered."""

    def __init__(self, setup: Setup, ask_model: Callable[[str], Awaitable[str]]) -> None:
        self._setup = setup
        self._ask_model = ask_model
        self._threads: list[PluginThread] = []
        self._removals: list[Callable[[], None]] = []
        self._output: PluginOutput | None = None
        self.loaded: list[LoadedPlugin] = []
        self.tools: dict[str, PluginTool] = {}
        self.commands: dict[str, PluginCommand] = {}
        self.skills: list[Skill] = []
        self.platforms: dict[str, Any] = {}
        self.memories: dict[str, PluginMemory] = {}

    async def load_all(self, hooks: HookTable) -> list[str]:
        """Load every enabled plugin; sentences about those that could not be loaded."""
        names = list_enabled_names(self._setup)
        found = await asyncio.to_thread(list_local_plugins, self._setup.home) if names else {}
        if any(name not in found for name in names):
            found = {**await asyncio.to_thread(list_packaged_plugins), **found}
        self._output = PluginOutput() if names else None
        for name in names:
            plugin = await self._load_plugin(name, found.get(name))
            self.loaded.append(plugin)
            self._adopt_plugin(plugin, hooks)
        return [f"{p.name}: not loaded: {p.problem}" for p in self.loaded if p.problem]

    def close(self) -> None:
        for remove in self._removals:
            remove()
        for thread in self._threads:
            thread.close()
        if self._output is not None:
            self._output.close()

    async def _load_plugin(self, name: str, source: PluginSource | None) -> LoadedPlugin:
        settings = self._setup.config.plugins.entries.get(name, {})
        owner = HookOwner(f"Plugin {name}", required=settings.get("required") is True)
        failed = partial(LoadedPlugin, name, owner, source)
        if source is None:
            return failed("there is no such plugin")
        if source.problem:
            return failed(source.problem)
        secrets = self._setup.secrets
        if missing := [v for v in source.requires_env if not secrets.get(v)]:
            return failed(f"{missing[0]} is not set (environment or .env)")
        thread = PluginThread(f"{THREAD_PREFIX}{name}")
        self._threads.append(thread)
        api = PluginApi(name, thread, self._describe_surroundings(name, source))
        try:
            async with asyncio.timeout(LOAD_SECONDS):
                await thread.run_function(partial(_register, source, api))
        except TimeoutError:
            return failed(f"it took more than {LOAD_SECONDS:g} s")
        except Exception as error:
            log.info("plugin %s was not loaded", name, exc_info=error)
            return failed(describe_exception(error))
        return LoadedPlugin(name, owner, source, api=api)

    def _describe_surroundings(self, name: str, source: PluginSource) -> PluginSurroundings:
        setup, loop = self._setup, asyncio.get_running_loop()

        async def ask_model(prompt: str) -> str:
            # It is called on the plugin's own loop.
            work = asyncio.run_coroutine_threadsafe(_await_answer(self._ask_model(prompt)), loop)
            return await asyncio.wrap_future(work)

        return PluginSurroundings(
            setup.config.plugins.entries.get(name, {}),
            source.requires_env,
            setup.secrets.get,
            plugins_folder(setup.home) / _DATA_FOLDER / name,
            ask_model,
            frozenset(self.tools),
            frozenset(self.commands),
            frozenset({*self.memories, HTTP}),
        )

    def _adopt_plugin(self, plugin: LoadedPlugin, hooks: HookTable) -> None:
        """Make what a plugin has registered take effect."""
        seconds = self._setup.config.plugins.hook_timeout_seconds
        owner = plugin.owner
        if plugin.api is None:
            if owner.required:
                owner.last_fault = plugin.problem
                hooks.add_hook("pre_tool_call", Hook(owner, _refuse_call, seconds))
            return
        registered, thread = plugin.api.registered, self._threads[-1]
        self.tools.update({tool.name: tool for tool in registered.tools})
        self.commands.update({command.name: command for command in registered.commands})
        self.skills += registered.skills
        self.platforms.update({spec.name: spec for spec in registered.platforms})
        self.memories.update(registered.memories)
        for row in registered.providers:
            from hermes.llm.providers import register_provider

            self._removals.append(register_provider(row))
        for name, callback in registered.hooks:
            call = partial(_call_with_keywords, thread, callback)
            hooks.add_hook(name, Hook(owner, call, seconds))


async def try_loading(setup: Setup, hooks: HookTable | None = None) -> list[LoadedPlugin]:
    """The enabled plugins, loaded to see whether they can be, and unloaded again."""

    async def refuse_question(prompt: str) -> str:
        raise ConfigError("There is no conversation.")

    plugins = Plugins(setup, refuse_question)
    try:
        await plugins.load_all(HookTable() if hooks is None else hooks)
    finally:
        plugins.close()
    return plugins.loaded


def list_enabled_names(setup: Setup) -> list[str]:
    section = setup.config.plugins
    names = dict.fromkeys(section.enabled)
    return [name for name in names if name not in section.disabled]


def describe_rows(
    setup: Setup, plugins: Iterable[LoadedPlugin], found: dict[str, PluginSource]
) -> list[dict[str, str]]:
    """Every plugin that is known here: its name, version, state, description, origin and what it
    adds."""
    loaded = {plugin.name: plugin for plugin in plugins}
    disabled = setup.config.plugins.disabled
    rows = []
    for name in sorted({*found, *loaded, *disabled}):
        source, plugin = found.get(name), loaded.get(name)
        state = plugin.state if plugin else "off"
        rows.append(
            {
                "name": name,
                "state": "disabled" if name in disabled else state,
                "version": source.version if source else "",
                "description": source.description if source else "",
                "origin": source.origin if source else "",
                "adds": ", ".join(plugin.api.registered.list_names())
                if plugin and plugin.api
                else "",
            }
        )
    return rows


def _register(source: PluginSource, api: PluginApi) -> None:
    module = source.import_module()
    register = getattr(module, "register", module if callable(module) else None)
    if register is None:
        raise TypeError("it has no function register(api)")
    register(api)


async def _call_with_keywords(
    thread: PluginThread, callback: Callable[..., Any], keywords: dict[str, Any], cwd: Path
) -> Any:
    return await thread.call(callback, **keywords)


async def _refuse_call(keywords: dict[str, Any], cwd: Path) -> Any:
    raise RuntimeError(_NOT_LOADED)


async def _await_answer(answer: Awaitable[str]) -> str:
    return await answer
