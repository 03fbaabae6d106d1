"""`hermes model set`: another model from now on, and nothing of the provider before it."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from hermes.config.load import Setup, load
from hermes.config.schema import Config
from hermes.config.update import revise
from hermes.core.errors import ConfigError
from hermes.llm.endpoints.endpoint import CUSTOM, ModelChoice
from hermes.llm.endpoints.inventory import find_configured_provider
from hermes.llm.endpoints.resolver import resolve_chain
from hermes.llm.providers import find_provider


class Wanted(Struct, frozen=True):
    """What the section `model` is to say; empty: nothing."""

    provider: str
    model: str
    base_url: str = ""
    api_mode: str = ""
    api_key_env: str = ""


def understood(setup: Setup, text: str) -> Wanted:
    """`provider:model`, a provider (its usual model), or a model wherever it can be had.
    ConfigError when it is none of these."""
    config = setup.config
    if not text.strip():
        raise ConfigError("Say which model: PROVIDER:MODEL.")
    name, colon, rest = text.partition(":")
    if colon and rest and _is_provider(config, name):
        return Wanted(_known(config, name), rest)
    if not colon and _is_provider(config, text):
        return Wanted(_known(config, text), _usual(config, text))
    written = _written(config)
    spec = find_provider(written) if written else None
    hosted = spec is not None and spec.auth != "none"
    if not text.strip(":/ ") or (colon and name.isidentifier() and (hosted or not written)):
        find_configured_provider(config, name)  # a slip: says which providers there are
    if written:
        return Wanted(written, text)
    target = resolve_chain(config, setup.secrets, ModelChoice(model=text))[0].target
    return Wanted(target.provider, target.model)


def _is_provider(config: Config, name: str) -> bool:
    own = name == CUSTOM and bool(config.model.base_url)
    return own or name in config.providers or find_provider(name) is not None


def _known(config: Config, name: str) -> str:
    return name if name in config.providers else find_configured_provider(config, name).name


def _usual(config: Config, name: str) -> str:
    spec = find_provider(name)
    if _written(config) == (spec.name if spec is not None else name) and config.model.default:
        return config.model.default
    if spec is None or not spec.default_model:
        raise ConfigError(f"Which model of {name}? Give {name}:MODEL.")
    return spec.default_model


def _written(config: Config) -> str:
    section = config.model
    name = section.provider or (CUSTOM if section.base_url else "")
    spec = find_provider(name) if name else None
    return spec.name if spec is not None else name


def switch(setup: Setup, wanted: Wanted) -> Setup:
    """The configuration as it is afterwards. What belongs to the previous provider (key, address,
    protocol) or model (its window) goes; comments stay."""
    section = setup.config.model
    same = wanted.provider == _written(setup.config) and not wanted.base_url
    changes: dict[str, Any] = {"model.provider": wanted.provider, "model.default": wanted.model}
    for field in ("base_url", "api_mode", "api_key_env"):
        value = getattr(wanted, field)
        if value or not same:
            changes[f"model.{field}"] = value or None
    if not same or wanted.model != section.default:
        changes["model.context_length"] = None
    revise(setup.home, changes)
    return load(setup.profile)


def missing(setup: Setup) -> str:
    """Why the configured model cannot be called yet; empty: it can."""
    try:
        resolve_chain(setup.config, setup.secrets, ModelChoice())
    except ConfigError as error:
        return str(error)
    return ""
