"""Principals: the owners of API keys, their scopes and their limits."""

import asyncio
import hashlib
import hmac
import time
from collections.abc import Mapping, Sequence

from msgspec import Struct

from hermes.config.api_server import SCOPES, ApiServer, Scope, ToolExecution, check_exposure
from hermes.config.secrets import Secrets
from hermes.core.errors import ConfigError
from hermes.server.http.errors import ApiError
from hermes.server.http.peer_user import is_own_user
from hermes.store.tables.tenancy import OPERATOR, TenantLimits

_MISSING_KEY = "Missing API key. Send the header Authorization: Bearer KEY."
_OTHER_USER = (
    "This server has no key and accepts only the user who runs it. For other users, start it with "
    "API_SERVER_KEY set and send the header Authorization: Bearer KEY."
)
BURST_SHARE = 1 / 3
"""The part of a minute's requests that may arrive at once."""


class Principal(Struct, frozen=True):
    """A caller. Sessions, responses and runs of one principal are invisible to all others."""

    name: str = ""
    digest: bytes = b""
    scopes: frozenset[Scope] = frozenset(SCOPES)
    requests_per_minute: int | None = None
    concurrent_runs: int | None = None
    daily_usd: float | None = None
    tool_execution: ToolExecution | None = None
    tenant: int = OPERATOR
    """Whose rows it sees; only in a cluster there are others than the operator's."""
    limits: TenantLimits = TenantLimits()

    @property
    def has_key(self) -> bool:
        return bool(self.digest)

    @property
    def owns_others(self) -> bool:
        """Whether sessions from outside the server are its own: only the operator's key shows
        that they are, and a tenant's that everything of the tenant is."""
        return self.has_key and (not self.name or self.tenant != OPERATOR)

    @property
    def is_admin(self) -> bool:
        return "admin" in self.scopes

    @property
    def is_operator(self) -> bool:
        """Whether it is a browser that signed in with a code."""
        return self.is_admin and not self.name

    @property
    def may_save_rules(self) -> bool:
        """Whether its *always* outlives the session."""
        return not self.name or self.is_admin


class Principals:
    """All callers. Without any key, the user who runs the server is the nameless principal, and
    nobody else on this machine is let in."""

    def __init__(self, settings: ApiServer, keys: Mapping[str, str]) -> None:
        self._all = [_build_principal(settings, name, key) for name, key in keys.items()]
        self._operator = Principal(
            requests_per_minute=settings.requests_per_minute,
            tool_execution=settings.tool_execution,
        )
        self._tokens: dict[str, tuple[float, float]] = {}

    def identify(
        self, headers: Sequence[str], transport: asyncio.BaseTransport | None = None
    ) -> Principal:
        """The owner of the key in these Authorization headers, or of the connection if the server
        has no keys; 401 if there is none."""
        if not self._all:
            if not is_own_user(transport):
                raise unauthorized(_OTHER_USER)
            return self._operator
        if len(headers) > 1:
            raise ApiError(400, "Send only one Authorization header.")
        scheme, _, key = (headers[0] if headers else "").partition(" ")
        found = self.find_owner(key)
        if found is None or scheme.lower() != "bearer" or not key.strip():
            text = "Invalid API key." if headers else _MISSING_KEY
            raise unauthorized(text)
        return found

    def find_named(self, name: str) -> Principal | None:
        """The owner of a key by name, the operator without one; None: there is no such key now."""
        if not name:
            return self._operator
        return next((principal for principal in self._all if principal.name == name), None)

    def find_owner(self, key: str) -> Principal | None:
        """The owner of a key; None when nobody has it."""
        return self.find_owner_by_digest(_hash_key(key.strip()))

    def find_by_name(self, name: str) -> Principal | None:
        """The principal of this name; None: its key is gone."""
        if not self._all and not name:
            return self._operator
        return next((principal for principal in self._all if principal.name == name), None)

    def find_owner_by_digest(self, digest: bytes) -> Principal | None:
        found = None
        for principal in self._all:  # no early exit: timing must not reveal a match
            if hmac.compare_digest(digest, principal.digest):
                found = principal
        return found

    def count_request(self, principal: Principal) -> None:
        """Count a request against the rate limit of its principal; 429 when it is exceeded."""
        rate = principal.requests_per_minute
        if rate is None:
            return
        per_second = rate / 60.0
        burst = max(1.0, rate * BURST_SHARE)
        now = time.monotonic()
        left, counted_at = self._tokens.get(principal.name, (burst, now))
        left = min(burst, left + (now - counted_at) * per_second)
        if left < 1.0:
            self._tokens[principal.name] = (left, now)
            raise rate_error(f"at most {rate} per minute", (1.0 - left) / per_second)
        self._tokens[principal.name] = (left - 1.0, now)


def rate_error(limit: str, seconds: float) -> ApiError:
    wait = str(int(seconds) + 1)
    text = f"Too many requests: {limit}. Try again in {wait} s."
    return ApiError(429, text, code="rate_limit_exceeded", headers={"Retry-After": wait})


def unauthorized(text: str) -> ApiError:
    headers = {"WWW-Authenticate": "Bearer"}
    return ApiError(401, text, code="invalid_api_key", headers=headers)


def load_keys(settings: ApiServer, secrets: Secrets) -> dict[str, str]:
    """The keys by name; the key of `key` or `key_env` has the empty name. Raises ConfigError if one
    is missing, or too weak for a public address."""
    keys: dict[str, str] = {}
    unnamed = settings.key or (secrets.get(settings.key_env) if settings.key_env else "") or ""
    if settings.key_env and not unnamed:
        raise ConfigError(f"platforms.api_server.key_env: {settings.key_env} is not set.")
    if unnamed:
        keys[""] = unnamed
    for entry in settings.keys:
        key = secrets.get(entry.key_env)
        if not key:
            raise ConfigError(
                f"platforms.api_server.keys: {entry.key_env}, the key of {entry.name}, is not set "
                "in the environment or in .env."
            )
        if entry.name in keys or key in keys.values():
            raise ConfigError(f"platforms.api_server.keys: {entry.name} is listed twice.")
        keys[entry.name] = key
    check_exposure(settings, keys)
    return keys


def _build_principal(settings: ApiServer, name: str, key: str) -> Principal:
    rate = settings.requests_per_minute
    entry = next((entry for entry in settings.keys if entry.name == name), None)
    if entry is None:
        execution = settings.tool_execution
        return Principal("", _hash_key(key), requests_per_minute=rate, tool_execution=execution)
    rate, scopes = entry.requests_per_minute or rate, frozenset(entry.scopes)
    limits = (rate, entry.concurrent_runs, entry.daily_usd)
    execution = entry.tool_execution or settings.tool_execution
    return Principal(name, _hash_key(key), scopes, *limits, tool_execution=execution)


def _hash_key(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
