"""The variables that hold keys: whether they are set, when they were used, if they work."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from hermes.app.control.model_probe import ping_model
from hermes.app.runtime import Runtime
from hermes.config import paths
from hermes.config.load import Setup, list_key_variables
from hermes.config.secrets import read_dotenv
from hermes.core.errors import ConfigError
from hermes.core.ledger import Ledger
from hermes.llm.auth.cooldown import Cooldowns
from hermes.llm.client import Client
from hermes.llm.endpoints.endpoint import CUSTOM, ModelChoice
from hermes.llm.endpoints.inventory import (
    NamedProvider,
    find_configured_provider,
    key_variables,
    list_all_credentials,
)
from hermes.llm.endpoints.resolver import resolve_chain
from hermes.llm.providers import find_provider, provider_index

_USUAL = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENROUTER_API_KEY")
_ANY_MODEL = "?"


async def describe_keys(setup: Setup, ledger: Ledger) -> list[dict[str, Any]]:
    """Every variable that holds a key or usually does; never a value."""
    file = paths.env_file(setup.home)
    stored = read_dotenv(file) if file.exists() else {}
    cooldowns = Cooldowns(paths.cache_folder(setup.home) / "cooling.json")
    credentials = list_all_credentials(setup.config, setup.secrets, cooldowns)
    by_name = {c.name: c for c in reversed(credentials) if c.name}
    last = await ledger.find_last_calls()
    rows = []
    for name in sorted({*list_key_variables(setup.config), *stored, *_USUAL, *by_name}):
        found = by_name.get(name)
        used_at, outcome = last.get(found.provider, (None, "")) if found else (None, "")
        if found is not None and not found.used:
            used_at, outcome = None, ""
        rows.append(
            {
                "name": name,
                "set": bool(setup.secrets.get(name)),
                "from": setup.secrets.find_source(name),
                "provider": found.provider if found else "",
                "used_at": used_at,
                "failed": (found.why if found and found.cooling else outcome) or None,
            }
        )
    return rows


def find_key_owner(setup: Setup, variable: str) -> NamedProvider:
    """The provider whose key is in this variable; ConfigError when none uses it."""
    own = [name for name in setup.config.providers if find_provider(name) is None]
    for name in (*own, *provider_index().names, CUSTOM):
        provider = find_configured_provider(setup.config, name)
        if variable in key_variables(setup.config, provider):
            return provider
    raise ConfigError(f"No provider uses {variable}, so it cannot be tested. Nothing was called.")


async def try_key(
    runtime: Runtime, setup: Setup, provider: NamedProvider, choice: ModelChoice
) -> str:
    """Make a real call with a key: empty when it was answered, otherwise what went wrong."""
    if not choice.model and not _has_model(setup, provider):
        any_model = structs.replace(choice, model=_ANY_MODEL)
        endpoint = resolve_chain(setup.config, setup.secrets, any_model)[0]
        listed = await Client(endpoint, runtime.transport).listing.list_models()
        if not listed:
            problem = f"{provider.name} lists no models to test the key with, or rejects it"
            return f"{problem}; name a model with --model"
        choice = structs.replace(choice, model=listed[0])
    endpoint = resolve_chain(setup.config, setup.secrets, choice)[0]
    return (await ping_model(runtime.services, endpoint)).error


def _has_model(setup: Setup, provider: NamedProvider) -> bool:
    section = setup.config.model
    spec = find_provider(section.provider) if section.provider else None
    configured = spec.name if spec is not None else section.provider
    if configured == provider.name and section.default:
        return True
    return provider.spec is not None and bool(provider.spec.default_model)
