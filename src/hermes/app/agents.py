"""Agents: the models, tools and limits that sessions with the same options share."""

from collections import ChainMap
from collections.abc import Collection, MutableMapping
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec import Struct, structs

from hermes.agent.turn import Agent, EndpointLessons, ModelClient, TurnLimits
from hermes.app import context_window
from hermes.app.auxiliary import AuxiliaryModels, Sleep
from hermes.app.backends import Backends
from hermes.config import paths
from hermes.config.load import Setup
from hermes.core.errors import ConfigError
from hermes.core.message import Target
from hermes.core.provider import Effort, Settings
from hermes.core.redaction.redactor import Redactor
from hermes.core.tool import Tool
from hermes.llm.auth.cooldown import Cooldowns
from hermes.llm.client import Client
from hermes.llm.endpoints.endpoint import ModelChoice, ModelEndpoint
from hermes.llm.endpoints.learned_limits import LearnedLimits
from hermes.llm.endpoints.resolver import is_undecided, resolve_chain
from hermes.llm.http.transport import Transport
from hermes.tools.registry import NONE, Tools, select_tools

if TYPE_CHECKING:
    from hermes.llm.endpoints.local_servers import LocalServer
    from hermes.mcp.server_config import ServerConfig

MAX_CLIENTS = 64


class Options(Struct, frozen=True):
    """How one session differs from the configuration."""

    choice: ModelChoice = ModelChoice()
    toolsets: tuple[str, ...] | None = None
    max_turns: int | None = None
    yolo: bool = False
    effort: Effort | None = None
    """The reasoning effort; None: as configured."""
    fast: bool = False
    """Whether to pay more for being answered sooner, where the provider offers it."""
    personality: str = ""
    """How the agent speaks, in the words that the model is told."""
    allowed_tools: tuple[str, ...] = ()
    """Tools that need no approval; `terminal:WORDS`: commands that begin with these words."""
    plan: bool = False
    """Whether nothing is changed until the user has approved a plan."""
    user: str = ""
    """The id on its platform of the person who talks in a chat."""
    is_admin: bool = False
    """Whether only administrators of this agent talk in the chat: they may use its schedule."""
    record: bool = False
    """Whether its turns are recorded, whatever the configuration says."""
    servers: "tuple[ServerConfig, ...]" = ()
    """MCP servers that the client of the session brings along."""
    walled: bool = False
    """Whether its tools stay in its folder, whoever allows more."""


