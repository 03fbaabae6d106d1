"""The models a user can choose, which one of them is meant, and how it is saved."""

import asyncio
from typing import Any

from msgspec import Struct

from hermes.config.load import Setup, load_setup
from hermes.config.schema import Config
from hermes.config.update import apply_changes
from hermes.core.errors import ConfigError
from hermes.llm.auth.cooldown import Cooldowns
from hermes.llm.client import Client
from hermes.llm.endpoints.embedded import is_engine_installed
from hermes.llm.endpoints.endpoint import CUSTOM, ModelChoice, ModelEndpoint
from hermes.llm.endpoints.inventory import find_configured_provider, list_all_credentials
from hermes.llm.endpoints.local_servers import find_servers
from hermes.llm.endpoints.model_facts import ModelFacts, find_facts
from hermes.llm.endpoints.model_facts import list_models as list_known_models
from hermes.llm.endpoints.resolver import resolve_chain
from hermes.llm.http.transport import Transport
from hermes.llm.local.models import MODELS
from hermes.llm.local.uri import is_embedded_endpoint
from hermes.llm.providers import find_provider

_NOT_FOR_CHAT = "embed whisper tts dall-e moderation transcribe rerank imagen".split()


class ModelSelection(Struct, frozen=True):
    """What the section `model` of the configuration is to contain; empty: nothing."""

    provider: str
    model: str
    base_url: str = ""
    api_mode: str = ""
    api_key_env: str = ""


class ModelRow(Struct, frozen=True):
    """A model to choose as `provider:model`, and what is said about it."""

    value: str
    detail: str = ""


def parse_selection(setup: Setup, text: str) -> ModelSelection:
    """The text is `provider:model`, a provider (with its default model), or a model that some
    provider offers. ConfigError when it is none of these."""
    config = setup.config
    if not text.strip():
        raise ConfigError("Name a model: PROVIDER:MODEL.")
    name, colon, model = text.partition(":")
    if colon and model and _is_provider(config, name):
        return ModelSelection(find_provider_name(config, name), model)
    if not colon and _is_provider(config, text):
        return ModelSelection(find_provider_name(config, text), _default_model(config, text))
    configured = _configured_provider(config)
    spec = find_provider(configured) if configured else None
    hosted = spec is not None and spec.auth != "none"
    if not text.strip(":/ ") or (colon and name.isidentifier() and (hosted or not configured)):
        find_configured_provider(config, name)  # a misspelling: its error suggests providers
    if configured:
        return ModelSelection(configured, text)
    target = resolve_chain(config, setup.secrets, ModelChoice(model=text))[0].target
    return ModelSelection(target.provider, target.model)


def _is_provider(config: Config, name: str) -> bool:
    own = name == CUSTOM and bool(config.model.base_url)
    return own or name in config.providers or find_provider(name) is not None


def find_provider_name(config: Config, name: str) -> str:
    return name if name in config.providers else find_configured_provider(config, name).name


def _default_model(config: Config, name: str) -> str:
    spec = find_provider(name)
    known = spec.name if spec is not None else name
    if _configured_provider(config) == known and config.model.default:
        return config.model.default
    if spec is None or not spec.default_model:
        raise ConfigError(f"Which model of {name}? Give {name}:MODEL.")
    return spec.default_model


def _configured_provider(config: Config) -> str:
    section = config.model
    name = section.provider or (CUSTOM if section.base_url else "")
    spec = find_provider(name) if name else None
    return spec.name if spec is not None else name


def save_selection(setup: Setup, selection: ModelSelection) -> Setup:
    """Saves it and returns the new setup. Settings of the previous provider (key, address,
    protocol) or model (its window) are removed; comments stay."""
    section = setup.config.model
    same = selection.provider == _configured_provider(setup.config) and not selection.base_url
    changes: dict[str, Any] = {
        "model.provider": selection.provider,
        "model.default": selection.model,
    }
    for field in ("base_url", "api_mode", "api_key_env"):
        value = getattr(selection, field)
        if value or not same:
            changes[f"model.{field}"] = value or None
    if not same or selection.model != section.default:
        changes["model.context_length"] = None
    apply_changes(setup.home, changes)
    return load_setup(setup.profile)


def describe_missing(setup: Setup) -> str:
    """Why the configured model cannot be called yet; empty when it can."""
    try:
        resolve_chain(setup.config, setup.secrets, ModelChoice())
    except ConfigError as error:
        return str(error)
    return ""


async def list_models(setup: Setup, only: str = "") -> list[ModelRow]:
    """Rows of `provider:model`, the provider in use first; with `only`, of that provider."""
    async with Transport() as transport:
        providers = [only] if only else _usable_providers(setup)
        lists = await asyncio.gather(*(_provider_models(setup, p, transport) for p in providers))
        servers = () if only else await find_servers()
    rows: dict[str, ModelRow] = {}
    for name, models in zip(providers, lists, strict=True):
        for model in models:
            value = f"{name}:{model}"
            rows[value] = ModelRow(value, _describe_model(find_facts(name, model)))
    for server in servers:
        for model in server.models:
            value = f"{server.provider}:{model}"
            rows.setdefault(value, ModelRow(value, "on this machine"))
    if not only and is_engine_installed():
        for embedded in MODELS:
            value = f"local:{embedded.name}"
            rows.setdefault(value, ModelRow(value, "runs on this machine, no key"))
    return list(rows.values())


def _usable_providers(setup: Setup) -> list[str]:
    """The providers with a credential, the one in use first."""
    credentials = list_all_credentials(setup.config, setup.secrets, Cooldowns())
    found = list(dict.fromkeys(credential.provider for credential in credentials))
    try:
        current = resolve_chain(setup.config, setup.secrets, ModelChoice())[0].target.provider
    except ConfigError:
        return found
    return [current, *(name for name in found if name != current)]


async def _provider_models(setup: Setup, provider: str, transport: Transport) -> tuple[str, ...]:
    """The models that the endpoint lists or, where it lists none, those known of the provider."""
    endpoint = _find_endpoint(setup, provider)
    live: tuple[str, ...] = ()
    if endpoint is not None and not is_embedded_endpoint(endpoint.base_url):
        live = await Client(endpoint, transport).listing.list_models()
    listed = live or list_known_models(provider)
    return tuple(m for m in listed if not any(word in m.lower() for word in _NOT_FOR_CHAT))


def _find_endpoint(setup: Setup, provider: str) -> ModelEndpoint | None:
    for choice in (ModelChoice(provider=provider), ModelChoice("?", provider)):
        try:
            return resolve_chain(setup.config, setup.secrets, choice)[0]
        except ConfigError:
            continue
    return None


def _describe_model(known: ModelFacts) -> str:
    parts = []
    if known.context:
        parts.append(f"{known.context // 1000}k")
    if known.prices is not None:
        parts.append(f"${known.prices.input:g}/${known.prices.output:g}")
    if known.images:
        parts.append("images")
    if known.tools is False:
        parts.append("no tools")
    return " · ".join(parts)
