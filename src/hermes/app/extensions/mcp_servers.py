"""The MCP servers of a process: which there are for a session, and their tools for its model."""

from __future__ import annotations

import asyncio
import shlex
from collections import Counter
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes.app.auxiliary import Sleep
from hermes.app.knowledge.context_files import find_server_files, has_server_file
from hermes.config.load import Setup, read_config
from hermes.core.errors import ConfigError, HermesError, ToolError
from hermes.core.tool import Tool
from hermes.core.untrusted_text import make_inert
from hermes.tools._services import DISCOVER_TOOLS
from hermes.tools.registry import CORE

if TYPE_CHECKING:
    from hermes.app.extensions.run_time_tools import SessionTraits
    from hermes.app.knowledge.titles import SpawnTask
    from hermes.app.session import Session
    from hermes.core.services import Services
    from hermes.mcp.server_config import ServerConfig
    from hermes.mcp.server_link import Notify, ServerLink

RESOURCES = "mcp_resources"
"""The tool that stands for all of them: a session without it has no servers."""
_OWN_FILE = "mcp.json"
_MAX_LINE = 300
_MAX_PROMPT = 100_000
"""Characters of a server's prompt, which becomes a message."""
_LINE = "MCP servers (tool_search finds their tools): "


class McpServers:
    """One per process. Nothing is imported or read before a server is configured, and no server is
    started before a search or a call needs it."""

    def __init__(self, setup: Setup, spawn: SpawnTask, sleep: Sleep) -> None:
        self._setup = setup
        self._spawn = spawn
        self._sleep = sleep
        self._section: Mapping[str, Mapping[str, Any]] = setup.config.mcp_servers
        self._links: dict[str, ServerLink] = {}
        """By their keys."""
        self._found: dict[Path, tuple[ServerConfig, ...]] = {}
        """Folder -> the enabled servers of sessions there."""
        self._lists: dict[
            tuple[str, ...], tuple[tuple[tuple[Tool[Any], ...], ...], tuple[Tool[Any], ...]]
        ] = {}
        self._client_uses: Counter[str] = Counter()
        """How many sessions use each server that a client brought along, by its key."""

    # -- the source of run-time tools ---------------------------------------------------------

    def has_servers(self, cwd: Path, added: Sequence[ServerConfig] = ()) -> bool:
        """Whether any may be configured; a look at the file system. `added`: those of the session's
        client."""
        file = self._setup.home / _OWN_FILE
        return bool(added) or bool(self._section) or file.exists() or has_server_file(cwd)

    def serves_session(self, session: SessionTraits) -> bool:
        return RESOURCES in session.tools and bool(self._list_links_of(session))

    def list_tools(self, session: SessionTraits) -> tuple[Tool[Any], ...]:
        links = self._list_links_of(session)
        lists = tuple(link.tools for link in links)
        key = tuple(link.config.key for link in links)
        known = self._lists.get(key)
        if (
            known is not None
            and len(known[0]) == len(lists)
            and all(map(_is_same, known[0], lists))
        ):
            return known[1]
        tools = tuple(tool for tools in lists for tool in tools)
        self._lists[key] = (lists, tools)
        return tools

    def list_declared(self, session: SessionTraits) -> tuple[Tool[Any], ...]:
        links = [link for link in self._list_links_of(session) if link.config.settings.declare]
        return tuple(tool for link in links for tool in link.tools if tool.toolset == CORE)

    # -- sessions -----------------------------------------------------------------------------

    def list_links(self, cwd: Path, added: Sequence[ServerConfig] = ()) -> list[ServerLink]:
        """The enabled servers of sessions in this folder, whether they run or not; `added` hide
        others of the same name."""
        if not self.has_servers(cwd, added):
            return []
        if cwd not in self._found and self.has_servers(cwd):
            servers = self.read_servers(cwd).values()
            self._found[cwd] = tuple(server for server in servers if server.settings.enabled)
        hidden = {config.name for config in added}
        own = [config for config in self._found.get(cwd, ()) if config.name not in hidden]
        return [self.get_link(config) for config in (*own, *added)]

    def _list_links_of(self, session: SessionTraits) -> list[ServerLink]:
        return self.list_links(session.cwd, session.options.servers)

    def retain_servers(self, added: Sequence[ServerConfig]) -> None:
        """Count a session that uses the servers of its client."""
        self._client_uses.update(config.key for config in added)

    async def release_servers(self, added: Sequence[ServerConfig]) -> None:
        """End the servers of a client that no session uses any more."""
        self._client_uses.subtract(config.key for config in added)
        unused = [c.key for c in added if self._client_uses[c.key] <= 0 and c.key in self._links]
        await _close_links([self._links.pop(key) for key in dict.fromkeys(unused)])

    def get_link(self, config: ServerConfig) -> ServerLink:
        """The process's only link to a server."""
        link = self._links.get(config.key)
        if link is None:
            from hermes.mcp.server_link import LinkSeams, ServerLink

            get = self._setup.secrets.get
            seams = LinkSeams(self._setup.home, get, self._spawn, self._sleep)
            link = self._links[config.key] = ServerLink(config, seams)
        return link

    def read_servers(self, cwd: Path) -> dict[str, ServerConfig]:
        """All servers by name, also disabled and broken ones: of config.yaml, of mcp.json, and of
        the project if it is trusted; the first of a name counts."""
        from hermes.mcp.server_config import ServerConfig, read_config_section, read_server_file

        found = read_config_section(self._section)
        sources: list[tuple[str, bytes, Path | None]] = []
        own = self._setup.home / _OWN_FILE
        try:
            # Looked at before: a pipe would be waited for.
            sources += [(_OWN_FILE, own.read_bytes(), None)] if own.is_file() else []
        except OSError as error:
            problem = f"{_OWN_FILE} could not be read ({error.strerror})"
            found |= {_OWN_FILE: ServerConfig(_OWN_FILE, origin=_OWN_FILE, problem=problem)}
        for file in find_server_files(self._setup.home, cwd):
            sources.append((str(file.path), file.data, file.path.parent))
        for origin, data, folder in sources:
            try:
                more = read_server_file(data, origin, folder)
            except ConfigError as error:
                more = {_OWN_FILE: ServerConfig(_OWN_FILE, origin=origin, problem=str(error))}
            found = {**more, **found}
        return dict(sorted(found.items()))

    def connect_session(self, session: Session, services: Services) -> None:
        """Give the tools of a session its servers."""
        cwd, added = Path(session.transcript.meta.cwd), session.options.servers
        if RESOURCES not in session.agent.tools or not self.list_links(cwd, added):
            return
        from hermes.mcp.resources_tool import SERVERS
        from hermes.mcp.server_link import NOTIFY

        notify = session.host.emit_notice
        services.set(NOTIFY, notify)
        services.set(
            SERVERS, lambda: {link.config.name: link for link in self.list_links(cwd, added)}
        )
        services.set(
            DISCOVER_TOOLS, lambda: self._discover_tools(self.list_links(cwd, added), notify)
        )

    def describe_servers(
        self, tools: Mapping[str, Tool[Any]], cwd: Path, added: Sequence[ServerConfig] = ()
    ) -> str:
        """The line of a new session's prompt: names and, where they are known, numbers of tools."""
        links = self.list_links(cwd, added) if RESOURCES in tools else []
        if not links:
            return ""
        words = [_describe_link(link) for link in links]
        for count in range(len(words), 0, -1):
            more = f", {len(words) - count} more" if count < len(words) else ""
            line = f"{_LINE}{', '.join(words[:count])}{more}."
            if len(line.encode()) <= _MAX_LINE:
                return line
        return f"{_LINE}{len(words)}."

    async def _discover_tools(self, links: Sequence[ServerLink], notify: Notify) -> list[str]:
        """Start the servers whose tools are not known yet; a sentence for each that failed."""
        unknown = [link for link in links if link.needs_discovery]
        failures = [link.failure for link in unknown if link.is_resting]
        waiting = [link for link in unknown if not link.is_resting]
        found = await asyncio.gather(
            *(link.connect(notify) for link in waiting), return_exceptions=True
        )
        for error in found:
            if isinstance(error, BaseException) and not isinstance(error, HermesError):
                raise error
        return [*failures, *(str(error) for error in found if isinstance(error, HermesError))]

    async def expand_prompt(self, session: Session, name: str, words: str) -> str:
        """The text of the prompt SERVER:PROMPT with arguments `key=value`."""
        server, _, prompt = name.partition(":")
        cwd = Path(session.transcript.meta.cwd)
        added = session.options.servers
        links = self.list_links(cwd, added) if RESOURCES in session.agent.tools else []
        link = next((x for x in links if x.config.name.lower() == server.lower()), None)
        if link is None:
            names = ", ".join(x.config.name for x in links) or "none"
            raise ConfigError(f"There is no MCP server {server}. Servers: {names}.")
        arguments = _parse_arguments(words)
        try:
            known = await link.read(lambda connection: connection.list_prompts())
            meant = next((p for p in known if p.lower() == prompt.lower()), None)
            if meant is None:
                names = ", ".join(known) or "none"
                raise ConfigError(f"{server} has no prompt {prompt}. Prompts: {names}.")
            text = await link.read(lambda connection: connection.get_prompt(meant, arguments))
        except ToolError as error:
            raise ConfigError(str(error)) from None
        if len(text) > _MAX_PROMPT:
            raise ConfigError(
                f"{server} answered {prompt} with {len(text):,} characters; at most "
                f"{_MAX_PROMPT:,} can be sent. Nothing was sent."
            )
        session.host.absorb_taint(frozenset({"untrusted"}))
        return make_inert(text)

    async def reload(self) -> list[str]:
        """Read the configuration again; servers that changed or are gone are stopped. What changed,
        in words."""
        self._section = read_config(self._setup.home).mcp_servers
        mine = {key: link for key, link in self._links.items() if link.config.client}
        old = {key: link for key, link in self._links.items() if key not in mine}
        self._links = mine
        folders = list(self._found)
        self._found.clear()
        self._lists.clear()
        for folder in folders:
            for config in self.read_servers(folder).values():
                link = old.get(config.key)
                if link and link.config == config and not link.agreement.describe_changes():
                    self._links[config.key] = old.pop(config.key)
        await _close_links(old.values())
        return sorted(link.config.name for link in old.values())

    async def refresh(self) -> None:
        """Reload if config.yaml no longer names the same servers."""
        section = (await asyncio.to_thread(read_config, self._setup.home)).mcp_servers
        if section != self._section:
            await self.reload()

    async def close(self) -> None:
        """End every server that was started."""
        await _close_links(self._links.values())


