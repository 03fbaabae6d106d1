"""`hermes auth add`, `remove`, `list` and `status`: keys in .env; several of one form a pool."""

from typing import Any

from msgspec import structs

from hermes.app.control.stored_keys import try_key
from hermes.app.runtime import Runtime
from hermes.cli.startup import run_async
from hermes.cli.terminal.tables import align_columns
from hermes.cli.terminal.text import print_report
from hermes.config import dotenv, paths
from hermes.config.load import Setup
from hermes.config.update import apply_changes
from hermes.core.errors import ConfigError, HermesError
from hermes.llm.auth.cooldown import Cooldowns
from hermes.llm.endpoints.endpoint import ModelChoice
from hermes.llm.endpoints.inventory import (
    NamedProvider,
    StoredCredential,
    free_name,
    key_variables,
    list_all_credentials,
    list_credentials,
)
from hermes.llm.endpoints.local_servers import choose_model
from hermes.llm.endpoints.resolver import resolve_chain

_SET_ELSEWHERE = "{} is set in the environment, not in .env: remove it where it is set."


def add_key(setup: Setup, provider: NamedProvider, key: str, *, replace: bool) -> str:
    """Stores a key; the sentence says where. ConfigError: nothing was changed."""
    keys = list_keys(setup, provider)
    if same := next((h for h in keys if h.value == key), None):
        return f"That key is already stored in {same.name} ({same.source}); nothing was changed."
    if replace and keys:
        return _replace_key(setup, provider.name, key, keys)
    variable = provider.usual_variable
    changes: dict[str, Any] = {}
    effect = f"it is now the key for {provider.name}"
    if keys:
        variable = free_name(setup.secrets, key_variables(setup.config, provider), variable)
        changes = _pool_changes(setup, provider, [*(h.name for h in keys), variable])
        effect = f"{provider.name} now has a pool of {len(keys) + 1} keys"
    elif provider.needs_api_key_env:
        changes = {f"providers.{provider.name}.api_key_env": variable}
    _store_key(setup, variable, key, changes)
    return f"Stored as {variable} in .env; {effect}."


def list_keys(setup: Setup, provider: NamedProvider) -> list[StoredCredential]:
    """The keys of a provider, without its login."""
    found = list_credentials(setup.config, setup.secrets, Cooldowns(), provider)
    return [credential for credential in found if credential.kind == "key"]


def _replace_key(setup: Setup, name: str, key: str, keys: list[StoredCredential]) -> str:
    old = keys[0]
    if len(keys) > 1:
        advice = f"Remove the old one with hermes auth remove {name} NAME, then add the new one."
        raise ConfigError(f"{name} has {len(keys)} keys. {advice}")
    if old.source == "environment":
        text = f"{old.name} is set in the environment, which overrides .env: change it there."
        raise ConfigError(text)
    dotenv.set_variable(setup.home, old.name, key)
    return f"Replaced {old.name} in .env."


def _pool_changes(setup: Setup, provider: NamedProvider, names: list[str]) -> dict[str, Any]:
    """A pool is used only where no single variable is named."""
    section = f"providers.{provider.name}"
    changes: dict[str, Any] = {f"{section}.api_key_envs": names}
    if provider.row.api_key_env:
        changes[f"{section}.api_key_env"] = None
    model = setup.config.model
    if model.api_key_env and model.api_key_env in names:
        changes["model.api_key_env"] = None
    return changes


def _store_key(setup: Setup, variable: str, key: str, changes: dict[str, Any]) -> None:
    dotenv.set_variable(setup.home, variable, key)
    if not changes:
        return
    try:
        apply_changes(setup.home, changes)
    except HermesError:
        dotenv.remove_variable(setup.home, variable)
        raise


def check_key(setup: Setup, provider: NamedProvider, key: str, model: str) -> str:
    """Makes a real call with the key: empty when it was answered, otherwise what went wrong."""
    variable = provider.usual_variable
    setup = structs.replace(setup, secrets=setup.secrets.with_variable(variable, key))
    return run_async(
        _call_provider(setup, provider, ModelChoice(model, provider.name, "", variable))
    )


async def _call_provider(setup: Setup, provider: NamedProvider, choice: ModelChoice) -> str:
    async with Runtime.open(setup) as runtime:
        return await try_key(runtime, setup, provider, choice)


