"""From what a user wrote, or left out, to one endpoint with a model, an address and a key."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct, structs

from hermes.config.schema import Config, Model, ModelSettings, Price, Provider
from hermes.config.secrets import Secrets
from hermes.core.errors import ConfigError
from hermes.core.message import Target
from hermes.llm.auth.key_pool import Credential
from hermes.llm.auth.logins import flow_of, reaches, stored
from hermes.llm.endpoints.catalog import (
    CUSTOM,
    KEYS,
    LOGINS,
    SLUGS,
    Auth,
    Choice,
    Endpoint,
    find,
    makers_of,
    timeouts,
    wire_for,
)
from hermes.llm.endpoints.match import like, own, quirks_of, without_version
from hermes.llm.endpoints.model_facts import DEFAULT_OUTPUT, UNKNOWN, ModelFacts, Prices, facts
from hermes.llm.provider_spec import ProviderSpec, Quirks, WireName

EMBEDDED = "local"
_SET = "in the environment or in .env"
NOTHING = (
    "No model is configured: set the key of a provider (e.g. OPENROUTER_API_KEY, "
    f"ANTHROPIC_API_KEY or OPENAI_API_KEY) {_SET}, or model.base_url and model.default for a "
    "server of your own. Or run a small one on this machine: pip install 'hermes-runtime[local]'."
)


class Wanted(Struct, frozen=True):
    """An endpoint as far as it has been decided."""

    provider: str = ""
    model: str = ""
    base_url: str = ""
    api_mode: str = ""
    key_env: str = ""
    configured: bool = False
    """Whether the settings of the section `model` belong to it."""
    note: str = ""
    """What the user is told about the choice."""


class Chooser:
    """Reads; asks nobody."""

    def __init__(self, config: Config, secrets: Secrets) -> None:
        self._config = config
        self._secrets = secrets

    def primary(self, choice: Choice) -> Endpoint:
        wanted = self._asked(choice)
        if not wanted.provider:
            wanted = self._by_environment(wanted)
        endpoint = self._endpoint(wanted)
        if isinstance(endpoint, str):
            raise ConfigError(endpoint)
        return endpoint

    def undecided(self, choice: Choice) -> bool:
        """Whether nothing that was written or set says what to call."""
        wanted = self._asked(choice)
        if wanted.provider:
            return False
        try:
            return self._by_environment(wanted).provider == EMBEDDED
        except ConfigError:
            return True

    def fallback(self, entry: str) -> Endpoint | None:
        """None when it has no key: it is skipped at once."""
        name, colon, model = entry.partition(":")
        if not colon or not self._known(name):
            raise ConfigError(
                f"fallback_providers: {entry!r} is not of the form provider:model with a provider "
                "that is built in or configured under providers."
            )
        endpoint = self._endpoint(Wanted(provider=name, model=model))
        return None if isinstance(endpoint, str) else endpoint

    # -- what was asked for ----------------------------------------------------------------

    def _asked(self, choice: Choice) -> Wanted:
        """Flags over the section `model`. Another provider or address than the configured one
        brings none of its key, address, protocol and model along; only between addresses of one's
        own the model stays."""
        written = self._written()
        provider = choice.provider or (CUSTOM if choice.base_url else "")
        model = choice.model
        if not provider and model:
            provider, model = self._prefixed(model, written.provider)
        keep = not provider or (not choice.base_url and _same(provider, written.provider))
        base = written if keep else Wanted()
        if choice.base_url and not choice.provider and written.provider in ("", CUSTOM):
            model = model or written.model  # another address for the same model
        return Wanted(
            provider or base.provider,
            model or base.model,
            choice.base_url or base.base_url,
            choice.api_mode or base.api_mode,
            choice.api_key_env or base.key_env,
            base.configured,
        )

    def _written(self) -> Wanted:
        section = self._config.model
        provider = section.provider or (CUSTOM if section.base_url else "")
        model = section.default
        if not provider and model:
            provider, model = self._prefixed(model, "")
        return Wanted(
            provider, model, section.base_url, section.api_mode or "", section.api_key_env, True
        )

    def _prefixed(self, model: str, provider: str) -> tuple[str, str]:
        """(provider, model) of `provider:model` and `provider/model`. Where a provider is set
        already, the prefix must name one that can be called: local models have colons too."""
        name, colon, rest = model.partition(":")
        if colon and rest and self._known(name) and (not provider or self._callable(name)):
            return name, rest
        vendor, slash, rest = model.partition("/")
        if not slash or not rest or provider:
            return "", model
        if vendor in self._config.providers:
            return vendor, rest
        if vendor in SLUGS:
            # What this one routes by itself (vendor/auto) it names like a vendor's model.
            own = vendor == SLUGS[0] and "/" not in rest
            return vendor, model if own else rest
        if self._callable(SLUGS[0]):
            return SLUGS[0], model
        if find(vendor) is not None and self._callable(vendor):
            return vendor, _native(rest, vendor)
        return next(((a, model) for a in SLUGS[1:] if self._callable(a)), ("", model))

    def _by_environment(self, wanted: Wanted) -> Wanted:
        """Nobody said which provider: the one whose key is there."""
        if base_url := self._secrets.get("OPENAI_BASE_URL"):
            key = wanted.key_env or ("OPENAI_API_KEY" if self._has("OPENAI_API_KEY") else "")
            # The variable is OpenAI's: without a name it is their model that is meant.
            model = wanted.model or ((row := find("openai")) and row.default_model) or ""
            return structs.replace(
                wanted, provider=CUSTOM, model=model, base_url=base_url, key_env=key
            )
        name = wanted.model.lower()
        if maker := next((m for m in makers_of(name) if self._callable(m)), ""):
            return structs.replace(wanted, provider=maker)
        usable = self._usable(wanted.model)
        if (first := next(usable, "")) and name and facts(first, name) == UNKNOWN:
            # Not because an aggregator has it: those have everybody's.
            direct = (p for p in usable if (row := find(p)) and not row.aggregator)
            first = next((p for p in direct if facts(p, name) != UNKNOWN), first)
        if first:
            return structs.replace(wanted, provider=first)
        for provider in (*LOGINS, *self._config.providers):
            logged_in = self._secrets.login(provider) is not None and reaches(find(provider), name)
            if logged_in and self._callable(provider, wanted.model):
                return structs.replace(wanted, provider=provider)
        if wanted.model and "/" in wanted.model:
            vendor = wanted.model.partition("/")[0]
            spec = find(vendor)
            named = f" or {spec.keys[0]}" if spec and spec.keys else ""
            raise ConfigError(f"No key for {wanted.model}: set OPENROUTER_API_KEY{named} {_SET}.")
        if wanted.model:
            raise ConfigError(_nobody(wanted.model))
        if last := self._last_resort():
            return last
        raise ConfigError(NOTHING)

    def _usable(self, model: str) -> Iterator[str]:
        """Who could be called by their key for a model of this name."""
        for variable, provider in KEYS.items():
            if self._has(variable) and self._callable(provider, model):
                yield provider

    def _last_resort(self) -> Wanted | None:
        """The embedded model, where it can run."""
        from hermes.llm.endpoints import embedded as finding

        if not finding.installed():
            return None
        model = finding.default(self._secrets).name
        return Wanted(provider=EMBEDDED, model=model, note=finding.NOTE)

    # -- what it takes ---------------------------------------------------------------------

    def _endpoint(self, wanted: Wanted) -> Endpoint | str:
        """The endpoint, or the sentence that says what is missing."""
        spec = find(wanted.provider)
        name = spec.name if spec else wanted.provider
        rows = self._config.providers
        row = rows.get(wanted.provider) or rows.get(name) or Provider()
        if spec is None and name not in (CUSTOM, *rows):
            from difflib import get_close_matches

            close = get_close_matches(name, {*KEYS.values(), *rows}, 1)
            meant = f"did you mean {close[0]}? Else" if close else "use a built-in one, or"
            return f"Provider {name!r} is unknown: {meant} configure providers.{name}.base_url."
        if spec is not None and spec.embedded:
            return self._embedded(wanted, spec, row)
        base_url = self._base_url(wanted, spec, row)
        if not base_url.startswith(("http://", "https://")):
            return base_url
        model = wanted.model.removeprefix(f"{wanted.provider}:") or (
            spec.default_model if spec else ""
        )
        if not model:
            return f"No model is set for {name}: give --model or set model.default."
        keys = self._keys(wanted, spec, row, base_url)
        if isinstance(keys, str):
            return keys
        wire = wire_for(base_url, wanted.api_mode or row.api_mode, name)
        kin = like(spec, base_url, wire)
        settings = row.models.get(model, ModelSettings())
        section = self._config.model if wanted.configured else Model()
        if settings.price != Price() and None in (settings.price.input, settings.price.output):
            return f"providers.{name}.models.{model}.price needs both input and output."
        known = _facts(spec, base_url, model, settings.price)
        quirks = _calling(quirks_of(kin, spec, base_url, model), row, settings)
        return Endpoint(
            Target(name, model, wire),
            base_url,
            quirks=_within(quirks, wire, known),
            keys=keys,
            pool=row.pool,
            login=flow_of(spec, row) if keys and keys[0].login else None,
            headers=kin.headers if kin else {},
            auth=_auth(wire, kin, keys),
            timeouts=timeouts(row, settings),
            context_length=settings.context_length or section.context_length or known.context,
            max_output=settings.max_tokens or section.max_tokens,
            note=without_version(base_url, wire),
            facts=known,
        )

    def _embedded(self, wanted: Wanted, spec: ProviderSpec, row: Provider) -> Endpoint | str:
        from hermes.llm.endpoints import embedded as finding

        model = wanted.model.removeprefix(f"{wanted.provider}:") or spec.default_model
        settings = row.models.get(model, ModelSettings())
        section = self._config.model if wanted.configured else Model()
        limits = finding.Limits(
            settings.context_length or section.context_length,
            settings.max_tokens or section.max_tokens,
        )
        return finding.endpoint(spec, model, self._secrets, limits, wanted.note)

    def _base_url(self, wanted: Wanted, spec: ProviderSpec | None, row: Provider) -> str:
        """The address, or a sentence about it."""
        url = wanted.base_url or row.base_url
        if not url and wanted.provider == CUSTOM:
            url = self._secrets.get("OPENAI_BASE_URL") or ""
            if not url:
                return "Provider 'custom' has no address: set model.base_url."
        if not url and spec is not None:
            url, missing = self._filled(spec.base_url)
            if missing:
                return f"{spec.name} needs {missing} {_SET}."
        if not url.startswith(("http://", "https://")):
            return f"The address {url!r} is not a URL: it must begin with http:// or https://."
        if "@" in url.partition("://")[2].partition("/")[0]:
            return "The address must not hold a user name or a password: use api_key_env."
        return url.rstrip("/")

    def _filled(self, template: str) -> tuple[str, str]:
        """Addresses that hold an account's own part: `{A_VARIABLE|ANOTHER|=default}`."""
        missing: list[str] = []

        def value(match: re.Match[str]) -> str:
            names = match[1].split("|")
            for name in names:
                found = name[1:] if name.startswith("=") else self._secrets.get(name)
                if found:
                    return found.rstrip("/")
            missing.append(names[0])
            return ""

        return re.sub(r"\{([^}]+)\}", value, template), " and ".join(missing)

    def _keys(
        self, wanted: Wanted, spec: ProviderSpec | None, row: Provider, base_url: str
    ) -> tuple[Credential, ...] | str:
        """A named variable must hold a key; otherwise the usual ones are looked through, and a
        server of one's own needs none."""
        pool = row.api_key_envs or ((row.api_key_env,) if row.api_key_env else ())
        named: tuple[str, ...] = (wanted.key_env,) if wanted.key_env else pool
        if wanted.configured and wanted.key_env == self._config.model.api_key_env:
            named = tuple(dict.fromkeys((*named, *row.api_key_envs)))  # no flag says: this one
        usual = spec.keys if spec else ()
        keys = tuple(Credential(v, k) for v in named or usual if (k := self._secrets.get(v)))
        if keys:
            return keys if named else keys[:1]
        name = spec.name if spec else wanted.provider
        if not named and (login := stored(self._secrets, name, spec, row, base_url)):
            return login
        if not named and spec is not None and spec.auth == "aws":
            return self._aws()
        logs_in = flow_of(spec, row) is not None
        if not named and (spec is None or spec.auth == "none") and not logs_in:
            return ()
        variables = ", ".join(named) or " or ".join(usual)
        if not variables and logs_in:
            return f"You are not logged in to {name}: run hermes auth login {name}."
        if not variables:
            return f"The key for {wanted.provider} is missing: name its variable in api_key_env."
        return f"The key for {wanted.provider} is missing: set {variables} {_SET}."

    def _aws(self) -> tuple[Credential, ...] | str:
        """Keys of .env are not in the environment, where botocore would look for itself."""
        from hermes.llm.auth import aws

        if not aws.installed():
            return aws.MISSING
        id = self._secrets.get("AWS_ACCESS_KEY_ID")
        secret = self._secrets.get("AWS_SECRET_ACCESS_KEY")
        if not id or not secret:
            return ()
        token = self._secrets.get("AWS_SESSION_TOKEN") or ""
        return (Credential("AWS_SECRET_ACCESS_KEY", secret, id, token),)

    # -- what is there ---------------------------------------------------------------------

    def _has(self, variable: str) -> bool:
        return self._secrets.get(variable) is not None

    def _known(self, name: str) -> bool:
        return name in self._config.providers or find(name) is not None

    def _callable(self, name: str, model: str = "?") -> bool:
        """Whether it could be called now."""
        return isinstance(self._endpoint(Wanted(name, model)), Endpoint)


