"""A secret from the user: typed without echo, piped in, or in a variable; never in argv."""

import os
import sys

from hermes.config.env import get_environment
from hermes.core.errors import ConfigError, ProviderError
from hermes.llm.auth.key_pool import Credential, clean_key

_MAX_INPUT = 16 * 1024


def read_key(prompt: str, variable: str) -> str:
    """A key from the environment `variable` or, without one, from the terminal or standard input.
    ConfigError when there is none, or none that can be sent."""
    if variable:
        text = get_environment().get(variable, "")
        if not text.strip():
            raise ConfigError(f"{variable} is not set in the environment; nothing was changed.")
        return check_key_text(text, variable)
    if os.isatty(0):
        from getpass import getpass

        try:
            text = getpass(f"{prompt} (it is not shown): ", sys.stderr)
        except EOFError:
            text = ""
    else:
        text = sys.stdin.buffer.read(_MAX_INPUT).decode("utf-8", "replace")
    return check_key_text(text, "the input")


def check_key_text(text: str, source: str) -> str:
    """The key as it can be sent; ConfigError when it cannot be one."""
    key = text.strip()
    if not key:
        raise ConfigError("No key was given; nothing was changed.")
    if "\n" in key or len(key) > 8 * 1024:
        raise ConfigError("A key is a single line; nothing was changed.")
    try:
        return clean_key(Credential(source, key))
    except ProviderError as error:
        raise ConfigError(f"{error} Nothing was changed.") from None
