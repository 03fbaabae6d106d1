"""Every key of config.yaml, with its type and default."""

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, Struct

from hermes.config.terminal_keys import KEY_PATTERN, KeyAction
from hermes.core.provider import Effort
from hermes.core.wire_names import WireName

SCHEMA_VERSION = 3
"""Incremented when the meaning of a key changes, so that files cached by older code are re-read."""
Roles: TypeAlias = Annotated[tuple[Literal["api", "gateway", "worker"], ...], Meta(min_length=1)]
ToolCalls: TypeAlias = Literal["native", "text", "schema"]
Count: TypeAlias = Annotated[int, Meta(ge=1)]
Seconds: TypeAlias = Annotated[float, Meta(ge=0)]
Dollars: TypeAlias = Annotated[float, Meta(ge=0)]
Tokens: TypeAlias = Annotated[int, Meta(ge=0)]
Address: TypeAlias = Annotated[str, Meta(pattern=r"^(https?://\S+)?$")]
KeyName: TypeAlias = Annotated[
    str, Meta(pattern=KEY_PATTERN, description="a key such as ctrl-g, alt-g or f2")
]
EnvName: TypeAlias = Annotated[str, Meta(pattern=r"^([A-Za-z_][A-Za-z0-9_]*)?$")]
Domain: TypeAlias = Annotated[
    str, Meta(pattern=r"^(\*|(\*\.)?\w([\w-]*\w)?(\.\w([\w-]*\w)?)*)(:[1-9][0-9]{0,4})?$")
]
"""`name`, `*.suffix` or `*`, each with `:port` unless the web ports are meant."""


class Section(Struct, frozen=True, forbid_unknown_fields=True):
    """Immutable; unknown keys are refused."""


class ModelSection(Section, frozen=True):
    default: str = ""
    """The model, or provider:model."""
    provider: str = ""
    """Who serves the model; empty: derived from the model, the address or the keys that are set."""
    base_url: Address = ""
    """The address of your own endpoint; empty: the provider's."""
    api_mode: WireName | None = None
    """None: derived from the provider and the URL."""
    api_key_env: EnvName = ""
    """The variable that holds the key; empty: the provider's usual one."""
    context_length: Count | None = None
    """Tokens that fit into the context window; empty: what is known of the model."""
    max_tokens: Count | None = None
    """The longest answer, in tokens; empty: the model's own limit."""


class Price(Section, frozen=True):
    """Dollars per million tokens; a missing cache price is that of input. Without any: the list
    price, where it is known."""

    input: Dollars | None = None
    output: Dollars | None = None
    cache_read: Dollars | None = None
    cache_write: Dollars | None = None


class ModelSettings(Section, frozen=True):
    """Settings for one model of a provider."""

    context_length: Count | None = None
    max_tokens: Count | None = None
    price: Price = Price()
    tool_calls: ToolCalls | None = None
    request_timeout_seconds: Seconds | None = None
    stale_timeout_seconds: Seconds | None = None
    ttfb_timeout_seconds: Seconds | None = None


class OAuthSection(Section, frozen=True):
    """A custom login, or settings that override those of a built-in one; empty: unchanged."""

    flow: Literal["device", "loopback"] | None = None
    client_id: str = ""
    scopes: str = ""
    authorize_url: str = ""
    device_url: str = ""
    token_url: str = ""
    exchange_url: str = ""
    """Where the login's token is exchanged for the one used in calls."""
    redirect_ports: tuple[Annotated[int, Meta(ge=0, le=65535)], ...] = ()
    """Local ports to which the browser may be redirected; empty: any."""


