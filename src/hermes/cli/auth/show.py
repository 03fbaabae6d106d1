"""`hermes auth list` and `status`: what there is to call providers with, no secret in sight."""

from __future__ import annotations

import asyncio
from typing import Any

from hermes.cli.terminal.text import dump
from hermes.config import paths
from hermes.config.load import Setup
from hermes.core.errors import ConfigError
from hermes.llm.auth.cooldown import Cooldowns
from hermes.llm.endpoints.endpoint import ModelChoice
from hermes.llm.endpoints.inventory import (
    NamedProvider,
    StoredCredential,
    list_all_credentials,
    list_credentials,
)
from hermes.llm.endpoints.local_servers import choose_model
from hermes.llm.endpoints.resolver import resolve_chain


def cooling_of(setup: Setup) -> Cooldowns:
    return Cooldowns(paths.cache_folder(setup.home) / "cooling.json")


def show_list(setup: Setup, provider: NamedProvider | None, *, json: bool) -> int:
    cooling = cooling_of(setup)
    if provider is None:
        found = list_all_credentials(setup.config, setup.secrets, cooling)
    else:
        found = list_credentials(setup.config, setup.secrets, cooling, provider)
    if json:
        print(dump([_row(one) for one in found]))
    elif not found:
        print("No keys and no logins. hermes auth add PROVIDER stores a key.")
    for line in () if json else _table(found):
        print(line)
    return 0


def show_status(setup: Setup, provider: NamedProvider | None, *, json: bool) -> int:
    """Exit 1 when the provider that was asked about cannot be called."""
    found = (
        list_all_credentials(setup.config, setup.secrets, cooling_of(setup))
        if provider is None
        else list_credentials(setup.config, setup.secrets, cooling_of(setup), provider)
    )
    answering, why = _answering(setup, provider)
    if json:
        flow = provider.login_flow if provider is not None else None
        told: dict[str, Any] = {"answers": answering, "missing": why}
        told["credentials"] = [_row(one) for one in found]
        if provider is not None:
            told |= {"provider": provider.name, "login": flow.flow if flow else None}
        print(dump(told))
        return 1 if provider is not None and why else 0
    print(f"now: {answering}" if answering else why)
    for line in _table(found):
        print(line)
    return 1 if provider is not None and why else 0


def _answering(setup: Setup, provider: NamedProvider | None) -> tuple[str, str]:
    """(who would be called, "") or ("", what is missing)."""
    choice = ModelChoice() if provider is None else ModelChoice(provider=provider.name)
    choice = asyncio.run(choose_model(setup.config, setup.secrets, choice))
    try:
        endpoint = resolve_chain(setup.config, setup.secrets, choice)[0]
    except ConfigError as error:
        return "", str(error)
    keys = ", ".join(key.source for key in endpoint.keys) or "no key"
    return f"{endpoint.target.provider}:{endpoint.target.model} with {keys}", ""


def _row(one: StoredCredential) -> dict[str, Any]:
    return {
        "provider": one.provider,
        "kind": one.kind,
        "variable": one.name or None,
        "source": one.source,
        "hint": one.key_hint,
        "used": one.used,
        "state": one.state,
        "cooling_seconds": round(one.cooling) or None,
        "expires": round(one.expires) or None,
    }


def _table(found: list[StoredCredential]) -> list[str]:
    cells = [
        (one.provider, one.name or "login", one.key_hint, one.source, one.state) for one in found
    ]
    widths = [max(len(row[at]) for row in cells) for at in range(5)] if cells else []
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]
