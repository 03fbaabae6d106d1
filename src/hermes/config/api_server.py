"""The settings of the API server: `platforms.api_server` of config.yaml, and the environment."""

import re
from collections.abc import Mapping
from ipaddress import ip_address
from itertools import pairwise
from math import log2
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta, structs

from hermes.config.schema import Config, Count, EnvName, Section
from hermes.core.errors import ConfigError

DEFAULT_PORT = 8642
MIN_KEY_LENGTH = 16
SAFE_KEY_LENGTH = 32
"""From here on a key needs no other sign of being random."""
_MIN_KEY_BITS = 64
KEY_COMMAND = 'python3 -c "import secrets; print(secrets.token_urlsafe(32))"'
_PLACEHOLDERS = frozenset(
    "changeme changethis changeit yourapikey yourkey yoursecret yourtoken yourown yourpassword "
    "keyhere tokenhere secrethere placeholder replaceme replacethis replacewith insertyour "
    "example apiserverkey secretkeysecretkey passwordpassword".split()
)
"""Words found in placeholder keys, without separators; no random key contains one of them."""
_RUN = re.compile(r"[a-z]+|[A-Z]+|[0-9]+|.", re.DOTALL)
VARIABLES = tuple(
    f"API_SERVER_{name}"
    for name in ("ENABLED", "HOST", "PORT", "KEY", "CORS_ORIGINS", "MODEL_NAME")
)
_TRUE = frozenset({"1", "true", "yes", "on"})
Scope: TypeAlias = Literal["chat", "sessions", "runs", "approve", "metrics", "admin"]
SCOPES: tuple[Scope, ...] = ("chat", "sessions", "runs", "approve", "metrics")
"""The scopes of a key unless it lists its own; `admin` has to be listed."""
ToolExecution: TypeAlias = Literal["client", "server", "both"]
ToolItems: TypeAlias = Literal["function_call", "mcp_call"]
Port: TypeAlias = Annotated[int, Meta(ge=0, le=65535)]


class NamedKey(Section, frozen=True):
    """A client with a key of its own, and with sessions, responses and runs of its own."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    key_env: EnvName
    """The variable that holds the key."""
    scopes: tuple[Scope, ...] = SCOPES
    requests_per_minute: Count | None = None
    concurrent_runs: Count | None = None
    daily_usd: Annotated[float, Meta(ge=0)] | None = None
    tool_execution: ToolExecution | None = None


class ApiServer(Section, frozen=True):
    enabled: bool = False
    host: str = "127.0.0.1"
    port: Port = DEFAULT_PORT
    key: str = ""
    key_env: EnvName = ""
    keys: tuple[NamedKey, ...] = ()
    cors_origins: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    model_name: str = ""
    max_request_bytes: Count = 10_000_000
    max_stored_responses: Count = 100
    max_connections: Count = 2048
    max_connections_per_address: Count = 2048
    concurrent_runs: Count = 1024
    requests_per_minute: Count | None = None
    max_output_tokens: Count | None = None
    """The most a client may request."""
    reasoning: bool = False
    """Whether clients see reasoning, as `reasoning_content` and as thinking blocks."""
    toolsets: tuple[str, ...] | None = None
    """None: those of the platform `api`."""
    tool_execution: ToolExecution | None = None
    """Who runs tools, unless a request chooses. None: the client those it declares, the server its
    own in requests that declare none."""
    tool_items: ToolItems = "function_call"
    """How a response shows tool calls that ran on the server, for requests that declare no
    functions; X-Hermes-Tool-Items chooses as well."""
    images: Literal["link", "keep"] = "link"
    """What happens to remote images in the answers of a session that has read private data and
    untrusted text: clients fetch them without asking, and an image's URL can carry data out."""
    access_log: bool = False
    """Whether each request is logged in one line, never with its query, headers or body."""
    drain_seconds: Annotated[float, Meta(ge=0)] = 10.0


def read_settings(config: Config, environ: Mapping[str, str]) -> tuple[ApiServer, tuple[str, ...]]:
    """The settings, and notes for the operator. Raises ConfigError when a value is invalid."""
    raw = dict(config.platforms.get("api_server", {}))
    if isinstance(raw.get("cors_origins"), str):
        raw["cors_origins"] = _split_list(raw["cors_origins"])
    try:
        settings = msgspec.convert(raw, ApiServer)
    except msgspec.ValidationError as error:
        # msgspec writes `$.keys[0].name` for keys[0].name.
        text = str(error).replace("`$.", "`").replace(" - at", " at").rstrip(".")
        raise ConfigError(f"platforms.api_server: {text}.") from None
    notes: list[str] = []
    changes = _read_variables(environ, notes)
    return structs.replace(settings, **changes), tuple(notes)


def _read_variables(environ: Mapping[str, str], notes: list[str]) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    for name, field in (("KEY", "key"), ("HOST", "host"), ("MODEL_NAME", "model_name")):
        if value := environ.get(f"API_SERVER_{name}", "").strip():
            changes[field] = value
    if "key" in changes:
        changes["enabled"] = True
    if value := environ.get("API_SERVER_ENABLED", "").strip().lower():
        changes["enabled"] = value in _TRUE
    if value := environ.get("API_SERVER_CORS_ORIGINS", ""):
        changes["cors_origins"] = _split_list(value)
    if value := environ.get("API_SERVER_PORT", "").strip():
        if value.isascii() and value.isdigit() and int(value) <= 65535:
            changes["port"] = int(value)
        else:
            notes.append(f"API_SERVER_PORT {value!r} is not a port; using {DEFAULT_PORT}.")
            changes["port"] = DEFAULT_PORT
    return changes


def _split_list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_exposure(settings: ApiServer, keys: Mapping[str, str]) -> None:
    """Raise ConfigError when other machines could reach the server without a strong key.
    `keys`: name -> key."""
    if is_loopback(settings.host):
        return
    advice = f"Make one with `{KEY_COMMAND}` and set API_SERVER_KEY, or bind to 127.0.0.1."
    if not keys:
        raise ConfigError(
            f"The API server would listen on {settings.host} without a key: anyone who reaches it "
            f"could run commands on this machine. {advice}"
        )
    for name, key in keys.items():
        if is_guessable(key):
            raise ConfigError(
                f"The API server would listen on {settings.host} with a key "
                f"({name or 'API_SERVER_KEY'}) that is easy to guess: use "
                f"{SAFE_KEY_LENGTH} random characters. {advice}"
            )


def is_guessable(key: str) -> bool:
    """Whether a key is too short, a placeholder, regular, or neither long nor random."""
    letters = "".join(c for c in key.lower() if c.isalpha())
    is_placeholder = any(word in letters for word in _PLACEHOLDERS)
    steps = [abs(ord(one) - ord(next_one)) for one, next_one in pairwise(key)]
    is_regular = len(set(key)) < 5 or key in (key + key)[1:-1] or 2 * steps.count(1) > len(key)
    is_short = len(key) < SAFE_KEY_LENGTH and _estimate_bits(key) < _MIN_KEY_BITS
    return len(key) < MIN_KEY_LENGTH or is_placeholder or is_regular or is_short


def _estimate_bits(key: str) -> float:
    """How much a guesser does not know. Of letters in a row, or digits, only three count: more of
    them are probably a word or a year."""
    counted = sum(min(len(run), 3) for run in _RUN.findall(key))
    shares = [key.count(character) / len(key) for character in set(key)]
    return counted * -sum(share * log2(share) for share in shares)