class ProviderSection(Section, frozen=True):
    """A named endpoint, or settings that override those of the built-in provider of that name."""

    base_url: Address = ""
    api_mode: WireName | None = None
    api_key_env: EnvName = ""
    api_key_envs: tuple[EnvName, ...] = ()
    """A pool of keys, in this order."""
    pool: Literal["fill-first", "round-robin", "least-used", "random"] = "fill-first"
    """Which key of the pool a call uses."""
    requests_per_minute: Count | None = None
    """Calls with each key, made at even intervals; all nodes of a cluster count together."""
    oauth: OAuthSection = OAuthSection()
    tool_calls: ToolCalls | None = None
    """How its models call tools. text: calls written into the answer are accepted too. schema:
    answers are forced into a JSON schema, for small models. None: the provider's default."""
    request_timeout_seconds: Seconds | None = None
    """For a whole call. 0 turns a limit off; None: the built-in default."""
    stale_timeout_seconds: Seconds | None = None
    ttfb_timeout_seconds: Seconds | None = None
    models: dict[str, ModelSettings] = {}


class AgentSection(Section, frozen=True):
    max_turns: Count = 90
    """Model calls per turn."""
    reasoning_effort: Effort | None = None
    """None: the provider's own default."""
    api_max_retries: Annotated[int, Meta(ge=0)] = 3
    """Total attempts at a model call when the network or the provider fails."""
    personalities: dict[str, str] = {}
    """Further ways of speaking for /personality: a name, and what the model is told."""


class CompressionSection(Section, frozen=True):
    enabled: bool = True
    """Whether old messages are summarised when the context window fills up."""
    threshold: Annotated[float, Meta(gt=0, le=1)] = 0.5
    """The share of the context window at which old messages are summarised."""


class AuxiliarySection(Section, frozen=True):
    """The model of one background job."""

    provider: str = ""
    model: str = ""
    base_url: Address = ""
    api_mode: WireName | None = None
    api_key_env: EnvName = ""
    voice: str = ""
    """Of the job speech, such as alloy."""
    context_length: Count | None = None
    request_timeout_seconds: Seconds | None = None
    stale_timeout_seconds: Seconds | None = None
    ttfb_timeout_seconds: Seconds | None = None


class DockerSection(Section, frozen=True):
    """A container for a session's commands: a new one, or an existing one."""

    image: Annotated[
        str, Meta(pattern=r"^[a-zA-Z0-9][\w.:/@-]*$", description="the name of an image")
    ] = "debian:stable-slim"
    """The image of a new container."""
    container: Annotated[
        str, Meta(pattern=r"^([a-zA-Z0-9][\w.-]*)?$", description="the name of a container")
    ] = ""
    """A running container to use as it is, with its own mounts, network and limits."""
    workspace: Literal["rw", "ro"] = "rw"
    """How the session's folder is mounted, at the same path as on the host."""
    mirror: Annotated[
        str, Meta(pattern=r"^(/[\w.-]+)*$", description="an absolute path, or nothing")
    ] = ""
    """A second path at which a new container has the session's folder; empty: none."""
    network: Annotated[
        str, Meta(pattern=r"^[a-zA-Z0-9][\w.:-]*$", description="none, or the name of a network")
    ] = "none"
    """The network of a new container; none: it has none."""
    memory: Annotated[
        str, Meta(pattern=r"^[1-9][0-9]*[bkmg]$", description="a size such as 512m or 4g")
    ] = "4g"
    """The most memory a new container may use."""
    cpus: Annotated[float, Meta(gt=0)] = 2
    """How many processors a new container may use."""
    pids: Annotated[int, Meta(ge=16)] = 512
    """How many processes a new container may have."""


class SshSection(Section, frozen=True):
    """Everything left out comes from the user's own ssh configuration."""

    host: Annotated[
        str, Meta(pattern=r"^([\w:][\w.:%-]*)?$", description="the name or address of a machine")
    ] = ""
    """The machine on which commands run."""
    user: Annotated[
        str,
        Meta(pattern=r"^([\w.][\w.@\\+-]*)?$", description="the name of a user on that machine"),
    ] = ""
    """The user on that machine."""
    port: Annotated[int, Meta(ge=1, le=65535)] | None = None
    """Its port for SSH."""
    key_file: str = ""
    """The file with your private key."""
    cwd: str = "~"
    """On that machine; relative paths start in the home folder."""
    connect_timeout: Annotated[float, Meta(gt=0)] = 15
    """Seconds to wait for a connection."""