@asynccontextmanager
async def open_servers(setup: Setup) -> AsyncIterator[McpServers]:
    """The servers for a command that needs no session; those it starts end with the block."""
    tasks: set[asyncio.Task[None]] = set()

    def spawn(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return task

    servers = McpServers(setup, spawn, asyncio.sleep)
    try:
        yield servers
    finally:
        await servers.close()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


async def log_in_to_server(
    setup: Setup,
    config: ServerConfig,
    show: Callable[[str], None],
    paste: Callable[[], Awaitable[str]] | None,
) -> None:
    """Log in with a browser and store the tokens. `show` gets the address to open, `paste` returns
    the one the browser ended up at."""
    from hermes.mcp.server_link import load_connections

    module = await load_connections()
    config = config.expand_variables(setup.secrets.get)
    login = module.BrowserLogin(show, paste)
    async with (
        await login.listen(config.settings.oauth.redirect_port),
        module.open_connection(config, setup.home, module.ConnectionEvents(_ignore), login) as (
            connection,
            _,
        ),
    ):
        await connection.list_tools()


def _ignore() -> None:
    """Changes do not matter to a login."""


async def _close_links(links: Iterable[ServerLink]) -> None:
    await asyncio.gather(*(link.close() for link in links))


def _describe_link(link: ServerLink) -> str:
    try:
        count = link.agreement.count_tools()
    except ConfigError:
        count = None
    return link.config.name if count is None else f"{link.config.name} ({count})"


def _is_same(one: object, other: object) -> bool:
    return one is other


def _parse_arguments(words: str) -> dict[str, str]:
    try:
        pairs = [word.partition("=") for word in shlex.split(words)]
    except ValueError:
        raise ConfigError("Close the quotes in the arguments of the prompt.") from None
    if bad := next((key for key, equals, _ in pairs if not equals), ""):
        raise ConfigError(f"Write the arguments of a prompt as key=value, not {bad}.")
    return {key: value for key, _, value in pairs}