def _facts(spec: ProviderSpec | None, base_url: str, model: str, price: Price) -> ModelFacts:
    """What is known of the model, with the configured price before the listed one. What is free on
    one's own machine need not be elsewhere."""
    known = facts(spec.name, model) if spec is not None else UNKNOWN
    if price.input is not None and price.output is not None:
        prices = Prices(price.input, price.output, price.cache_read, price.cache_write)
        return structs.replace(known, prices=prices)
    if spec is not None and spec.auth == "none" and not own(base_url):
        return structs.replace(known, prices=None)
    return known


def _calling(quirks: Quirks, row: Provider, settings: ModelSettings) -> Quirks:
    said = settings.tool_calls or row.tool_calls
    return structs.replace(quirks, calling=said) if said else quirks


def _within(quirks: Quirks, wire: WireName, known: ModelFacts) -> Quirks:
    """Where a limit is sent unasked, it is none the model does not have."""
    default = quirks.max_tokens_default or (DEFAULT_OUTPUT if wire == "anthropic" else None)
    if default is None or known.output is None or known.output >= default:
        return quirks
    return structs.replace(quirks, max_tokens_default=known.output)


def _same(one: str, other: str) -> bool:
    a, b = find(one), find(other)
    return one == other or (a is not None and a is b)


def _nobody(model: str) -> str:
    """Why a model that was named cannot be asked."""
    spec = next(map(find, makers_of(model)), None)
    key = spec.keys[0] if spec and spec.keys else "the key of a provider that has it"
    return (
        f"Nobody is connected who has the model {model!r}: set {key} {_SET}, or say who has it, as "
        "provider:model or with model.base_url for a server of your own. No model server on this "
        "machine offers it."
    )


def _native(model: str, vendor: str) -> str:
    """Aggregators write claude-sonnet-4.5 where the maker writes claude-sonnet-4-5."""
    spec = find(vendor)
    if spec is not None and spec.wire == "anthropic":
        return re.sub(r"(?<=\d)\.(?=\d)", "-", model)
    return model


def _auth(wire: WireName, kin: ProviderSpec | None, keys: tuple[Credential, ...]) -> Auth:
    if wire == "bedrock":
        return "bearer" if keys and not keys[0].id else "aws"
    if not keys:
        return "none"
    return kin.auth if kin and kin.auth not in ("none", "aws") else "bearer"
