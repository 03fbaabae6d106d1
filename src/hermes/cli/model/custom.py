"""`hermes model custom URL`: an endpoint of one's own, tried out before it is written down."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from argparse import Namespace

from hermes.cli.auth.secret_input import read_key
from hermes.cli.main import fail
from hermes.cli.model.set_model import Wanted, switch
from hermes.cli.terminal.picker import Row, pick
from hermes.config import dotenv
from hermes.config.load import Setup, load
from hermes.config.update import revise
from hermes.core.errors import ConfigError
from hermes.llm.auth.key_pool import NO_KEY, Credential
from hermes.llm.endpoints.endpoint import CUSTOM
from hermes.llm.endpoints.match import choose_wire
from hermes.llm.endpoints.probe import Probe, Prober
from hermes.llm.http.transport import Transport
from hermes.llm.providers import find_provider

_NAME = re.compile(r"[a-z][a-z0-9-]{0,40}\Z")


def set_up(setup: Setup, args: Namespace) -> Wanted:
    """Written down when it returns. ConfigError: then nothing was changed."""
    url = args.name.rstrip("/")
    if not url.startswith(("http://", "https://")):
        raise ConfigError("Give the address of the endpoint, like http://127.0.0.1:8000/v1.")
    if "@" in url.partition("://")[2].partition("/")[0]:
        raise ConfigError("The address must not hold a user name or a password: use --key-env.")
    if args.called and (not _NAME.match(args.called) or find_provider(args.called) is not None):
        raise ConfigError(f"{args.called!r} cannot be the name of an endpoint of your own.")
    attended = os.isatty(0) and os.isatty(2)
    variable, key = _key(setup, args.key_env or "", attended=attended)
    found = probed(url, key, args.api_mode)
    if found.needs_key and not variable and attended:
        variable, key = _asked(setup, args.called)
        found = probed(url, key, args.api_mode)
    if not found.wire:
        raise ConfigError(f"{url} is no endpoint for models: {found.problem}. Nothing was changed.")
    if found.base_url != url:
        found = _with_version(found, attended=attended)
    model = args.model or model_of(found, attended=attended)
    _store(setup, variable, key)
    return _written(setup, args, found, variable, model)


def _key(setup: Setup, variable: str, *, attended: bool) -> tuple[str, Credential]:
    if not variable:
        return "", NO_KEY
    value = setup.secrets.get(variable)
    if value is None and not attended:
        raise ConfigError(f"{variable} is set neither in the environment nor in .env.")
    if value is None:
        value = read_key(f"Key for {variable}", "")
    return variable, Credential(variable, value)


def _asked(setup: Setup, name: str) -> tuple[str, Credential]:
    usual = f"{(name or CUSTOM).upper().replace('-', '_')}_API_KEY"
    print(f"It wants a key. Variable for it [{usual}]: ", end="", file=sys.stderr, flush=True)
    variable = sys.stdin.readline().strip() or usual
    if not variable.isidentifier() or not variable.isascii():
        raise ConfigError("That is not the name of a variable; nothing was changed.")
    return _key(setup, variable, attended=True)


def probed(url: str, key: Credential, api_mode: str) -> Probe:
    async def look() -> Probe:
        transport = Transport()
        try:
            return await Prober(transport, key).probe_address(url, api_mode)
        finally:
            await transport.close()

    return asyncio.run(look())


def _with_version(found: Probe, *, attended: bool) -> Probe:
    """The user left /v1 out, as one does."""
    if attended:
        text = f"/v1 is missing: {found.base_url} is what answers there. Use that? [Y/n] "
        print(text, end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() in ("n", "no"):
            raise ConfigError("Nothing was changed.")
    else:
        fail(f"/v1 was missing: {found.base_url} is what answers there, and is used")
    return found


def model_of(found: Probe, *, attended: bool) -> str:
    """The only one there, or the one the user picks."""
    if len(found.models) == 1:
        return found.models[0]
    if found.models and attended:
        chosen = pick("Model", [Row(name) for name in found.models])
        if chosen is None:
            raise ConfigError("Nothing was changed.")
        return chosen
    if not found.models:
        raise ConfigError(f"{found.base_url} lists no models: name one with --model.")
    more = f" and {len(found.models) - 10} more" if len(found.models) > 10 else ""
    listed = ", ".join(found.models[:10])
    raise ConfigError(f"Which model? Name one with --model: {listed}{more}.")


def _store(setup: Setup, variable: str, key: Credential) -> None:
    if variable and setup.secrets.get(variable) is None:
        dotenv.put(setup.home, variable, key.value)


def _written(setup: Setup, args: Namespace, found: Probe, variable: str, model: str) -> Wanted:
    """Under a name of its own, or as the one custom endpoint."""
    usual = choose_wire(found.base_url, "", CUSTOM)
    mode = found.wire if found.wire != usual else ""
    if not args.called:
        wanted = Wanted(CUSTOM, model, found.base_url, mode, variable)
        switch(setup, wanted)
        return wanted
    place = f"providers.{args.called}"
    revise(
        setup.home,
        {
            f"{place}.base_url": found.base_url,
            f"{place}.api_mode": mode or None,
            f"{place}.api_key_env": variable or None,
        },
    )
    wanted = Wanted(args.called, model)
    switch(load(setup.profile), wanted)
    return wanted