class TerminalSection(Section, frozen=True):
    backend: Literal["local", "docker", "ssh"] = "local"
    """Where commands run: on this machine, in a container, or on another machine."""
    cwd: str = "."
    """The folder in which new sessions work."""
    timeout: Annotated[float, Meta(gt=0)] = 180
    """Seconds after which a command is stopped, unless the call says otherwise."""
    keep_background: bool = False
    """Whether background commands outlive the agent; the next one finds them again."""
    docker: DockerSection = DockerSection()
    ssh: SshSection = SshSection()


class ApprovalsSection(Section, frozen=True):
    mode: Literal["ask", "smart", "never-ask"] = "ask"
    """Who answers what no rule allows: ask: you; smart: a small model decides the clear cases;
    never-ask: only what the sandbox confines is run."""
    rules: tuple[dict[str, Any], ...] = ()
    """Which commands are allowed, need approval or are denied, by their first words."""


class NetworkSection(Section, frozen=True):
    allow: tuple[Domain, ...] = ()
    """Domains that sandboxed commands may reach through the egress proxy; empty: none. `packages`
    lets package managers reach their registries."""


class SandboxSection(Section, frozen=True):
    mode: Literal["read-only", "workspace-write", "full-access"] = "workspace-write"
    """What commands may change. workspace-write: the folder of the session; full-access: they are
    not confined."""
    required: bool = False
    """Whether commands are refused where this machine cannot confine them."""
    network: NetworkSection = NetworkSection()


class SearchSection(Section, frozen=True):
    """The service behind `web_search`."""

    backend: Literal["searxng", "brave", "tavily", "exa", "duckduckgo"] | None = None
    """None: the first one that has a key or a URL."""
    base_url: str = ""
    """The URL of your own SearXNG, or a replacement for a service's default."""
    api_key_env: EnvName = ""
    """The variable that holds the service's key; empty: the usual one."""


class WebSection(Section, frozen=True):
    search: SearchSection = SearchSection()
    allow_hosts: tuple[str, ...] = ()
    """host[:port] of internal hosts that may be fetched from, exactly as written."""
    unattended: Literal["seen", "allow", "deny"] = "seen"
    """What may be fetched without approval when nobody can give it: `seen`: URLs that the user, a
    search result or a page has shown."""


class BrowserSection(Section, frozen=True):
    executable: str = ""
    """A Chromium; empty: the first one found."""
    idle_timeout: Annotated[float, Meta(gt=0)] = 900
    """Seconds without use before it is closed."""


class DisplaySection(Section, frozen=True):
    """The interactive terminal."""

    editing_mode: Literal["emacs", "vi"] = "emacs"
    """The keys with which the prompt is edited."""
    plain: bool = False
    """Line by line, without redrawing, as with --plain."""
    theme: Literal["default", "warm", "contrast", "mono"] = "default"
    """The colours of the terminal."""
    notify: Literal["off", "bell", "desktop"] = "bell"
    """What calls you when a turn ends or asks something after a while."""
    notify_after_seconds: float = 10.0
    """How long a turn must take before you are called."""
    keys: dict[KeyAction, KeyName] = {}
    """Action -> its key in the terminal."""


class ToolSelection(Section, frozen=True):
    """Tools and toolsets by name; a tool's own name takes precedence over its toolset's."""

    enabled: tuple[str, ...] = ()
    """Tools and toolsets that are on although they are off by default."""
    disabled: tuple[str, ...] = ()
    """Tools and toolsets that are off."""


class ToolsSection(ToolSelection, frozen=True):
    platforms: dict[str, ToolSelection] = {}
    """Takes precedence over the selection for all platforms."""


BusyMode: TypeAlias = Literal["interrupt", "steer", "queue"]


class ResetRule(Section, frozen=True):
    """When a conversation starts afresh; None: as the rule that this one overrides."""

    mode: Literal["none", "idle", "daily", "both"] | None = None
    idle_minutes: Annotated[float, Meta(gt=0)] | None = None
    at_hour: Annotated[int, Meta(ge=0, le=23)] | None = None
    notify: bool | None = None


