"""`hermes model custom URL`: the user's own endpoint, probed before it is saved."""

import os
import re
import sys
from argparse import Namespace

from hermes.cli.auth.secret_input import read_key
from hermes.cli.main import print_stderr
from hermes.cli.model.selection import ModelSelection, save_selection
from hermes.cli.startup import run_async
from hermes.cli.terminal.picker import PickerRow, pick_row
from hermes.config import dotenv
from hermes.config.load import Setup, load_setup
from hermes.config.update import apply_changes
from hermes.core.errors import ConfigError
from hermes.llm.auth.key_pool import NO_KEY, Credential
from hermes.llm.endpoints.endpoint import CUSTOM
from hermes.llm.endpoints.match import choose_wire
from hermes.llm.endpoints.probe import Probe, Prober
from hermes.llm.http.transport import Transport
from hermes.llm.providers import find_provider

_ENDPOINT_NAME = re.compile(r"[a-z][a-z0-9-]{0,40}\Z")


def add_endpoint(setup: Setup, args: Namespace) -> ModelSelection:
    """Probes the endpoint and saves it. ConfigError: nothing was changed."""
    url = args.name.rstrip("/")
    if not url.startswith(("http://", "https://")):
        raise ConfigError("Give the address of the endpoint, such as http://127.0.0.1:8000/v1.")
    if "@" in url.partition("://")[2].partition("/")[0]:
        raise ConfigError("The address must not contain a user name or password; use --key-env.")
    usable = _ENDPOINT_NAME.match(args.called) and find_provider(args.called) is None
    if args.called and not usable:
        raise ConfigError(f"{args.called!r} cannot be used as a name; choose another one.")
    attended = os.isatty(0) and os.isatty(2)
    variable, key = _read_credential(setup, args.key_env or "", attended=attended)
    found = probe_endpoint(url, key, args.api_mode)
    if found.needs_key and not variable and attended:
        variable, key = _ask_credential(setup, args.called)
        found = probe_endpoint(url, key, args.api_mode)
    if not found.wire:
        raise ConfigError(f"{url} is not a model endpoint: {found.problem}. Nothing was changed.")
    if found.base_url != url:
        _confirm_version(found, attended=attended)
    model = args.model or pick_listed_model(found, attended=attended)
    if variable and setup.secrets.get(variable) is None:
        dotenv.set_variable(setup.home, variable, key.value)
    return _save_endpoint(setup, args, found, variable, model)


def _read_credential(setup: Setup, variable: str, *, attended: bool) -> tuple[str, Credential]:
    if not variable:
        return "", NO_KEY
    value = setup.secrets.get(variable)
    if value is None and not attended:
        raise ConfigError(f"{variable} is set neither in the environment nor in .env.")
    if value is None:
        value = read_key(f"Key for {variable}", "")
    return variable, Credential(variable, value)


def _ask_credential(setup: Setup, name: str) -> tuple[str, Credential]:
    default = f"{(name or CUSTOM).upper().replace('-', '_')}_API_KEY"
    question = f"The endpoint needs a key. Store it as [{default}]: "
    print(question, end="", file=sys.stderr, flush=True)
    variable = sys.stdin.readline().strip() or default
    if not variable.isidentifier() or not variable.isascii():
        raise ConfigError("That is not a variable name; nothing was changed.")
    return _read_credential(setup, variable, attended=True)


def probe_endpoint(url: str, key: Credential, api_mode: str) -> Probe:
    async def probe_url() -> Probe:
        async with Transport() as transport:
            return await Prober(transport, key).probe_address(url, api_mode)

    return run_async(probe_url())


def _confirm_version(found: Probe, *, attended: bool) -> None:
    """Confirms the address with the /v1 that the user left out."""
    if attended:
        text = f"/v1 is missing: the endpoint is {found.base_url}. Use that? [Y/n] "
        print(text, end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() in ("n", "no"):
            raise ConfigError("Nothing was changed.")
    else:
        print_stderr(f"/v1 was missing; using {found.base_url}")


def pick_listed_model(found: Probe, *, attended: bool) -> str:
    """The only model, or the one the user picks."""
    if len(found.models) == 1:
        return found.models[0]
    if found.models and attended:
        chosen = pick_row("Model", [PickerRow(name) for name in found.models])
        if chosen is None:
            raise ConfigError("Nothing was changed.")
        return chosen
    if not found.models:
        raise ConfigError(f"{found.base_url} lists no models; name one with --model.")
    more = f" and {len(found.models) - 10} more" if len(found.models) > 10 else ""
    listed = ", ".join(found.models[:10])
    raise ConfigError(f"Which model? Name one with --model: {listed}{more}.")


def _save_endpoint(
    setup: Setup, args: Namespace, found: Probe, variable: str, model: str
) -> ModelSelection:
    """Under its own name, or as the custom endpoint."""
    default = choose_wire(found.base_url, "", CUSTOM)
    mode = found.wire if found.wire != default else ""
    if not args.called:
        selection = ModelSelection(CUSTOM, model, found.base_url, mode, variable)
        save_selection(setup, selection)
        return selection
    row = {"base_url": found.base_url, "api_mode": mode or None, "api_key_env": variable or None}
    apply_changes(setup.home, {f"providers.{args.called}.{key}": row[key] for key in row})
    selection = ModelSelection(args.called, model)
    save_selection(load_setup(setup.profile), selection)
    return selection
