"""The composition root: builds what the sessions of a process share, and owns every task."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from hermes.agent.turn import Agent
from hermes.app.agents import Agents, Options
from hermes.app.approvals import Rulebook, Safety
from hermes.app.auxiliary import Auxiliary, Sleep
from hermes.app.backends import Backends
from hermes.app.background_commands import BackgroundCommands
from hermes.app.background_prompts import BackgroundPrompts
from hermes.app.client_history import ClientConversation, ClientHistory
from hermes.app.egress_proxy import Egress
from hermes.app.session import Session
from hermes.app.session_chain import find_current
from hermes.app.session_host import SessionSettings, SharedServices
from hermes.app.session_init import describe_walls, new_meta
from hermes.app.titles import JOB, Titles
from hermes.app.transcript import Transcript
from hermes.config import paths
from hermes.config.env import build_child_env
from hermes.config.load import Setup
from hermes.core.errors import ConfigError
from hermes.core.escalation import PACKAGES
from hermes.core.history import History
from hermes.core.services import Services
from hermes.core.shutdown import hold_closers, release_closers
from hermes.core.store import SessionMeta, Store
from hermes.core.tool import Workspace
from hermes.core.untrusted_text import mark_of
from hermes.llm.auth.cooldown import Cooling
from hermes.llm.transport import Transport
from hermes.store.sqlite import SqliteStore
from hermes.tools._services import (
    BACKEND,
    BROWSER_SETTINGS,
    OPEN_WEB,
    PROCESSES,
    REFUSED_HOSTS,
    STORE,
)
from hermes.tools.todo import TODO_LIST, recall

if TYPE_CHECKING:
    from hermes.net.web_access import WebAccess

log = logging.getLogger(__name__)
_MOST_REFUSED = 100


class Runtime:
    """Everything a process shares between its sessions. Constructing one makes no request."""

    def __init__(self, setup: Setup, store: Store, transport: Transport, sleep: Sleep) -> None:
        self.setup = setup
        self.store = store
        self.transport = transport
        self.sleep = sleep
        self._child_env = build_child_env(setup.secrets)
        self._refused: deque[str] = deque(maxlen=_MOST_REFUSED)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._said: set[str] = set()
        self._web: WebAccess | None = None
        self._egress: Egress | None = None
        self.backends = Backends(setup, self._child_env)
        self.agents = Agents(setup, transport, sleep, self.backends)
        self.auxiliary = Auxiliary(self.agents.auxiliary_models, self.agents.learned, sleep)
        self.background = BackgroundCommands(setup.home, keep=setup.config.terminal.keep_background)
        self.errands = BackgroundPrompts(self.spawn)
        self._titles = Titles(store, self.spawn) if JOB in setup.config.auxiliary else None
        self._shared = SharedServices(
            store=store,
            budget=setup.config.budget,
            agents=self.agents,
            auxiliary=self.auxiliary,
            rulebook=Rulebook(setup.home, setup.config.approvals.rules),
            backends=self.backends,
            background=self.background,
            titles=self._titles,
            sleep=sleep,
            once=self.once,
            spawn=self.spawn,
        )

    @classmethod
    @asynccontextmanager
    async def open(
        cls, setup: Setup, *, store: Store | None = None, sleep: Sleep = asyncio.sleep
    ) -> AsyncIterator[Runtime]:
        """`store`: one that is open already, and closed by who opened it."""
        own = None
        if store is None:
            store = own = SqliteStore(paths.database_file(setup.home))
            own.open()  # on its own thread, while the rest is built and the HTTP stack imported
        transport = Transport(Cooling(paths.cache_folder(setup.home) / "cooling.json"))
        runtime = cls(setup, store, transport, sleep)
        hold_closers()
        try:
            yield runtime
        finally:
            await runtime._stop()
            await transport.close()
            if own is not None:
                await own.close()

    @property
    def folder(self) -> Path:
        """Where sessions work that nobody gives a folder."""
        return paths.find_working_folder(self.setup.config.terminal.cwd)

    async def session(
        self,
        *,
        resume: str = "",
        source: str = "cli",
        key: str = "",
        cwd: Path | None = None,
        options: Options | None = None,
        needs_model: bool = True,
    ) -> Session:
        """A new session, or the stored one called `resume` with its whole history; where that
        one was compressed, the one it continues in. Without `needs_model` it is opened even when
        there is no model to call."""
        settings = await self._settings(options, source, needs_model=needs_model)
        where = cwd or Path.cwd()
        if not resume:
            meta = new_meta(
                self.setup,
                settings.agent,
                where,
                owner=(source, key),
                place=self._describe_place(settings),
            )
            return self._build_session(meta, where, settings)
        found = await find_current(self.store, resume)
        if found is None:
            raise ConfigError(f"There is no session {resume}. `hermes sessions list` shows them.")
        history = History(await self.store.sessions.load_messages(found.id), mark=mark_of(found.id))
        return self._build_session(found, where, settings, history)

    async def reopen(self, session: Session, resume: str = "") -> Session:
        """A stored session, or a new one, in the same folder and for the same user."""
        meta = session.transcript.meta
        other = await self.session(
            resume=resume,
            source=meta.source,
            key=meta.key,
            cwd=Path(meta.cwd),
            options=session.options,
        )
        new, old = other.interactions, session.interactions
        new.present, new.busy, new.verbose = old.present, old.busy, old.verbose
        return other

    async def bring(
        self,
        conversation: ClientConversation,
        *,
        source: str,
        key: str = "",
        options: Options | None = None,
    ) -> Session:
        """A session with the id and the past that a client brings; what is new in it is added to
        the stored one."""
        settings = await self._settings(options, source)
        where = self.folder
        known = await self.store.sessions.get_meta(conversation.id) if conversation.keep else None
        meta = known or new_meta(
            self.setup,
            settings.agent,
            where,
            owner=(source, key),
            place=self._describe_place(settings),
            notes=False,
        )
        meta = structs.replace(meta, id=conversation.id)
        session = self._build_session(meta, where, settings)
        past = ClientHistory(self.store, conversation)
        await session.transcript.adopt(past, stored=known is not None)
        session.host.compress_late()
        session.host.instructions = conversation.instructions
        return session

    def adapt(self, session: Session, options: Options) -> None:
        """Continue the session with another model or other limits."""
        agent = self.agents.agent_for(options, session.transcript.meta.source)
        session.adapt(SessionSettings(options, agent, self._safety(options, agent)))
        session.transcript.history.sent.clear()  # what begins differently now was asked for

    def once(self, text: str) -> str:
        """The text, unless this process has said it before."""
        if text in self._said:
            return ""
        self._said.add(text)
        return text

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """A task that cannot be lost: it is kept here, and its failure is logged."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._end_task)
        return task

    def _end_task(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s failed", task.get_name(), exc_info=error)

    async def _stop(self) -> None:
        if self._titles is not None:
            await self._titles.wait()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await release_closers()
        await self.background.close()
        await self.backends.close()
        if self._egress is not None:
            await self._egress.close()

    async def _settings(
        self, options: Options | None, source: str, *, needs_model: bool = True
    ) -> SessionSettings:
        options = await self.agents.settle_model(options or Options())
        try:
            agent = self.agents.agent_for(options, source)
        except ConfigError:
            if needs_model:
                raise
            agent = self.agents.agent_without_model(options, source)
        return SessionSettings(options, agent, self._safety(options, agent))

    def _describe_place(self, settings: SessionSettings) -> str:
        """Where commands run and what confines them, for the model."""
        walls = describe_walls(settings.safety, settings.agent.tools)
        return self.backends.description or walls

    def _build_session(
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
            self.setup.home / "outputs",
            self._child_env,
            sandbox=safety.mode,
            sandbox_required=config.sandbox.required,
            terminal_timeout=config.terminal.timeout,
            egress=self._open_egress,
            hosts=safety.network,
        )
        services = Services()
        services.set(STORE, self.store)
        services.set(OPEN_WEB, self._open_web)
        services.set(REFUSED_HOSTS, self._refused)
        services.set(PROCESSES, self.background.share(meta))
        services.set(BROWSER_SETTINGS, config.browser)
        if backend := self.backends.backend_for(meta.id, cwd, safety.mode):
            services.set(BACKEND, backend)
        if history is not None:
            services.set(TODO_LIST, recall(history.messages))
        transcript = Transcript(self.store, self.background, meta, history)
        return Session(self._shared, settings, transcript, workspace, services)

    def _safety(self, options: Options, agent: Agent) -> Safety:
        """Whoever asks for no questions takes the walls down too; the hard rules stay."""
        config = self.setup.config
        mode = "full-access" if options.yolo else config.sandbox.mode
        return Safety(
            mode,
            options.yolo,
            # A small model is nobody to judge its own commands.
            "ask" if agent.small and config.approvals.mode == "smart" else config.approvals.mode,
            tuple(host for host in config.sandbox.network.allow if host != PACKAGES),
            PACKAGES in config.sandbox.network.allow,
            confirm=agent.small,
            required=config.sandbox.required,
        )

    async def _open_egress(self, hosts: tuple[str, ...]) -> str:
        """The way out for confined commands, opened by the first that may use it."""
        from hermes.config.package_hosts import expand_packages

        if self._egress is None:
            self._egress = Egress(
                self.setup.home, lambda: self._open_web().fetcher.guard, self._refused.append
            )
        return await self._egress.open(expand_packages(hosts))

    def _open_web(self) -> WebAccess:
        """One access to the web for the process, opened by the first tool that uses it."""
        if self._web is None:
            from hermes.net.web_access import open_web_access

            self._web = open_web_access(self.setup.config.web, self.setup.secrets)
        return self._web
