"""`hermes auth list` and `status`: the keys and logins there are, without showing any secret."""

from typing import Any

from hermes.cli.startup import run_async
from hermes.cli.terminal.tables import align_columns
from hermes.cli.terminal.text import print_report
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
