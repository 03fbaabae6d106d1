"""The composition root: builds store, transport, endpoints and tools, and owns every task."""

from __future__ import annotations

import asyncio
import logging
import sys
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from hermes.agent.turn import Agent, Learned, Limits
from hermes.agent.turn import Endpoint as Callee
from hermes.app import context_window as windows
from hermes.app.approvals import Rulebook, Safety
from hermes.app.backends import Places
from hermes.app.background_commands import Background
from hermes.app.background_prompts import Errands
from hermes.app.client_history import Handoff
from hermes.app.session import Session
from hermes.app.session_chain import current
from hermes.app.session_init import new_meta
from hermes.config import paths
from hermes.config.env import child_env
from hermes.config.load import Setup
from hermes.core.errors import ConfigError
from hermes.core.history import History
from hermes.core.message import Message, Target, ToolCall
from hermes.core.provider import Effort, Settings
from hermes.core.redaction.redactor import Redactor
from hermes.core.store import SessionMeta, Store
from hermes.core.tool import ToolContext, nobody_approves
from hermes.core.untrusted_text import mark_of
from hermes.llm.auth.cooldown import Cooldowns
from hermes.llm.client import Client
from hermes.llm.endpoints.endpoint import ModelChoice, ModelEndpoint
from hermes.llm.endpoints.learned_limits import LearnedLimits
from hermes.llm.endpoints.resolver import is_undecided, resolve_chain
from hermes.llm.http.transport import EmbeddedEngines, Transport
from hermes.store.sqlite import SqliteStore
from hermes.tools.registry import select
from hermes.tools.todo import recall

if TYPE_CHECKING:
    from hermes.app.auxiliary import Auxiliary
    from hermes.app.egress_proxy import Egress
    from hermes.llm.endpoints.local_servers import LocalServer

log = logging.getLogger(__name__)

Sleep = Callable[[float], Awaitable[None]]
MAX_CLIENTS = 64


class Options(Struct, frozen=True):
    """What one session may be asked to do differently from the configuration."""

    choice: ModelChoice = ModelChoice()
    toolsets: tuple[str, ...] | None = None
    max_turns: int | None = None
    yolo: bool = False
    effort: Effort | None = None
    """How much the model thinks; None: as configured."""


class Brought(Struct, frozen=True):
    """A conversation whose past the caller brings along."""

    id: str
    past: tuple[Message, ...] = ()
    instructions: str = ""
    """Added to the system prompt, never stored."""
    keep: bool = True
    """Whether anything of it is stored."""


def _open_engines() -> EmbeddedEngines:
    from hermes.llm.local.engine import LocalEngines

    return LocalEngines()


