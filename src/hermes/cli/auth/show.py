"""`hermes auth list` and `status`: the keys and logins there are, without showing any secret."""

from __future__ import annotations

import asyncio
from typing import Any

from hermes.cli.terminal.tables import align_columns
from hermes.cli.terminal.text import to_json
from hermes.config import paths
from hermes.config.load import Setup
from hermes.core.errors import ConfigError
from hermes.llm.auth.cooldown import Cooling
from hermes.llm.auth.inventory import Held, Named, everything, held
from hermes.llm.endpoints.catalog import Choice, resolve
from hermes.llm.endpoints.local_servers import chosen


def load_cooldowns(setup: Setup) -> Cooling:
    return Cooling(paths.cache_folder(setup.home) / "cooling.json")


def show_list(setup: Setup, provider: Named | None, *, json: bool) -> int:
    found = _list_credentials(setup, provider)
    if json:
        print(to_json([_credential_object(credential) for credential in found]))
    elif not found:
        print("No keys and no logins. To store a key, run: hermes auth add PROVIDER")
    else:
        _print_table(found)
    return 0


def show_status(setup: Setup, provider: Named | None, *, json: bool) -> int:
    """Returns 1 when the given provider cannot be called."""
    found = _list_credentials(setup, provider)
    answering, missing = _find_answering(setup, provider)
    if json:
        flow = provider.flow if provider is not None else None
        data: dict[str, Any] = {"answers": answering, "missing": missing}
        data["credentials"] = [_credential_object(credential) for credential in found]
        if provider is not None:
            data |= {"provider": provider.name, "login": flow.flow if flow else None}
        print(to_json(data))
    else:
        print(f"now: {answering}" if answering else missing)
        _print_table(found)
    return 1 if provider is not None and missing else 0


def _list_credentials(setup: Setup, provider: Named | None) -> list[Held]:
    cooldowns = load_cooldowns(setup)
    if provider is None:
        return everything(setup.config, setup.secrets, cooldowns)
    return held(setup.config, setup.secrets, cooldowns, provider)


def _find_answering(setup: Setup, provider: Named | None) -> tuple[str, str]:
    """(the model that would be called, "") or ("", what is missing)."""
    choice = Choice() if provider is None else Choice(provider=provider.name)
    choice = asyncio.run(chosen(setup.config, setup.secrets, choice))
    try:
        endpoint = resolve(setup.config, setup.secrets, choice)[0]
    except ConfigError as error:
        return "", str(error)
    keys = ", ".join(key.source for key in endpoint.keys) or "no key"
    return f"{endpoint.target.provider}:{endpoint.target.model} with {keys}", ""


def _credential_object(credential: Held) -> dict[str, Any]:
    return {
        "provider": credential.provider,
        "kind": credential.kind,
        "variable": credential.name or None,
        "source": credential.source,
        "hint": credential.hint,
        "used": credential.used,
        "state": credential.state,
        "cooling_seconds": round(credential.cooling) or None,
        "expires": round(credential.expires) or None,
    }


def _print_table(found: list[Held]) -> None:
    rows = [(c.provider, c.name or "login", c.hint, c.source, c.state) for c in found]
    for line in align_columns(rows):
        print(line)
