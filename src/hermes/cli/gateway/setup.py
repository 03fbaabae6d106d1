"""Sets up a messenger: asks for its token, tries it, and saves it."""

import os
import sys

from hermes.cli.auth.secret_input import read_key
from hermes.cli.startup import load_checked_setup
from hermes.config import update
from hermes.config.dotenv import set_variable
from hermes.config.load import Setup
from hermes.config.platforms import PlatformSettings, read_platform
from hermes.config.secrets import is_secret_name
from hermes.core.errors import ConfigError
from hermes.gateway.adapter import PendingStep, PlatformSpec
from hermes.gateway.platforms import DEFAULT, list_names, load_platform, require_known

_MAX_INPUT = 16 * 1024


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
    secrets = setup.secrets
    values = _ask_variables(spec, setup)
    for variable, value in values.items():
        secrets = secrets.with_variable(variable, value)
    settings = read_platform(name, spec.settings, setup.config, secrets)
    try:
        who = await spec.check(settings, secrets)
    except PendingStep as step:
        who = str(step)
    for variable, value in values.items():
        set_variable(setup.home, variable, value)
    users = _ask_users(name) if not settings.allowed_users else ""
    changes: dict[str, object] = {f"platforms.{name}.enabled": True}
    if users:
        ids = [part.strip() for part in users.split(",") if part.strip()]
        changes[f"platforms.{name}.allowed_users"] = ids
    update.apply_changes(setup.home, changes)
    pairs = spec.open(settings, secrets).capabilities.pairs
    tested = "settings work" if spec.more_variables else "token works"
    access = _describe_access(name, users, settings, pairs=pairs)
    return f"The {tested}: {who}. {access} Start with: hermes gateway run"


def _describe_access(name: str, users: str, settings: PlatformSettings, *, pairs: bool) -> str:
    if users or settings.allowed_users:
        return f"Allowed: {users or ', '.join(map(str, settings.allowed_users))}."
    if pairs:
        return "Nobody may talk to it yet: write to it, then approve your code with hermes pairing."
    return f"Nobody may talk to it yet: list people in platforms.{name}.allowed_users."


def _ask_variables(spec: PlatformSpec, setup: Setup) -> dict[str, str]:
    """The values of a platform's variables; what is no secret and known is not asked again. Where
    nobody can be asked, standard input has a line for each."""
    if not spec.more_variables:
        return {spec.variable: read_key(f"Token of the {spec.name} bot", "")}
    configured = setup.config.platforms.get(spec.name, {})

    def is_known(name: str) -> bool:
        key = name.removeprefix(f"{spec.name.upper()}_").lower()
        return bool(setup.secrets.get(name) or configured.get(key))

    names = [
        name
        for name in (spec.variable, *spec.more_variables)
        if is_secret_name(name) or not is_known(name)
    ]
    if not os.isatty(0):
        lines = [line.strip() for line in sys.stdin.read(_MAX_INPUT).splitlines()]
        found = dict(zip(names, lines, strict=False))
    else:
        found = {name: _ask_value(name) for name in names}
    if not found.get(spec.variable) and not is_known(spec.variable):
        raise ConfigError(f"{spec.variable} was not given; nothing was changed.")
    return {name: value for name, value in found.items() if value}


def _ask_value(name: str) -> str:
    from getpass import getpass

    if is_secret_name(name):
        return getpass(f"{name} (it is not shown; empty: none): ", sys.stderr).strip()
    print(f"{name} (empty: none): ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip()


def _ask_name(names: list[str]) -> str:
    if not os.isatty(0):
        return DEFAULT
    question = f"Which messenger: {', '.join(names)}? (empty: {DEFAULT}) "
    print(question, end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() or DEFAULT


def _ask_users(name: str) -> str:
    return _ask(f"Your user id on {name} (several with commas; empty: decide later): ")


def _ask(question: str) -> str:
    """A line from the terminal; empty without one."""
    if not os.isatty(0):
        return ""
    print(question, end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip()
