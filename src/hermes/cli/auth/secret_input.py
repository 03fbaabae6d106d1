"""A secret from the user: typed without echo, piped in, or named by its variable; never in argv."""

from __future__ import annotations

import os
import sys

from hermes.config.env import environment
from hermes.core.errors import ConfigError, ProviderError
from hermes.llm.auth.key_pool import Credential, clean_key

_LONGEST = 16 * 1024


def read_key(what: str, variable: str) -> str:
    """As it can be sent. `variable` names where it is; empty: it is asked for, or comes in on
    standard input. ConfigError when there is none."""
    if variable:
        text = environment().get(variable, "")
        if not text.strip():
            raise ConfigError(f"{variable} is not set in the environment; nothing was changed.")
        return checked(text, variable)
    if os.isatty(0):
        from getpass import getpass

        try:
            text = getpass(f"{what} (it is not shown): ", sys.stderr)
        except EOFError:
            text = ""
    else:
        text = sys.stdin.buffer.read(_LONGEST).decode("utf-8", "replace")
    return checked(text, "what you gave")


def checked(text: str, source: str) -> str:
    key = text.strip()
    if not key:
        raise ConfigError("No key was given; nothing was changed.")
    if "\n" in key or len(key) > 8 * 1024:
        raise ConfigError("A key is one line; nothing was changed.")
    try:
        return clean_key(Credential(source, key))
    except ProviderError as error:
        raise ConfigError(f"{error} Nothing was changed.") from None
