"""Every key of config.yaml, with its type and default."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, Struct

from hermes.core.provider import Effort
from hermes.core.wire_names import WireName

SCHEMA = 2
"""Raised when the meaning of a key changes: parsed files cached by older code are then re-read."""

ToolCalls: TypeAlias = Literal["native", "text", "schema"]
Count: TypeAlias = Annotated[int, Meta(ge=1)]
Seconds: TypeAlias = Annotated[float, Meta(ge=0)]
Dollars: TypeAlias = Annotated[float, Meta(ge=0)]
Tokens: TypeAlias = Annotated[int, Meta(ge=0)]
Address: TypeAlias = Annotated[str, Meta(pattern=r"^(https?://\S+)?$")]
EnvName: TypeAlias = Annotated[str, Meta(pattern=r"^([A-Za-z_][A-Za-z0-9_]*)?$")]
Domain: TypeAlias = Annotated[
    str, Meta(pattern=r"^(\*|(\*\.)?\w([\w-]*\w)?(\.\w([\w-]*\w)?)*)(:[1-9][0-9]{0,4})?$")
]
"""`name`, `*.suffix` or `*`, each with `:port` unless the web's ports are meant."""


class Section(Struct, frozen=True, forbid_unknown_fields=True):
    """Immutable; a key that is not a field is refused."""


class Model(Section, frozen=True):
    default: str = ""
    """The model, or provider:model."""
    provider: str = ""
    base_url: Address = ""
    api_mode: WireName | None = None
    """None: derived from the provider and the address."""
    api_key_env: EnvName = ""
    context_length: Count | None = None
    max_tokens: Count | None = None


class Price(Section, frozen=True):
    """Dollars per million tokens; a cache price left out is that of input. Nothing set: the list
    price, where it is known."""

    input: Dollars | None = None
    output: Dollars | None = None
    cache_read: Dollars | None = None
    cache_write: Dollars | None = None


class ModelSettings(Section, frozen=True):
    """What differs for one model of a provider."""

    context_length: Count | None = None
    max_tokens: Count | None = None
    price: Price = Price()
    tool_calls: ToolCalls | None = None
    request_timeout_seconds: Seconds | None = None
    stale_timeout_seconds: Seconds | None = None
    ttfb_timeout_seconds: Seconds | None = None


class OAuth(Section, frozen=True):
    """A login of one's own, or settings laid over a built-in one; what is empty is as there."""

    flow: Literal["device", "loopback"] | None = None
    client_id: str = ""
    scopes: str = ""
    authorize_url: str = ""
    device_url: str = ""
    token_url: str = ""
    exchange_url: str = ""
    """Where a login's token is exchanged for the one that calls are made with."""
    redirect_ports: tuple[Annotated[int, Meta(ge=0, le=65535)], ...] = ()
    """Ports on this machine the browser may be sent back to; empty: any."""


class Provider(Section, frozen=True):
    """A named endpoint, or settings laid over a built-in provider of that name."""

    base_url: Address = ""
    api_mode: WireName | None = None
    api_key_env: EnvName = ""
    api_key_envs: tuple[EnvName, ...] = ()
    """A pool: the keys are used in this order."""
    pool: Literal["fill-first", "round-robin", "least-used", "random"] = "fill-first"
    """Which key of a pool a call goes out with."""
    oauth: OAuth = OAuth()
    tool_calls: ToolCalls | None = None
    """How its models call tools. text: also calls written into the answer are taken up. schema:
    answers are forced into a JSON schema, for small models. None: as known of the provider."""
    request_timeout_seconds: Seconds | None = None
    """Of a whole call. 0 turns a limit off; None: the built-in default."""
    stale_timeout_seconds: Seconds | None = None
    ttfb_timeout_seconds: Seconds | None = None
    models: dict[str, ModelSettings] = {}


class Agent(Section, frozen=True):
    max_turns: Count = 90
    """Model calls per turn."""
    reasoning_effort: Effort | None = None
    """None: the provider's own default."""
    api_max_retries: Annotated[int, Meta(ge=0)] = 3
    """Tries of a model call in all, when the network or the provider fails."""


class Compression(Section, frozen=True):
    enabled: bool = True
    threshold: Annotated[float, Meta(gt=0, le=1)] = 0.5
    """Share of the context window at which old messages are summarised."""


class Auxiliary(Section, frozen=True):
    """The model of one background job."""

    provider: str = ""
    model: str = ""
    base_url: Address = ""
    api_mode: WireName | None = None
    api_key_env: EnvName = ""
    context_length: Count | None = None
    request_timeout_seconds: Seconds | None = None
    stale_timeout_seconds: Seconds | None = None
    ttfb_timeout_seconds: Seconds | None = None


