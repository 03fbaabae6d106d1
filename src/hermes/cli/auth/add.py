"""`hermes auth add`: a key into .env, a further one into the provider's pool."""

from __future__ import annotations

import asyncio
from typing import Any

from hermes.config import dotenv
from hermes.config.load import Setup
from hermes.config.update import revise
from hermes.core.errors import ConfigError, HermesError
from hermes.llm.auth.cooldown import Cooldowns
from hermes.llm.endpoints.endpoint import ModelChoice
from hermes.llm.endpoints.inventory import (
    NamedProvider,
    StoredCredential,
    free_name,
    key_variables,
    list_credentials,
)
from hermes.llm.endpoints.resolver import resolve_chain
from hermes.llm.providers import find_provider


def add_key(setup: Setup, provider: NamedProvider, key: str, *, replace: bool) -> str:
    """Where it went. Nothing has changed when ConfigError is raised."""
    keys = keys_of(setup, provider)
    if same := next((h for h in keys if h.value == key), None):
        return f"That key is there already, in {same.name} ({same.source}); nothing was changed."
    if replace and keys:
        return _replace(setup, provider, key, keys)
    taken = key_variables(setup.config, provider)
    variable = (
        free_name(setup.secrets, taken, provider.usual_variable)
        if keys
        else provider.usual_variable
    )
    changes: dict[str, Any] = {}
    if keys:
        changes = _pooled(setup, provider, [*(h.name for h in keys), variable])
    elif provider.needs_api_key_env:
        changes = {f"providers.{provider.name}.api_key_env": variable}
    _store(setup, variable, key, changes)
    if keys:
        return f"{variable} in .env: {provider.name} has a pool of {len(keys) + 1} keys now."
    return f"{variable} in .env is the key of {provider.name} now."


def keys_of(setup: Setup, provider: NamedProvider) -> list[StoredCredential]:
    found = list_credentials(setup.config, setup.secrets, Cooldowns(), provider)
    return [one for one in found if one.kind == "key"]


def _replace(setup: Setup, provider: NamedProvider, key: str, keys: list[StoredCredential]) -> str:
    old = keys[0]
    if len(keys) > 1:
        raise ConfigError(
            f"{provider.name} has {len(keys)} keys: remove the one that is to go with "
            f"hermes auth remove {provider.name} NAME, then add the new one."
        )
    if old.source == "environment":
        raise ConfigError(
            f"{old.name} comes from the environment, which counts before .env: change it there."
        )
    dotenv.put(setup.home, old.name, key)
    return f"{old.name} in .env has the new key."


def _pooled(setup: Setup, provider: NamedProvider, names: list[str]) -> dict[str, Any]:
    """A pool counts only where no single variable is named."""
    place = f"providers.{provider.name}"
    changes: dict[str, Any] = {f"{place}.api_key_envs": names}
    if provider.row.api_key_env:
        changes[f"{place}.api_key_env"] = None
    section = setup.config.model
    if section.api_key_env and section.api_key_env in names:
        changes["model.api_key_env"] = None
    return changes


def _store(setup: Setup, variable: str, key: str, changes: dict[str, Any]) -> None:
    dotenv.put(setup.home, variable, key)
    if not changes:
        return
    try:
        revise(setup.home, changes)
    except HermesError:
        dotenv.drop(setup.home, variable)
        raise


def check_key(setup: Setup, provider: NamedProvider, key: str, model: str) -> str:
    """Empty when a real call was answered with this key, else what was wrong."""
    import msgspec

    variable = provider.usual_variable
    secrets = setup.secrets.plus(variable, key)
    trying = msgspec.structs.replace(setup, secrets=secrets)
    return asyncio.run(_called(trying, provider, ModelChoice(model, provider.name, "", variable)))


async def _called(setup: Setup, provider: NamedProvider, choice: ModelChoice) -> str:
    from msgspec import structs

    from hermes.app.model_probe import ping
    from hermes.app.runtime import Runtime
    from hermes.llm.client import Client

    async with Runtime.open(setup) as runtime:
        if not choice.model and not _has_model(setup, provider):
            any_model = resolve_chain(
                setup.config, setup.secrets, structs.replace(choice, model="?")
            )
            listed = await Client(any_model[0], runtime.transport).listing.list_models()
            if not listed:
                return (
                    f"{provider.name} lists no models to try the key with, or does not take it; "
                    "name one with --model"
                )
            choice = structs.replace(choice, model=listed[0])
        endpoint = resolve_chain(setup.config, setup.secrets, choice)[0]
        return (await ping(runtime, endpoint)).error


def _has_model(setup: Setup, provider: NamedProvider) -> bool:
    section = setup.config.model
    spec = find_provider(section.provider) if section.provider else None
    configured = spec.name if spec is not None else section.provider
    if configured == provider.name and section.default:
        return True
    return provider.spec is not None and bool(provider.spec.default_model)
