"""`hermes model set`: which model the user means, and how it is saved."""

from typing import Any

from msgspec import Struct

from hermes.config.load import Setup, load_setup
from hermes.config.schema import Config
from hermes.config.update import apply_changes
from hermes.core.errors import ConfigError
from hermes.llm.endpoints.endpoint import CUSTOM, ModelChoice
from hermes.llm.endpoints.inventory import find_configured_provider
from hermes.llm.endpoints.resolver import resolve_chain
from hermes.llm.providers import find_provider


class ModelSelection(Struct, frozen=True):
    """What the section `model` of the configuration is to contain; empty: nothing."""

    provider: str
    model: str
    base_url: str = ""
    api_mode: str = ""
    api_key_env: str = ""


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