class Runtime:
    """Everything a process shares between its sessions. Constructing one makes no request."""

    def __init__(self, setup: Setup, store: Store, transport: Transport, sleep: Sleep) -> None:
        self.setup = setup
        self.store = store
        self.transport = transport
        self.sleep = sleep
        self.learned: dict[Target, Learned] = {}
        cache = paths.cache_folder(setup.home)
        self.remembered = LearnedLimits(cache / "limits.json")
        self.cooldowns = Cooldowns(cache / "cooling.json")
        self.told: set[str] = set()
        """What users of this process are told once."""
        self._agents: dict[bytes, Agent] = {}
        self._clients: dict[bytes, Client] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._naming: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()
        self._child_env = child_env(setup.secrets)
        self.places = Places(setup, self._child_env)
        self._door: Any = None
        self.background = Background(setup.home, keep=setup.config.terminal.keep_background)
        self.errands = Errands()
        self.rulebook = Rulebook(setup.home, setup.config.approvals.rules)
        self._auxiliary: Auxiliary | None = None
        self._nearby: tuple[LocalServer, ...] | None = None
        """Model servers on this machine; None: nobody has looked."""
        self._way_out: Egress | None = None

    @classmethod
    @asynccontextmanager
    async def open(
        cls, setup: Setup, *, store: Store | None = None, sleep: Sleep = asyncio.sleep
    ) -> AsyncIterator[Runtime]:
        """`store`: one that is open already, and closed by who opened it."""
        own = None
        if store is None:
            store = own = SqliteStore(paths.database(setup.home))
            own.open()  # on its own thread, while the rest is built and the HTTP stack imported
        transport = Transport(_open_engines)
        runtime = cls(setup, store, transport, sleep)
        try:
            yield runtime
        finally:
            await runtime._stop()
            await transport.close()
            if own is not None:
                await own.close()

    async def session(
        self,
        *,
        resume: str = "",
        source: str = "cli",
        key: str = "",
        cwd: Path | None = None,
        options: Options | None = None,
    ) -> Session:
        """A new session, or the stored one called `resume` with its whole history; where that
        one was compressed, the one it goes on in."""
        options = await self._around(options or Options())
        agent = self._agent(options, source)
        where = cwd or Path.cwd()
        safety = self._safety(options, agent)
        if not resume:
            owner = (source, key)
            meta = new_meta(self.setup, agent, where, owner=owner, place=self.places.told)
            fresh = Session(self, agent, meta, self._context(meta, where, safety), safety=safety)
            fresh.options = options
            return fresh
        meta_or_none = await current(self.store, resume)
        if meta_or_none is None:
            raise ConfigError(f"There is no session {resume}. `hermes sessions list` shows them.")
        resume = meta_or_none.id
        history = History(await self.store.load(resume), mark=mark_of(resume))
        context = self._context(meta_or_none, where, safety)
        context.state["todo"] = recall(history.messages)
        found = Session(self, agent, meta_or_none, context, history=history, safety=safety)
        found.options = options
        return found

    def adapt(self, session: Session, options: Options) -> None:
        """The same session goes on with another model, other limits."""
        agent = self._agent(options, session.meta.source)
        session.adapt(options, agent, self._safety(options, agent))
        session.history.sent.clear()  # what begins differently from now on was asked for

    @property
    def folder(self) -> Path:
        """Where sessions work that nobody gives a folder."""
        return paths.working_folder(self.setup.config.terminal.cwd)

    async def bring(
        self, brought: Brought, *, source: str, key: str = "", options: Options | None = None
    ) -> Session:
        """A session with that id and that past; what is new in it is added to the stored one."""
        options = await self._around(options or Options())
        agent = self._agent(options, source)
        where = self.folder
        safety = self._safety(options, agent)
        known = await self.store.meta(brought.id) if brought.keep else None
        meta = known or new_meta(
            self.setup, agent, where, owner=(source, key), place=self.places.told, notes=False
        )
        meta = structs.replace(meta, id=brought.id)
        session = Session(self, agent, meta, self._context(meta, where, safety), safety=safety)
        past = Handoff(self.store, brought.id, brought.past, kept=brought.keep)
        await session.bring(past, stored=known is not None)
        session.instructions = brought.instructions
        return session

    def once(self, text: str) -> str:
        """The text, unless this process has said it before."""
        if text in self.told:
            return ""
        self.told.add(text)
        return text

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """A task that cannot be lost: it is kept here, and its failure is logged."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s failed", task.get_name(), exc_info=error)

    def name(self, session: Session, question: str, answer: str) -> None:
        """A title for a new conversation, in the background, where a model is set for that."""
        if "title" in self.setup.config.auxiliary:
            from hermes.app.titles import entitle

            work = entitle(session, self.store, question, answer)
            self._naming.add(self.spawn(work, f"title of {session.id}"))

    async def _stop(self) -> None:
        if naming := set(self._naming) & self._tasks:
            from hermes.app.titles import GRACE

            await asyncio.wait(naming, timeout=GRACE)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        browser = sys.modules.get("hermes.tools.browser._browser")  # imported by its first use
        if browser is not None:
            await browser.stop_all()
        local = sys.modules.get("hermes.exec.process.local")  # by the first command
        if local is not None:
            await local.stop_all()
        await self.background.close()
        await self.places.close()
        if self._way_out is not None:
            await self._way_out.close()

    async def _around(self, options: Options) -> Options:
        """Nobody said what to call: a model server on this machine, if there is one. The first
        session looks; constructing a runtime asks nobody."""
        if self._nearby is None:
            if not is_undecided(self.setup.config, self.setup.secrets, options.choice):
                return options
            from hermes.llm.endpoints.local_servers import find_servers

            self._nearby = await find_servers()
        if self._nearby and is_undecided(self.setup.config, self.setup.secrets, options.choice):
            found = self._near(options.choice)
            return structs.replace(options, choice=found.model_choice) if found else options
        return options

    def _near(self, choice: ModelChoice) -> LocalServer | None:
        if not self._nearby:
            return None
        from hermes.llm.endpoints.local_servers import pick_server

        return pick_server(self._nearby, self.setup.config, choice)

    def _agent(self, options: Options, platform: str) -> Agent:
        """Sessions that ask alike share one agent: its clients, tools and schemas."""
        import msgspec

        key = msgspec.msgpack.encode((options, platform))
        found = self._agents.get(key)
        if found is None:
            found = self._agents[key] = self._build(options, platform)
        return found

    def _build(self, options: Options, platform: str) -> Agent:
        config = self.setup.config
        found = resolve_chain(config, self.setup.secrets, options.choice)
        endpoints = [self.remembered.apply_to(endpoint) for endpoint in found]
        self._recall(endpoints)
        tools = select(options.toolsets, platform=platform, settings=config.tools)
        tools = self.places.tools(tools, options.toolsets)
        effort = options.effort or config.agent.reasoning_effort
        window = endpoints[0].context_length
        windows.check(endpoints[0], window)
        return Agent(
            tuple(map(self.client, endpoints)),
            tools,
            tools.offered(few=options.toolsets is None and windows.is_small(window)),
            Settings(max_output=endpoints[0].max_output, effort=effort),
            Limits(
                max_calls=options.max_turns or config.agent.max_turns,
                tries=max(1, config.agent.api_max_retries),
                result_chars=windows.result_chars(window),
            ),
            Redactor(self.setup.secrets.known()),
            windows.compression(config, endpoints[0], window, self._summariser()),
            small=any(e.quirks.small for e in endpoints),
            note=endpoints[0].note or self._found_note(options.choice),
        )

    def _found_note(self, choice: ModelChoice) -> str:
        found = self._near(choice)
        return found.note if found and found.model_choice == choice else ""

    def _recall(self, endpoints: Sequence[ModelEndpoint]) -> None:
        """Output limits that were stated to earlier processes."""
        for endpoint in endpoints:
            output = self.remembered.find(endpoint.base_url, endpoint.target.model).output
            if output is not None:
                self.learned.setdefault(endpoint.target, Learned()).max_output = output

    def remember(self, endpoint: Callee, context: int | None, output: int | None) -> None:
        model = endpoint.target.model
        self.remembered.learn_limit(
            endpoint.endpoint.base_url, model, context=context, output=output
        )

    def client(self, endpoint: ModelEndpoint) -> Client:
        """One per endpoint, shared by everybody who calls it."""
        import msgspec

        key = msgspec.msgpack.encode(endpoint)
        found = self._clients.get(key)
        if found is None:
            if len(self._clients) >= MAX_CLIENTS:
                del self._clients[next(iter(self._clients))]
            found = self._clients[key] = Client(
                endpoint, self.transport, self.cooldowns, sleep=self.sleep
            )
        return found

    def _summariser(self) -> ModelEndpoint | None:
        """As configured; one that cannot be used is said where it would be."""
        config = self.setup.config
        if "compression" not in config.auxiliary or not config.compression.enabled:
            return None
        return self.auxiliary.jobs.configured("compression")

    def _safety(self, options: Options, agent: Agent) -> Safety:
        """Whoever asks for no questions takes the walls down too; the hard rules stay."""
        config = self.setup.config
        mode = "full-access" if options.yolo else config.sandbox.mode
        return Safety(
            mode,
            options.yolo,
            # A small model is nobody to judge its own commands.
            "ask" if agent.small and config.approvals.mode == "smart" else config.approvals.mode,
            config.sandbox.network.allow,
            confirm=agent.small,
        )

    def _context(self, meta: SessionMeta, cwd: Path, safety: Safety) -> ToolContext:
        return ToolContext(
            session_id=meta.id,
            cwd=cwd,
            call=ToolCall("", ""),
            approve=nobody_approves,
            progress=_nothing,
            child_env=self._child_env,
            spill=self.setup.home / "outputs",
            terminal_timeout=self.setup.config.terminal.timeout,
            sandbox=safety.mode,
            sandbox_required=self.setup.config.sandbox.required,
            home=self.setup.home,
            egress=self._egress if safety.network else None,
            place=self.places.place(meta.id, cwd, safety.mode),
            state={
                "web": self._web,
                "store": self.store,
                "browser": self.setup.config.browser,
                "processes": self.background.share(meta),
            },
        )

    @property
    def auxiliary(self) -> Auxiliary:
        if self._auxiliary is None:
            from hermes.app.auxiliary import Auxiliary

            self._auxiliary = Auxiliary(self)
        return self._auxiliary

    async def _egress(self) -> str:
        """The way out for confined commands, opened by the first that may use it."""
        if self._way_out is None:
            from hermes.app.egress_proxy import Egress

            domains = self.setup.config.sandbox.network.allow
            self._way_out = Egress(self.setup.home, domains, lambda: self._web().door.gate)
        return await self._way_out.open()

    def _web(self) -> Any:
        """One door for the process, opened by the first tool that goes through it."""
        if self._door is None:
            from hermes.net.web_access import open_web

            self._door = open_web(self.setup.config.web, self.setup.secrets)
        return self._door


def _nothing(_: str) -> None:
    pass