class Agents:
    """One per process: builds agents, and owns the clients of all endpoints and what was learned
    about them. Constructing one makes no request."""

    def __init__(
        self, setup: Setup, transport: Transport, sleep: Sleep, backends: Backends
    ) -> None:
        self.learned: dict[Target, EndpointLessons] = {}
        self.learned_limits = LearnedLimits(paths.cache_folder(setup.home) / "limits.json")
        self.cooldowns = Cooldowns(paths.cache_folder(setup.home) / "cooling.json")
        self.auxiliary_models = AuxiliaryModels(setup, self.get_client)
        self.own_tools: tuple[Tool[Any], ...] = ()
        """Tools added to those the options select; every request declares them."""
        self.run_time_words: Collection[str] = ()
        """Names of tools and toolsets that can be selected although no module defines them."""
        self._setup = setup
        self._transport = transport
        self._sleep = sleep
        self._backends = backends
        self._agents: dict[bytes, Agent] = {}
        self._clients: dict[bytes, Client] = {}
        self._nearby_servers: tuple[LocalServer, ...] | None = None
        """Model servers on this machine; None: not searched for yet."""

    def get_client(self, endpoint: ModelEndpoint) -> Client:
        """The process's only client of an endpoint."""
        key = msgspec.msgpack.encode(endpoint)
        found = self._clients.get(key)
        if found is None:
            if len(self._clients) >= MAX_CLIENTS:
                del self._clients[next(iter(self._clients))]
            found = self._clients[key] = Client(
                endpoint, self._transport, self.cooldowns, sleep=self._sleep
            )
        return found

    async def choose_model(self, options: Options) -> Options:
        """The options, with a model server on this machine if no model is configured and one is
        running. Only the first session searches for it."""
        if not is_undecided(self._setup.config, self._setup.secrets, options.choice):
            return options
        if self._nearby_servers is None:
            from hermes.llm.endpoints.local_servers import find_servers

            self._nearby_servers = await find_servers()
        found = self._pick_nearby_server(options.choice)
        return structs.replace(options, choice=found.model_choice) if found else options

    def get_agent(
        self, options: Options, platform: str, absent: frozenset[str] = frozenset()
    ) -> Agent:
        """The agent for these options, without the tools that a session cannot have; ConfigError
        when there is no model to call."""
        options = structs.replace(options, user="", servers=())
        key = msgspec.msgpack.encode((options, platform, sorted(absent)))
        if key not in self._agents:
            agent = self._build_agent(options, platform, absent)
            self._agents[key] = self._add_own_tools(agent)
        return self._agents[key]

    def build_agent_without_model(
        self, options: Options, platform: str, absent: frozenset[str] = frozenset()
    ) -> Agent:
        """An agent without a model, for commands that need no answer."""
        tools = self._select_tools(options, platform, absent)
        return Agent((), tools, redactor=Redactor(self._setup.secrets.redactable_values()))

    def remember_limits(self, client: ModelClient, context: int | None, output: int | None) -> None:
        """Remember a limit that an endpoint stated, also for later processes."""
        base_url, model = client.endpoint.base_url, client.target.model
        self.learned_limits.learn_limit(base_url, model, context=context, output=output)

    def remember_calling(self, client: ModelClient, calling: str) -> None:
        """Remember how a model calls tools, also for later processes."""
        base_url, model = client.endpoint.base_url, client.target.model
        self.learned_limits.learn_calling(base_url, model, calling)

    def _select_tools(self, options: Options, platform: str, absent: frozenset[str]) -> Tools:
        settings, toolsets = self._setup.config.tools, options.toolsets
        if toolsets is not None and self.run_time_words:
            defined = tuple(word for word in toolsets if word not in self.run_time_words)
            toolsets = defined or (NONE,)
        tools = select_tools(
            toolsets, platform=platform, settings=settings, is_admin=options.is_admin
        )
        return tools.without(absent) if absent else tools

    def _build_agent(self, options: Options, platform: str, absent: frozenset[str]) -> Agent:
        config = self._setup.config
        found = resolve_chain(config, self._setup.secrets, options.choice)
        endpoints = [self.learned_limits.apply_to(endpoint) for endpoint in found]
        for endpoint in endpoints:
            output = self.learned_limits.find(endpoint.base_url, endpoint.target.model).output
            if output is not None:  # stated to an earlier process
                self.learned.setdefault(endpoint.target, EndpointLessons()).max_output = output
        tools = self._select_tools(options, platform, absent)
        tools = self._backends.filter_tools(tools, options.toolsets)
        effort = options.effort or config.agent.reasoning_effort
        window = endpoints[0].context_length
        context_window.check_window(endpoints[0], window)
        few = options.toolsets is None and context_window.is_small_window(window)
        return Agent(
            tuple(map(self.get_client, endpoints)),
            tools,
            tools.list_specs(few=few),
            Settings(max_output=endpoints[0].max_output, effort=effort, fast=options.fast),
            TurnLimits(
                max_calls=options.max_turns or config.agent.max_turns,
                tries=max(1, config.agent.api_max_retries),
                result_chars=context_window.limit_result_chars(window),
            ),
            Redactor(self._setup.secrets.redactable_values()),
            context_window.choose_compression(
                config, endpoints[0], window, self._resolve_summarizer()
            ),
            small=any(e.quirks.small for e in endpoints),
            note=endpoints[0].note or self._find_nearby_note(options.choice),
        )

    def _add_own_tools(self, agent: Agent) -> Agent:
        added = {tool.name: tool for tool in self.own_tools}
        if not added:
            return agent
        if name := next((name for name in added if name in agent.tools), ""):
            raise ConfigError(
                f"A function is named like the built-in tool {name}. Name it differently with "
                f"@hermes.tool(name=...), or choose toolsets without {name}."
            )
        others = cast("MutableMapping[str, Tool[Any]]", agent.tools)  # never written to
        specs = (*agent.specs, *(tool.spec for tool in added.values()))
        return structs.replace(agent, tools=ChainMap(added, others), specs=specs)

    def _resolve_summarizer(self) -> ModelEndpoint | None:
        """The configured model for summaries; ConfigError when it cannot be used."""
        config = self._setup.config
        if "compression" not in config.auxiliary or not config.compression.enabled:
            return None
        return self.auxiliary_models.find_configured("compression")

    def _pick_nearby_server(self, choice: ModelChoice) -> "LocalServer | None":
        if not self._nearby_servers:
            return None
        from hermes.llm.endpoints.local_servers import pick_server

        return pick_server(self._nearby_servers, self._setup.config, choice)

    def _find_nearby_note(self, choice: ModelChoice) -> str:
        found = self._pick_nearby_server(choice)
        return found.note if found and found.model_choice == choice else ""
