"""The stored keys and logins: where each comes from and what state it is in."""

import time
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Literal

from msgspec import Struct

from hermes.config.schema import Config, ProviderSection
from hermes.config.secrets import Secrets
from hermes.core.errors import ConfigError
from hermes.llm.auth.cooldown import Cooldowns
from hermes.llm.auth.logins import find_login_flow
from hermes.llm.auth.oauth import tokens
from hermes.llm.endpoints.endpoint import CUSTOM, ModelChoice
from hermes.llm.endpoints.resolver import resolve_chain
from hermes.llm.provider_spec import OAuthSpec, ProviderSpec
from hermes.llm.providers import find_provider, provider_index


class StoredCredential(Struct, frozen=True):
    """One key or login; `value` is never shown."""

    provider: str
    kind: Literal["key", "login"]
    name: str
    """The variable that holds a key; empty: a login."""
    source: str
    """environment, .env, or the program a login was adopted from ("login": made here)."""
    value: str
    used: bool = True
    """Whether calls use it under the current configuration."""
    cooling: float = 0.0
    """Seconds left of its cooldown."""
    why: str = ""
    expires: float = 0.0
    """When the token of a login expires; 0: not stated."""
    renewable: bool = False

    def __repr__(self) -> str:
        return f"StoredCredential({self.provider!r}, {self.name or self.source!r})"

    @property
    def key_hint(self) -> str:
        """The end of the key: enough to tell keys apart, too little to use."""
        return f"…{self.value[-4:]}" if len(self.value) >= 16 else "…"

    @property
    def state(self) -> str:
        if self.cooling:
            return f"cooling down for {_format_span(self.cooling)} ({self.why})"
        if self.kind == "login" and self.expires:
            if (left := self.expires - time.time()) > 0:
                then = ", then renewed" if self.renewable else ""
                return f"valid for {_format_span(left)}{then}"
            return "will be renewed at the next call" if self.renewable else "expired"
        return "in use" if self.used else "not used: another one has priority"


class NamedProvider(Struct, frozen=True):
    """A provider by name, with its built-in row and its configuration."""

    name: str
    spec: ProviderSpec | None
    row: ProviderSection

    @property
    def login_flow(self) -> OAuthSpec | None:
        return find_login_flow(self.spec, self.row)

    @property
    def usual_variable(self) -> str:
        """The variable for a first key; empty: this provider has logins instead of keys."""
        if self.row.api_key_env or self.row.api_key_envs:
            return self.row.api_key_env or self.row.api_key_envs[0]
        if self.spec is not None and self.spec.keys:
            return self.spec.keys[0]
        if self.login_flow is not None:
            return ""
        return "".join(c if c.isalnum() else "_" for c in self.name.upper()) + "_API_KEY"

    @property
    def needs_api_key_env(self) -> bool:
        """Whether the variable is only read when the configuration names it."""
        configured = self.row.api_key_env or self.row.api_key_envs
        return not configured and self.usual_variable not in (self.spec.keys if self.spec else ())


def find_configured_provider(config: Config, name: str) -> NamedProvider:
    """The provider of that name; ConfigError with similar names when there is none."""
    spec = find_provider(name)
    known = spec.name if spec is not None else name
    row = config.providers.get(name) or config.providers.get(known)
    if spec is None and row is None and name != CUSTOM:
        index = provider_index()
        names = (*index.names, *index.aliases, *config.providers)
        close = get_close_matches(name.lower(), names, 3, 0.6)
        near = f" Did you mean {' or '.join(close)}?" if close else ""
        raise ConfigError(
            f"There is no provider {name!r}.{near} To add your own: hermes model custom URL, or "
            f"providers.{name}.base_url in config.yaml."
        )
    return NamedProvider(known, spec, row or ProviderSection())


def key_variables(config: Config, provider: NamedProvider) -> tuple[str, ...]:
    """The variables searched for keys of a provider, in order."""
    row, section = provider.row, config.model
    main_name = section.provider or (CUSTOM if section.base_url else "")
    main = find_provider(main_name)
    if section.api_key_env and provider.name == (main.name if main is not None else main_name):
        return tuple(dict.fromkeys((section.api_key_env, *row.api_key_envs)))
    named_ones = row.api_key_envs or ((row.api_key_env,) if row.api_key_env else ())
    return named_ones or (provider.spec.keys if provider.spec is not None else ())


def list_credentials(
    config: Config, secrets: Secrets, cooldowns: Cooldowns, provider: NamedProvider
) -> list[StoredCredential]:
    """All keys and logins of one provider."""
    found: list[StoredCredential] = []
    base_url = _base_url(config, secrets, provider)
    pooled = bool(provider.row.api_key_envs)
    for variable in key_variables(config, provider):
        if (value := secrets.get(variable)) is None:
            continue
        cooldown, left = (
            cooldowns.find((base_url, value)),
            cooldowns.seconds_left((base_url, value)),
        )
        why = cooldown.why if cooldown is not None else ""
        source, used = secrets.find_source(variable), pooled or not found
        key = StoredCredential(provider.name, "key", variable, source, value, used, left, why)
        found.append(key)
    file = secrets.find_login(provider.name)
    token = tokens.load_token(file) if file is not None else None
    if token is not None:
        login = StoredCredential(
            provider.name,
            "login",
            "",
            token.origin or "login",
            token.refresh or token.access,
            used=not found,
            expires=token.expires,
            renewable=bool(token.refresh),
        )
        found.append(login)
    return found


def list_all_credentials(
    config: Config, secrets: Secrets, cooldowns: Cooldowns
) -> list[StoredCredential]:
    """All keys and logins, by provider name; providers the user added come last."""
    own = [name for name in config.providers if find_provider(name) is None]
    names = (*provider_index().names, *dict.fromkeys([*own, CUSTOM]))
    providers = [find_configured_provider(config, name) for name in names]
    return [c for p in providers for c in list_credentials(config, secrets, cooldowns, p)]


def free_name(secrets: Secrets, taken: Sequence[str], usual: str) -> str:
    """The first unused variable of NAME, NAME_2, NAME_3, ..."""
    for number in range(1, 1000):
        name = usual if number == 1 else f"{usual}_{number}"
        if name not in taken and secrets.get(name) is None:
            return name
    raise ConfigError(f"There are too many keys like {usual}.")


def _base_url(config: Config, secrets: Secrets, provider: NamedProvider) -> str:
    try:
        choice = ModelChoice(provider=provider.name, model="?")
        return resolve_chain(config, secrets, choice)[0].base_url
    except ConfigError:
        return ""


def _format_span(seconds: float) -> str:
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
