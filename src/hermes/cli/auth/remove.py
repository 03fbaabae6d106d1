"""`hermes auth remove` and `logout`: what hermes itself has stored, and nothing else."""

from __future__ import annotations

from typing import Any

from hermes.cli.auth.add import keys_of
from hermes.config import dotenv, paths
from hermes.config.load import Setup
from hermes.config.private_files import locked
from hermes.config.update import revise
from hermes.core.errors import ConfigError
from hermes.llm.endpoints.inventory import NamedProvider, StoredCredential


def remove_keys(
    setup: Setup, provider: NamedProvider, which: str, *, everything: bool
) -> list[str]:
    """The names of the variables that went out of .env."""
    keys = keys_of(setup, provider)
    stored = [one for one in keys if one.source == ".env"]
    chosen = [one for one in keys if which in (one.name, one.value[-4:])] if which else stored
    if not chosen:
        raise ConfigError(_nothing(provider, which, keys))
    foreign = [one.name for one in chosen if one.source != ".env"]
    if foreign:
        raise ConfigError(
            f"{foreign[0]} is set in the environment, not in .env: remove it where it is set."
        )
    if len(chosen) > 1 and not everything:
        listed = ", ".join(f"{one.name} ({one.key_hint})" for one in chosen)
        raise ConfigError(f"{provider.name} has several keys: name one of {listed}, or give --all.")
    gone = [one.name for one in chosen]
    if changes := _forgotten(setup, provider, gone):
        revise(setup.home, changes)
    for name in gone:
        dotenv.drop(setup.home, name)
    return gone


def _nothing(provider: NamedProvider, which: str, keys: list[StoredCredential]) -> str:
    if which:
        listed = ", ".join(f"{one.name} ({one.key_hint})" for one in keys) or "none"
        return f"{provider.name} has no key {which}; there are: {listed}."
    if keys:
        return f"{keys[0].name} is set in the environment, not in .env: remove it where it is set."
    return f"There is no key of {provider.name} in .env."


def _forgotten(setup: Setup, provider: NamedProvider, gone: list[str]) -> dict[str, Any]:
    """What the configuration says about those keys, unsaid."""
    place = f"providers.{provider.name}"
    row = provider.row
    changes: dict[str, Any] = {}
    if any(name in gone for name in row.api_key_envs):
        rest = [name for name in row.api_key_envs if name not in gone]
        usual = provider.spec is not None and rest == [*provider.spec.keys[:1]]
        changes[f"{place}.api_key_envs"] = None if usual or not rest else rest
    if row.api_key_env in gone:
        changes[f"{place}.api_key_env"] = None
    if setup.config.model.api_key_env in gone:
        changes["model.api_key_env"] = None
    return changes


def log_out(setup: Setup, provider: NamedProvider) -> None:
    """ConfigError when nobody is logged in. Whoever renews right now is waited for."""
    folder = paths.logins_folder(setup.home)
    file = folder / f"{provider.name}.json"
    if not file.exists():
        raise ConfigError(f"You are not logged in to {provider.name}.")
    with locked(folder / f".{provider.name}.lock", f"the login to {provider.name}"):
        file.unlink(missing_ok=True)