class ResetSection(Section, frozen=True):
    mode: Literal["none", "idle", "daily", "both"] = "none"
    """When a conversation in a chat starts afresh: after a pause, every day, both, or never."""
    idle_minutes: Annotated[float, Meta(gt=0)] = 1440
    """The pause in minutes after which it does."""
    at_hour: Annotated[int, Meta(ge=0, le=23)] = 4
    """The hour of the day at which it does."""
    notify: bool = True
    """Whether the chat is told."""
    notify_exclude_platforms: tuple[str, ...] = ("api_server", "webhook")
    """Platforms on which it is not told."""
    by_type: dict[Literal["dm", "group", "channel"], ResetRule] = {}
    """For dm, group or channel."""
    by_platform: dict[str, ResetRule] = {}
    """Takes precedence over `by_type`."""


class QuickCommand(Section, frozen=True):
    """A command of the chats that runs a shell command, or stands for another command."""

    type: Literal["exec", "alias"]
    command: str = ""
    target: str = ""


class GatewaySection(Section, frozen=True):
    """The messengers."""

    busy_input_mode: BusyMode = "queue"
    """What happens to a message while the agent works."""
    busy_ack: bool = True
    """Whether a chat is told that its message waits."""
    group_sessions_per_user: bool = True
    """Whether people in a group have conversations of their own."""
    thread_sessions_per_user: bool = False
    """Whether people in a thread have conversations of their own."""
    reset: ResetSection = ResetSection()
    on_restart: Literal["tell", "resume", "suspend"] = "tell"
    """What happens to a turn that a restart cut off after a tool had begun."""
    drain_seconds: Seconds = 30
    """How long running turns may take after a signal."""
    approval_seconds: Annotated[float, Meta(gt=0)] = 300
    """How long an approval waits; one that nobody answers is a no."""
    stale_hours: Seconds = 24
    """Older messages are not answered; 0: all are."""
    max_active: Count = 8
    """Turns that run at the same time."""
    max_queued: Count = 20
    """Messages that wait in a conversation; further ones are read together."""
    max_live_sessions: Count = 100
    """Conversations that are kept in memory."""
    idle_evict_minutes: Annotated[float, Meta(gt=0)] = 10
    """Minutes without a message after which one is no longer kept in memory."""
    max_media_bytes: Count = 20_000_000
    """The largest attachment that is accepted, in bytes."""
    media_days: Seconds = 7
    """Days for which attachments are kept."""
    streaming: bool = True
    """Whether answers are shown while they are written."""
    tool_progress: bool = True
    """Whether chats show what tools are doing."""
    profiles: tuple[str, ...] = ()
    """Profiles whose messengers this gateway serves, too."""
    quick_commands: dict[str, QuickCommand] = {}
    """Commands of your own for chats, which run a shell command or stand for another one."""


class BudgetSection(Section, frozen=True):
    """Caps; None: no cap. Tokens are those of the whole prompt and the answer. Users and jobs are
    counted separately, per day."""

    daily_usd: Dollars | None = None
    """Dollars that all calls of a day may cost."""
    session_usd: Dollars | None = None
    """Dollars that one session may cost."""
    user_usd: Dollars | None = None
    """Dollars that each person may cost in a day."""
    job_usd: Dollars | None = None
    """Dollars that each scheduled job may cost in a day."""
    daily_tokens: Tokens | None = None
    """Tokens that all calls of a day may use."""
    session_tokens: Tokens | None = None
    """Tokens that one session may use."""
    user_tokens: Tokens | None = None
    """Tokens that each person may use in a day."""
    job_tokens: Tokens | None = None
    """Tokens that each scheduled job may use in a day."""


class BatchSection(Section, frozen=True):
    """Runs of many prompts."""

    distributions: dict[str, dict[str, Annotated[float, Meta(ge=0, le=100)]]] = {}
    """Further distributions: the chance of each toolset in per cent."""