def remove_keys(setup: Setup, provider: NamedProvider, which: str, *, every: bool) -> list[str]:
    """Removes keys from .env; the names of their variables."""
    keys = list_keys(setup, provider)
    stored = [key for key in keys if key.source == ".env"]
    chosen = [key for key in keys if which in (key.name, key.value[-4:])] if which else stored
    if not chosen:
        raise ConfigError(_describe_no_match(provider, which, keys))
    if foreign := [key.name for key in chosen if key.source != ".env"]:
        raise ConfigError(_SET_ELSEWHERE.format(foreign[0]))
    if len(chosen) > 1 and not every:
        listed = ", ".join(f"{key.name} ({key.key_hint})" for key in chosen)
        raise ConfigError(f"{provider.name} has several keys: name one of {listed}, or give --all.")
    removed = [key.name for key in chosen]
    if changes := _removal_changes(setup, provider, removed):
        apply_changes(setup.home, changes)
    for name in removed:
        dotenv.remove_variable(setup.home, name)
    return removed


def _describe_no_match(provider: NamedProvider, which: str, keys: list[StoredCredential]) -> str:
    if which:
        listed = ", ".join(f"{key.name} ({key.key_hint})" for key in keys) or "none"
        return f"{provider.name} has no key {which}; it has: {listed}."
    if keys:
        return _SET_ELSEWHERE.format(keys[0].name)
    return f"There is no key for {provider.name} in .env."


def _removal_changes(setup: Setup, provider: NamedProvider, removed: list[str]) -> dict[str, Any]:
    """The configuration without any mention of these keys."""
    section = f"providers.{provider.name}"
    row = provider.row
    changes: dict[str, Any] = {}
    left = [name for name in row.api_key_envs if name not in removed]
    if len(left) < len(row.api_key_envs):
        default = provider.spec is not None and left == [*provider.spec.keys[:1]]
        changes[f"{section}.api_key_envs"] = None if default or not left else left
    if row.api_key_env in removed:
        changes[f"{section}.api_key_env"] = None
    if setup.config.model.api_key_env in removed:
        changes["model.api_key_env"] = None
    return changes


def show_list(setup: Setup, provider: NamedProvider | None, *, json: bool) -> int:
    found = _list_credentials(setup, provider)
    none = ["No keys and no logins. To store a key, run: hermes auth add PROVIDER"]
    return print_report(_credential_objects(found), _format_table(found) or none, json=json)


def show_status(setup: Setup, provider: NamedProvider | None, *, json: bool) -> int:
    """Returns 1 when the given provider cannot be called."""
    found = _list_credentials(setup, provider)
    answering, missing = _find_answering(setup, provider)
    data: dict[str, Any] = {"answers": answering, "missing": missing}
    data["credentials"] = _credential_objects(found)
    if provider is not None:
        flow = provider.login_flow
        data |= {"provider": provider.name, "login": flow.flow if flow else None}
    head = f"now: {answering}" if answering else missing
    print_report(data, [head, *_format_table(found)], json=json)
    return 1 if provider is not None and missing else 0


def _list_credentials(setup: Setup, provider: NamedProvider | None) -> list[StoredCredential]:
    cooldowns = Cooldowns(paths.cache_folder(setup.home) / "cooling.json")
    if provider is None:
        return list_all_credentials(setup.config, setup.secrets, cooldowns)
    return list_credentials(setup.config, setup.secrets, cooldowns, provider)


def _find_answering(setup: Setup, provider: NamedProvider | None) -> tuple[str, str]:
    """(the model that would be called, "") or ("", what is missing)."""
    choice = ModelChoice() if provider is None else ModelChoice(provider=provider.name)
    choice = run_async(choose_model(setup.config, setup.secrets, choice))
    try:
        endpoint = resolve_chain(setup.config, setup.secrets, choice)[0]
    except ConfigError as error:
        return "", str(error)
    keys = ", ".join(key.source for key in endpoint.keys) or "no key"
    return f"{endpoint.target.provider}:{endpoint.target.model} with {keys}", ""


def _credential_objects(found: list[StoredCredential]) -> list[dict[str, Any]]:
    return [
        {
            "provider": credential.provider,
            "kind": credential.kind,
            "variable": credential.name or None,
            "source": credential.source,
            "hint": credential.key_hint,
            "used": credential.used,
            "state": credential.state,
            "cooling_seconds": round(credential.cooling) or None,
            "expires": round(credential.expires) or None,
        }
        for credential in found
    ]


def _format_table(found: list[StoredCredential]) -> list[str]:
    rows = [(c.provider, c.name or "login", c.key_hint, c.source, c.state) for c in found]
    return align_columns(rows)
