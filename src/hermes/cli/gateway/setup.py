"""Sets up a messenger: asks for its token, tries it, and saves it."""

import os
import sys

from hermes.cli.auth.secret_input import check_key_text, read_key
from hermes.cli.startup import load_checked_setup
from hermes.config import update
from hermes.config.dotenv import set_variable
from hermes.config.platforms import read_platform
from hermes.core.errors import ConfigError
from hermes.gateway.adapter import PlatformSpec
from hermes.gateway.platforms import list_names, load_platform, require_known

_USUAL = "telegram"


async def set_up_platform(profile: str, name: str) -> str:
    """Ask, try the token with one real call, and write it to .env; returns what to say."""
    setup = load_checked_setup(profile)
    checkable = [n for n in list_names() if load_platform(n).check is not None]
    name = require_known(name or _ask_name(checkable))
    if name not in checkable:
        raise ConfigError(
            f"{name} has no token to try. Its settings are described in docs/gateway.md."
        )
    spec = load_platform(name)
    assert spec.check is not None
    tokens = _ask_tokens(spec)
    secrets = setup.secrets
    for variable, token in tokens.items():
        secrets = secrets.with_variable(variable, token)
    settings = read_platform(name, spec.settings, setup.config, secrets)
    who = await spec.check(settings, secrets)
    for variable, token in tokens.items():
        set_variable(setup.home, variable, token)
    users = _ask_users(name) if not settings.allowed_users else ""
    changes: dict[str, object] = {f"platforms.{name}.enabled": True}
    if users:
        ids = [part.strip() for part in users.split(",") if part.strip()]
        changes[f"platforms.{name}.allowed_users"] = ids
    update.apply_changes(setup.home, changes)
    access = (
        f"Allowed: {users}."
        if users
        else "Nobody may talk to it yet: write to it, then approve your code with hermes pairing."
    )
    return f"The token works: {who}. {access} Start with: hermes gateway run"


def _ask_name(names: list[str]) -> str:
    if not os.isatty(0):
        return _USUAL
    question = f"Which messenger: {', '.join(names)}? (empty: {_USUAL}) "
    print(question, end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() or _USUAL


def _ask_tokens(spec: PlatformSpec) -> dict[str, str]:
    """The secrets by their variables; from a pipe they come a line each."""
    if not spec.more_variables:
        return {spec.variable: read_key(f"Token of the {spec.name} bot", "")}
    variables = (spec.variable, *spec.more_variables)
    if os.isatty(0):
        return {variable: read_key(variable, "") for variable in variables}
    lines = sys.stdin.read().split("\n")
    lines += [""] * (len(variables) - len(lines))
    return {
        variable: check_key_text(line, "the input")
        for variable, line in zip(variables, lines, strict=False)
    }


def _ask_users(name: str) -> str:
    if not os.isatty(0):
        return ""
    print(
        f"Your user id on {name} (several with commas; empty: decide later): ",
        end="",
        file=sys.stderr,
        flush=True,
    )
    return sys.stdin.readline().strip()