class ClusterSection(Section, frozen=True):
    """Several nodes that share a PostgreSQL database."""

    database_env: EnvName = "HERMES_DATABASE_URL"
    """The variable with the address of the database: postgresql://user:password@host/name."""
    database: str = ""
    """The address itself, without a password; it comes before the variable."""
    roles: Roles = ("api", "gateway", "worker")
    """What a node does. api: it answers requests; worker: it runs what waits."""
    node: Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{0,64}$")] = ""
    """The name of this node, which no other may have; empty: the host's with a random part."""
    address: Address = ""
    """How other nodes and people reach this one; it is shown by `hermes cluster nodes`."""
    turns: Annotated[int, Meta(ge=1, le=100_000)] = 256
    """How many waiting turns a node runs at a time."""
    lease_seconds: Annotated[float, Meta(ge=3, le=120)] = 10.0
    """After how long without a sign of life a node counts as dead; it gives five in that time."""
    drain_seconds: Seconds = 60.0
    """How long a node that ends waits for the steps that run; other nodes go on from there."""
    patience_seconds: Seconds = 30.0
    """How long turns wait for a database that is away."""
    inbox: Annotated[int, Meta(ge=1, le=100_000)] = 100
    """How many messages may wait for one session; more are refused."""
    workspaces: Annotated[str, Meta(pattern=r"^(none|snapshot|shared:/.+)$")] = "none"
    """none: files stay where they are; snapshot: they follow a session; shared:PATH: one folder."""
    snapshot_mb: Annotated[int, Meta(ge=1, le=1024)] = 64
    """Files of a session that follow it, in MB; the largest ones beyond that stay behind."""
    events_hours: Annotated[float, Meta(ge=1, le=100_000)] = 24.0
    """How long the events of a run are kept after it has ended."""


class TraceSection(Section, frozen=True):
    """What is kept and sent of turns, for whoever wants to know why the agent did what it did."""

    record: Literal["off", "wire"] = "off"
    """wire: the responses of models are kept, so that hermes replay can play a session again."""
    otlp: Address = ""
    """The OTLP/HTTP address of a collector of traces: http://localhost:4318/v1/traces."""
    content: bool = False
    """Whether traces contain prompts, answers, arguments and results."""


class CronSection(Section, frozen=True):
    """The schedule."""

    max_parallel_jobs: Count = 4
    """Jobs that one process runs at once; others wait."""
    output_retention: Count = 50
    """How many results of each job are kept as files."""


class MemoryHttpSection(Section, frozen=True):
    """The service of the memory provider `http`."""

    url: Address = ""
    """The address of the service."""
    api_key_env: EnvName = ""
    """The variable with its key; empty: it needs none."""
    timeout_seconds: Annotated[float, Meta(gt=0, le=30)] = 2
    """How long a turn waits for what it recalls."""


class MemorySection(Section, frozen=True):
    """What the agent remembers beyond a conversation."""

    enabled: bool = True
    """Whether the agent remembers facts from one session to the next."""
    memory_char_limit: Count = 2200
    """Characters of the notes about the work that prompts show."""
    user_char_limit: Count = 1375
    """Characters that the facts about you may take in a prompt."""
    max_facts: Count = 10_000
    """Facts of one scope."""
    write_approval: Literal["tainted", "always", "never"] = "tainted"
    """Which writes of the model ask a person; tainted: those of sessions that have read untrusted
    text."""
    owners: tuple[str, ...] = ()
    """platform:user_id of the people whose direct chats share the memory of the terminal."""
    recall: Literal["tool", "auto"] = "tool"
    """auto: up to three facts that match are added to each message."""
    review: bool = True
    """Whether conversations are looked through for facts, in the background."""
    review_turns: Count = 10
    """After how many of the user's turns."""
    review_daily: Count = 20
    """Most reviews in a day."""
    provider: str = ""
    """Where memory is kept as well: http, or what a plugin has registered; empty: nowhere."""
    http: MemoryHttpSection = MemoryHttpSection()