class Docker(Section, frozen=True):
    """A container for the commands of a session, or one that is there already."""

    image: Annotated[
        str, Meta(pattern=r"^[a-zA-Z0-9][\w.:/@-]*$", description="the name of an image")
    ] = "debian:stable-slim"
    container: Annotated[
        str, Meta(pattern=r"^([a-zA-Z0-9][\w.-]*)?$", description="the name of a container")
    ] = ""
    """One that runs: used as it is, with its own mounts, network and limits."""
    workspace: Literal["rw", "ro"] = "rw"
    """How the folder of the session is mounted, at the path it has here."""
    network: Annotated[
        str, Meta(pattern=r"^[a-zA-Z0-9][\w.:-]*$", description="none, or the name of a network")
    ] = "none"
    memory: Annotated[
        str, Meta(pattern=r"^[1-9][0-9]*[bkmg]$", description="a size such as 512m or 4g")
    ] = "4g"
    cpus: Annotated[float, Meta(gt=0)] = 2
    pids: Annotated[int, Meta(ge=16)] = 512


class Ssh(Section, frozen=True):
    """Everything left out is as the user's own ssh configuration says."""

    host: Annotated[
        str, Meta(pattern=r"^([\w:][\w.:%-]*)?$", description="the name or address of a machine")
    ] = ""
    user: Annotated[
        str, Meta(pattern=r"^([\w.][\w.@\\+-]*)?$", description="the name of a user there")
    ] = ""
    port: Annotated[int, Meta(ge=1, le=65535)] | None = None
    key_file: str = ""
    cwd: str = "~"
    """There; relative paths begin in the home folder."""
    connect_timeout: Annotated[float, Meta(gt=0)] = 15


class Terminal(Section, frozen=True):
    backend: Literal["local", "docker", "ssh"] = "local"
    cwd: str = "."
    timeout: Annotated[float, Meta(gt=0)] = 180
    keep_background: bool = False
    """Whether commands in the background outlive the agent; the next one finds them again."""
    docker: Docker = Docker()
    ssh: Ssh = Ssh()


class Approvals(Section, frozen=True):
    mode: Literal["ask", "smart", "never-ask"] = "ask"
    rules: tuple[dict[str, Any], ...] = ()
    """Which commands are allowed, asked about or denied, by how they begin."""


class Network(Section, frozen=True):
    allow: tuple[Domain, ...] = ()
    """Domains that confined commands may reach, through our proxy; empty: none."""


class Sandbox(Section, frozen=True):
    mode: Literal["read-only", "workspace-write", "full-access"] = "workspace-write"
    required: bool = False
    network: Network = Network()


class Search(Section, frozen=True):
    """The service behind `web_search`."""

    backend: Literal["searxng", "brave", "tavily", "exa", "duckduckgo"] | None = None
    """None: the first one a key or an address is there for."""
    base_url: str = ""
    """Of a SearXNG of one's own, or instead of a service's usual address."""
    api_key_env: EnvName = ""


class Web(Section, frozen=True):
    search: Search = Search()
    allow_hosts: tuple[str, ...] = ()
    """host[:port]: internal hosts that may be fetched from, exactly as written."""


class Browser(Section, frozen=True):
    executable: str = ""
    """A Chromium; empty: the first one that is found."""
    idle_timeout: Annotated[float, Meta(gt=0)] = 900
    """Seconds without use after which it is closed."""


class Display(Section, frozen=True):
    """The interactive terminal."""

    editing_mode: Literal["emacs", "vi"] = "emacs"
    plain: bool = False
    """Line by line, nothing redrawn: as with --plain."""


class Selection(Section, frozen=True):
    """Tools and toolsets, by name: a tool's own name counts before its toolset's."""

    enabled: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()


class Tools(Selection, frozen=True):
    platforms: dict[str, Selection] = {}
    """Counts before what holds everywhere."""


class Budget(Section, frozen=True):
    """Caps; None: no cap. Tokens are those of the whole prompt and of the answer. Users and jobs
    are counted per day, each on its own."""

    daily_usd: Dollars | None = None
    session_usd: Dollars | None = None
    user_usd: Dollars | None = None
    job_usd: Dollars | None = None
    daily_tokens: Tokens | None = None
    session_tokens: Tokens | None = None
    user_tokens: Tokens | None = None
    job_tokens: Tokens | None = None


class Config(Section, frozen=True):
    model: Model = Model()
    providers: dict[str, Provider] = {}
    fallback_providers: tuple[str, ...] = ()
    """provider:model, in the order they are tried."""
    agent: Agent = Agent()
    compression: Compression = Compression()
    auxiliary: dict[str, Auxiliary] = {}
    """Job name -> its model."""
    terminal: Terminal = Terminal()
    approvals: Approvals = Approvals()
    sandbox: Sandbox = Sandbox()
    web: Web = Web()
    browser: Browser = Browser()
    display: Display = Display()
    tools: Tools = Tools()
    budget: Budget = Budget()
    platforms: dict[str, dict[str, Any]] = {}
    """Each platform checks its own keys."""
    mcp_servers: dict[str, dict[str, Any]] = {}


def key_variables(config: Config) -> frozenset[str]:
    """Names of all variables this configuration takes keys from."""
    named = [config.model.api_key_env, config.web.search.api_key_env]
    for provider in config.providers.values():
        named += [provider.api_key_env, *provider.api_key_envs]
    named += [job.api_key_env for job in config.auxiliary.values()]
    return frozenset(filter(None, named))
