"""The composition root: builds what the sessions of a process share, and owns every task."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from hermes.agent.system_prompt import PromptExtras
from hermes.agent.turn import Agent
from hermes.app.agents import Agents, Options
from hermes.app.approvals import Rulebook, Safety
from hermes.app.approvals.egress_proxy import SharedEgressProxy
from hermes.app.auxiliary import AuxiliaryQuestions, Sleep
from hermes.app.backends import Backends
from hermes.app.background_commands import BackgroundCommands
from hermes.app.background_prompts import BackgroundPrompts, ScheduledPrompts
from hermes.app.extensions.delegations import Delegations
from hermes.app.extensions.mcp_servers import RESOURCES, McpServers
from hermes.app.extensions.run_time_tools import (
    RunTimeTools,
    SessionTools,
    SessionTraits,
    extend_agent,
)
from hermes.app.knowledge.session_knowledge import Knowledge
from hermes.app.knowledge.titles import TITLE_JOB, Titles
from hermes.app.meter import Meter
from hermes.app.session import Session
from hermes.app.session_host import SessionSettings, SharedServices
from hermes.app.session_records import (
    create_session_meta,
    describe_sandbox,
    locate_outputs,
    require_session,
    store_branch,
)
from hermes.app.transcript import ClientHistory, Transcript
from hermes.config import paths
from hermes.config.env import build_child_env
from hermes.config.instances import SessionClaims
from hermes.config.load import Setup
from hermes.core.errors import ConfigError
from hermes.core.escalation import PACKAGES
from hermes.core.history import History
from hermes.core.hooks import HookTable
from hermes.core.ledger import Account
from hermes.core.lifecycle import hold_closers, release_closers
from hermes.core.message import Message, user_message
from hermes.core.services import Services
from hermes.core.store import SUBAGENT, SessionMeta, Store
from hermes.core.tool import Workspace
from hermes.core.untrusted_text import wrapper_mark
from hermes.llm.http.transport import EmbeddedEngines, Transport
from hermes.store.sqlite import SqliteStore
from hermes.tools._services import (
    BACKEND,
    BROWSER_SETTINGS,
    CHATS,
    OPEN_SCHEDULE,
    OPEN_WEB,
    PROCESSES,
    REFUSED_HOSTS,
    STORE,
    ChatAccess,
    RefusedHost,
)
from hermes.tools.registry import list_tool_names
from hermes.tools.todo import TODO_LIST, restore_todos

if TYPE_CHECKING:
    from hermes.app.extensions.plugins import Plugins
    from hermes.app.live.session_tape import SessionTape, StoredAgent
    from hermes.app.live.trace_export import TraceExporter
    from hermes.memory.scope import MemoryScope
    from hermes.net.egress_proxy import Refusal
    from hermes.net.web_access import WebAccess

log = logging.getLogger(__name__)
_MAX_REFUSED_HOSTS = 100
_SOURCES_WITHOUT_NOTES = frozenset({"batch"})
_CHECKED_SIZE = 16 * 2**20
"""Bytes of a database that is checked before a conversation begins, in about 30 ms."""


def _open_engines() -> EmbeddedEngines:
    from hermes.llm.local.engine import LocalEngines

    return LocalEngines()


def _make_recorder(store: Store, *, records: bool) -> Callable[[Options], SessionTape | None]:
    """Makes the recorders of sessions; `records`: of all, not only of those that ask for it."""
    agents: dict[int, StoredAgent] = {}

    def new_tape(options: Options) -> SessionTape | None:
        if not (records or options.record):
            return None
        from hermes.app.live.session_tape import SessionTape

        return SessionTape(store, agents)

    return new_tape


class Runtime:
    """Everything a process shares between its sessions. Constructing one makes no request."""

    hidden: tuple[Path, ...] = ()
    """Real paths that no tool of a session may read."""

    def __init__(self, setup: Setup, store: Store, transport: Transport, sleep: Sleep) -> None:
        self.setup = setup
        self.store = store
        self.transport = transport
        self._child_env = build_child_env(setup.secrets)
        self._refused_hosts: deque[RefusedHost] = deque(maxlen=_MAX_REFUSED_HOSTS)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._said_texts: set[str] = set()
        self._web: WebAccess | None = None
        self._egress: SharedEgressProxy | None = None
        self.backends = Backends(setup, self._child_env)
        self.agents = Agents(setup, transport, sleep, self.backends)
        self.knowledge = Knowledge(setup, store, self.spawn_task)
        self.background_commands = BackgroundCommands(
            setup.home, keep=setup.config.terminal.keep_background
        )
        self.background_prompts = BackgroundPrompts(self.spawn_task)
        self.scheduled_prompts = ScheduledPrompts(
            setup,
            store,
            self.open_session,
            self.knowledge.use_skill_unattended,
            self.background_commands,
        )
        self.mcp_servers = McpServers(setup, self.spawn_task, sleep)
        self.run_time_tools: list[RunTimeTools] = [self.mcp_servers]
        """Where sessions get tools from that no module defines."""
        self.chats: ChatAccess | None = None
        """What `send_message` reaches; None: this process serves no messenger."""
        self.claims = SessionClaims(setup.home)
        self.plugins: Plugins | None = None
        """None: no plugin is enabled."""
        self.delegations = Delegations(
            setup.config.delegation,
            store,
            self.open_child_session,
            self.background_commands,
            self.spawn_task,
        )
        self.traces: TraceExporter | None = None
        """Where the spans of turns go; None: nowhere."""
        self.on_session: Callable[[Session], None] = lambda session: None
        """Called with every session that is opened."""
        self.services = SharedServices(
            store=store,
            budget=setup.config.budget,
            agents=self.agents,
            auxiliary=AuxiliaryQuestions(self.agents.auxiliary_models, self.agents.learned, sleep),
            rulebook=Rulebook(setup.home, setup.config.approvals.rules),
            backends=self.backends,
            background_commands=self.background_commands,
            titles=Titles(store, self.spawn_task) if TITLE_JOB in setup.config.auxiliary else None,
            sleep=sleep,
            say_once=self.say_once,
            spawn_task=self.spawn_task,
            hooks=HookTable(),
            notices=[],
            new_tape=_make_recorder(store, records=setup.config.trace.record == "wire"),
        )

    @classmethod
    @asynccontextmanager
    async def open(
        cls, setup: Setup, *, store: Store | None = None, sleep: Sleep = asyncio.sleep
    ) -> AsyncIterator[Runtime]:
        """Open a runtime for a `with` block. A given `store` is already open and stays open."""
        own_store = None
        if store is None:
            file = paths.database_file(setup.home)
            store = own_store = SqliteStore(file, checked_size=_CHECKED_SIZE)
            own_store.open()  # on its own thread, while the rest is built and imported
        transport = Transport(_open_engines)
        runtime = cls(setup, store, transport, sleep)
        hold_closers()
        try:
            if setup.config.plugins.enabled or setup.config.hooks:
                await runtime._load_extensions()
            if setup.config.trace.otlp:
                from hermes.app.live.trace_export import TraceExporter

                runtime.traces = TraceExporter(setup.config.trace)
            yield runtime
        finally:
            await runtime._shut_down()
            await transport.close()
            if own_store is not None:
                await own_store.close()

    async def _load_extensions(self) -> None:
        """Load the plugins and shell hooks that the operator has enabled."""
        from hermes.app.extensions.plugin_tool import PluginTools
        from hermes.app.extensions.plugins import Plugins
        from hermes.app.extensions.shell_hooks import add_shell_hooks

        hooks = self.services.hooks
        self.plugins = Plugins(self.setup, self._answer_plugin)
        self.services.notices.extend(await self.plugins.load_all(hooks))
        tools = PluginTools(self.plugins.tools.values(), self.setup.config.tools)
        self.run_time_tools.append(tools)
        self.agents.run_time_words = tools.words
        self.knowledge.plugin_skills = tuple(self.plugins.skills)
        self.knowledge.plugin_memories = self.plugins.memories
        add_shell_hooks(hooks, self.setup.config.hooks, self._child_env)

    async def _answer_plugin(self, prompt: str) -> str:
        """Answer a question of a plugin, outside every conversation."""
        services, account = self.services, Account(purpose="auxiliary/plugin")
        meter = Meter(self.store, services.budget, account, lambda event: None, self.say_once)
        agent = self.agents.get_agent(Options(), "cli")
        return await services.auxiliary.ask_model(
            "plugin", user_message(prompt), main=agent, meter=meter
        )

    @property
    def working_folder(self) -> Path:
        """The folder of sessions that are not given one."""
        return paths.find_working_folder(self.setup.config.terminal.cwd)

    async def open_session(
        self,
        *,
        resume: str = "",
        source: str = "cli",
        key: str = "",
        cwd: Path | None = None,
        options: Options | None = None,
        needs_model: bool = True,
    ) -> Session:
        """A new session, or the stored session `resume` with its history; if that one was
        compressed, the one that continues it. A stored session works in its own folder unless
        `cwd` names another. Without `needs_model` it opens even if there is no model to call."""
        found = await require_session(self.store, resume) if resume else None
        owner = (found.source, found.key) if found else (source, key)
        options = options or Options()
        scope = self.knowledge.find_scope(*owner, options.user)
        cwd = cwd or (Path(found.cwd) if found else Path.cwd())
        settings = await self._resolve_settings(
            options, source, scope, cwd, needs_model=needs_model
        )
        if found is None:
            notes = source not in _SOURCES_WITHOUT_NOTES
            meta = await self._create_meta(settings, cwd, owner, scope, notes=notes)
            return await self._build_session(meta, cwd, settings)
        messages = await self.store.sessions.load_messages(found.id)
        history = History(messages, mark=wrapper_mark(found.id))
        return await self._build_session(found, cwd, settings, history)

    async def reopen_session(self, session: Session, resume: str = "") -> Session:
        """A stored session, or a new one in the same folder, for the same user."""
        meta, options = session.transcript.meta, session.options
        folder = None if resume else Path(meta.cwd)
        other = await self.open_session(
            resume=resume, source=meta.source, key=meta.key, cwd=folder, options=options
        )
        new, old = other.interactions, session.interactions
        new.user_present, new.busy_mode, new.verbose = old.user_present, old.busy_mode, old.verbose
        return other

    async def branch_session(self, session: Session, upto: int, title: str = "") -> Session:
        """A new session that begins with the first `upto` messages of this one."""
        old = session.transcript
        messages = old.history.messages[:upto]
        branch = await store_branch(self.store, old.meta, old.taint, messages, title)
        return await self.reopen_session(session, branch)

    async def copy_session(
        self, session_id: str, options: Options, folder: Path | None = None
    ) -> str:
        """Store a copy of a session to continue with; returns its id. In another `folder` it gets
        the system prompt of that folder."""
        found = await require_session(self.store, session_id)
        if folder is not None:
            owner = (found.source, found.key)
            scope = self.knowledge.find_scope(*owner, options.user)
            settings = await self._resolve_settings(options, found.source, scope, folder)
            fresh = await self._create_meta(settings, folder, owner, scope)
            found = structs.replace(found, cwd=str(folder), system=fresh.system)
        messages = await self.store.sessions.load_messages(found.id)
        return await store_branch(self.store, found, found.taint, messages)

    async def open_client_session(  # noqa: PLR0913 - one keyword per trait of a session
        self,
        session_id: str,
        *,
        past: tuple[Message, ...] = (),
        persistent: bool = True,
        source: str,
        key: str = "",
        cwd: Path | None = None,
        options: Options | None = None,
    ) -> Session:
        """A session with the id and the history that a client sends; new messages are added to the
        stored session of that id."""
        scope = self.knowledge.find_scope(source, key, "")
        cwd = cwd or self.working_folder
        settings = await self._resolve_settings(options, source, scope, cwd)
        known = await self.store.sessions.get_meta(session_id) if persistent else None
        meta = known or await self._create_meta(settings, cwd, (source, key), scope, notes=False)
        session = await self._build_session(structs.replace(meta, id=session_id), cwd, settings)
        history = ClientHistory(self.store, session_id, past, persistent=persistent)
        await session.transcript.adopt_history(history, stored=known is not None)
        session.host.compress_late()
        return session

    async def open_child_session(
        self, parent: Session, options: Options, absent: frozenset[str]
    ) -> Session:
        """A new session that works for another: in its folder, with its tools or fewer, on its
        budget, and with what it has read."""
        meta, cwd = parent.transcript.meta, parent.host.workspace.cwd
        absent |= list_tool_names() - set(parent.agent.tools)
        agent = self.agents.get_agent(options, meta.source, absent)
        traits = SessionTraits(options, meta.source, cwd, agent.tools)
        absent |= set(SessionTools(traits, self.run_time_tools)) - set(parent.agent.tools)
        agent = self._add_run_time_tools(agent, options, meta.source, cwd, absent)
        settings = SessionSettings(options, agent, self._resolve_safety(options, agent))
        made = await self._create_meta(settings, cwd, (SUBAGENT, meta.key), None, plain=True)
        taint = parent.transcript.taint
        child = await self._build_session(
            structs.replace(made, parent=parent.id, taint=taint), cwd, settings
        )
        child.host.account = structs.replace(
            parent.host.account, session=child.id, purpose=SUBAGENT
        )
        child.host.budget = parent.host.budget
        return child

    def adapt_session(self, session: Session, options: Options) -> None:
        """Continue the session with another model or other limits."""
        meta = session.transcript.meta
        scope = self.knowledge.find_scope(meta.source, meta.key, options.user)
        absent = self._list_absent_tools(scope, Path(meta.cwd), options)
        agent = self.agents.get_agent(options, meta.source, absent)
        agent = self._add_run_time_tools(agent, options, meta.source, Path(meta.cwd))
        session.apply_settings(
            SessionSettings(options, agent, self._resolve_safety(options, agent))
        )
        session.transcript.history.sent.clear()  # the user asked for a different prefix

    def say_once(self, text: str) -> str:
        """The text, or nothing if this process has already said it."""
        if text in self._said_texts:
            return ""
        self._said_texts.add(text)
        return text

    def spawn_task(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Start a task that is kept alive here, cancelled at shutdown, and logged if it fails."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._end_task)
        return task

    def _end_task(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s failed", task.get_name(), exc_info=error)

    async def _shut_down(self) -> None:
        if self.services.titles is not None:
            await self.services.titles.wait_unfinished()
        await self.knowledge.wait_unfinished()
        await self.mcp_servers.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await release_closers()
        if self.traces is not None:
            await self.traces.close()
        if self.plugins is not None:
            self.plugins.close()
        await self.background_commands.close()
        await self.backends.close()
        self.claims.release_all()
        if self._egress is not None:
            await self._egress.close()

    async def _resolve_settings(
        self,
        options: Options | None,
        source: str,
        scope: MemoryScope | None,
        cwd: Path,
        *,
        needs_model: bool = True,
    ) -> SessionSettings:
        options = await self.agents.choose_model(options or Options())
        absent = self._list_absent_tools(scope, cwd, options)
        try:
            agent = self.agents.get_agent(options, source, absent)
        except ConfigError:
            if needs_model:
                raise
            agent = self.agents.build_agent_without_model(options, source, absent)
        agent = self._add_run_time_tools(agent, options, source, cwd)
        return SessionSettings(options, agent, self._resolve_safety(options, agent))

    def _list_absent_tools(
        self, scope: MemoryScope | None, cwd: Path, options: Options
    ) -> frozenset[str]:
        """Tools that a session cannot have."""
        absent = self.knowledge.list_absent_tools(scope)
        has_servers = self.mcp_servers.has_servers(cwd, options.servers)
        return absent if has_servers else absent | {RESOURCES}

    def _add_run_time_tools(
        self,
        agent: Agent,
        options: Options,
        source: str,
        cwd: Path,
        absent: frozenset[str] = frozenset(),
    ) -> Agent:
        session = SessionTraits(options, source, cwd, agent.tools, absent)
        return extend_agent(agent, session, self.run_time_tools)

    async def _create_meta(
        self,
        settings: SessionSettings,
        cwd: Path,
        owner: tuple[str, str],
        scope: MemoryScope | None,
        *,
        notes: bool = True,
        plain: bool = False,
    ) -> SessionMeta:
        """`plain`: without memory and skills."""
        agent, safety = settings.agent, settings.safety
        place = self.backends.description or await describe_sandbox(
            safety, agent.tools, paths.cache_folder(self.setup.home)
        )
        extras = PromptExtras(place)
        if not plain:
            extras = await self.knowledge.build_extras(place, agent, cwd, scope)
        if not plain and not agent.small:
            added = settings.options.servers
            servers = self.mcp_servers.describe_servers(agent.tools, cwd, added)
            extras = structs.replace(extras, servers=servers)
        return create_session_meta(self.setup, agent, cwd, owner, extras=extras, notes=notes)

    async def _build_session(
        self,
        meta: SessionMeta,
        cwd: Path,
        settings: SessionSettings,
        history: History | None = None,
    ) -> Session:
        config, safety = self.setup.config, settings.safety
        workspace = Workspace(
            cwd,
            self.setup.home,
            await locate_outputs(self.store, self.setup.home, meta),
            self._child_env,
            sandbox=safety.mode,
            sandbox_required=safety.required,
            terminal_timeout=config.terminal.timeout,
            egress=self._open_egress,
            hosts=safety.network,
            hidden=self.hidden,
            walled=safety.walled,
        )
        services = Services()
        services.set(STORE, self.store)
        services.set(OPEN_WEB, self._open_web)
        services.set(REFUSED_HOSTS, self._refused_hosts)
        services.set(PROCESSES, self.background_commands.grant_access(meta))
        services.set(BROWSER_SETTINGS, config.browser)
        if self.chats is not None:
            services.set(CHATS, self.chats)
        if backend := self.backends.get_backend(meta.id, cwd, safety.mode):
            services.set(BACKEND, backend)
        if history is not None:
            services.set(TODO_LIST, restore_todos(history.messages))
        transcript = Transcript(self.store, self.background_commands, meta, history)
        user = settings.options.user
        services.set(
            OPEN_SCHEDULE, lambda: self.scheduled_prompts.open_schedule(transcript, cwd, user)
        )
        session = Session(self.services, settings, transcript, workspace, services)
        self.delegations.connect_session(session, services, is_resumed=history is not None)
        scope = self.knowledge.find_scope(meta.source, meta.key, settings.options.user)
        self.knowledge.connect_session(session, services, scope)
        self.mcp_servers.connect_session(session, services)
        if self.traces is not None:
            self.traces.trace_session(session)
        self.on_session(session)
        return session

    def _resolve_safety(self, options: Options, agent: Agent) -> Safety:
        """The permissions of a session. `yolo` turns the sandbox off too; hard denials remain."""
        config = self.setup.config
        yolo = options.yolo and not options.plan
        mode = "full-access" if yolo else "read-only" if options.plan else config.sandbox.mode
        if options.walled and mode == "full-access":
            mode = "workspace-write"
        return Safety(
            mode,
            yolo,
            # A small model cannot judge its own commands.
            "ask" if agent.small and config.approvals.mode == "smart" else config.approvals.mode,
            tuple(host for host in config.sandbox.network.allow if host != PACKAGES),
            PACKAGES in config.sandbox.network.allow,
            confirms_all=agent.small,
            planning=options.plan,
            allowed=options.allowed_tools,
            required=config.sandbox.required or options.walled,
            walled=options.walled,
            unattended=config.web.unattended,
            private_hosts=tuple(config.web.allow_hosts),
        )

    async def _open_egress(self, hosts: tuple[str, ...]) -> str:
        """The proxy for confined commands, opened by the first that may use the network."""
        from hermes.config.packages.hosts import expand_packages

        if self._egress is None:
            self._egress = SharedEgressProxy(
                self.setup.home,
                lambda: self._open_web().fetcher.guard,
                self._note_refusal,
            )
        return await self._egress.open(expand_packages(hosts))

    def _note_refusal(self, refusal: Refusal) -> None:
        if refusal.host:
            at = time.monotonic()
            self._refused_hosts.append(RefusedHost(refusal.host, refusal.port, at))

    def _open_web(self) -> WebAccess:
        """The process's web access, opened by the first tool that uses it."""
        if self._web is None:
            from hermes.net.web_access import open_web_access

            self._web = open_web_access(self.setup.config.web, self.setup.secrets)
        return self._web