class SkillsSection(Section, frozen=True):
    """Instructions for certain tasks."""

    external_dirs: tuple[str, ...] = ()
    """More folders with skills."""
    disabled: tuple[str, ...] = ()
    """Skills that are off."""
    index_bytes: Annotated[int, Meta(ge=0)] = 2048
    """Bytes of the list of skills in a prompt; 0: no list."""


class PluginsSection(Section, frozen=True):
    """Code of others that runs inside this program."""

    enabled: tuple[str, ...] = ()
    """In the order in which their hooks are called; nothing else is imported."""
    disabled: tuple[str, ...] = ()
    """Takes precedence over `enabled`."""
    entries: dict[str, dict[str, Any]] = {}
    """Settings of each plugin; `required: true`: no tool runs when its hooks fail."""
    hook_timeout_seconds: Annotated[float, Meta(gt=0)] = 5
    """Seconds that a plugin's hook may take."""


class ShellHook(Section, frozen=True):
    """A command that is run at an event."""

    command: Annotated[str, Meta(min_length=1)]
    """A program and its arguments; no shell reads it."""
    matcher: str = ""
    """A regular expression for whole names of tools; empty: all."""
    timeout: Annotated[float, Meta(gt=0)] = 10


class DelegationSection(Section, frozen=True):
    """The subagents that a session starts."""

    model: str = ""
    """Their model; empty: that of the session."""
    provider: str = ""
    """Who serves the model of subagents; empty: as in the main session."""
    max_concurrent_children: Count = 3
    """How many of a session run at once; others wait."""
    max_spawn_depth: Count = 1
    """1: subagents start none themselves."""
    max_iterations: Count = 50
    """Model calls of each."""
    child_timeout_seconds: Annotated[float, Meta(gt=0)] = 900
    """Seconds after which a subagent is stopped."""


class DashboardSection(Section, frozen=True):
    """The agent in a browser."""

    enabled: bool = False
    """Whether `hermes serve` and `hermes gateway` have it; `hermes dashboard` always does."""
    public_url: Address = ""
    """How a reverse proxy is reached, with its prefix: https://agent.example.org/hermes."""
    session_days: Annotated[int, Meta(ge=1, le=90)] = 30
    """After how many days without use a browser has to sign in again."""
    max_upload_mb: Count = 25
    """The largest file that can be attached."""


class Config(Section, frozen=True):
    model: ModelSection = ModelSection()
    providers: dict[str, ProviderSection] = {}
    """Your own endpoints, and other settings for known ones, by name."""
    fallback_providers: tuple[str, ...] = ()
    """provider:model, in the order to try them."""
    agent: AgentSection = AgentSection()
    compression: CompressionSection = CompressionSection()
    auxiliary: dict[str, AuxiliarySection] = {}
    """Job name -> model."""
    terminal: TerminalSection = TerminalSection()
    approvals: ApprovalsSection = ApprovalsSection()
    sandbox: SandboxSection = SandboxSection()
    web: WebSection = WebSection()
    browser: BrowserSection = BrowserSection()
    display: DisplaySection = DisplaySection()
    tools: ToolsSection = ToolsSection()
    budget: BudgetSection = BudgetSection()
    timezone: str = ""
    """Of schedules that name none, such as Europe/Berlin; empty: the machine's."""
    cron: CronSection = CronSection()
    batch: BatchSection = BatchSection()
    cluster: ClusterSection = ClusterSection()
    trace: TraceSection = TraceSection()
    gateway: GatewaySection = GatewaySection()
    memory: MemorySection = MemorySection()
    skills: SkillsSection = SkillsSection()
    plugins: PluginsSection = PluginsSection()
    hooks: dict[str, tuple[ShellHook, ...]] = {}
    """Event -> the commands that are run at it."""
    delegation: DelegationSection = DelegationSection()
    platforms: dict[str, dict[str, Any]] = {}
    """Each platform checks its own keys."""
    dashboard: DashboardSection = DashboardSection()
    mcp_servers: dict[str, dict[str, Any]] = {}
    """Each server checks its own keys, so that a broken one harms no other."""
