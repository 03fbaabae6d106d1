"""Sets up a messenger: asks for its token, tries it, and saves it."""

import os
import sys

from hermes.cli.auth.secret_input import read_key
from hermes.cli.startup import load_checked_setup
from hermes.config import update
from hermes.config.dotenv import set_variable
from hermes.config.platforms import read_platform
from hermes.core.errors import ConfigError
from hermes.gateway.platforms import list_names, load_platform, require_known


async def set_up_platform(profile: str, name: str) -> str:
    """Ask, try the token with one real call, and write it to .env; returns what to say."""
    setup = load_checked_setup(profile)
    checkable = [n for n in list_names() if load_platform(n).check is not None]
    name = require_known(name or "telegram")
    if name not in checkable:
        raise ConfigError(
            f"{name} has no token to try. Its settings are described in docs/gateway.md."
        )
    spec = load_platform(name)
    assert spec.check is not None
    variable = spec.secret or spec.variable
    secrets, answers = setup.secrets, {}
    for other, question in spec.more:
        if secrets.get(other) is None and (answer := _ask(f"{question}: ")):
            answers[other] = answer
            secrets = secrets.with_variable(other, answer)
    answers[variable] = read_key(spec.secret_label or f"Token of the {name} bot", "")
    secrets = secrets.with_variable(variable, answers[variable])
    settings = read_platform(name, spec.settings, setup.config, secrets)
    who = await spec.check(settings, secrets)
    for answered, value in answers.items():
        set_variable(setup.home, answered, value)
    users = _ask_users(name) if not settings.allowed_users else ""
    changes: dict[str, object] = {f"platforms.{name}.enabled": True}
    if users:
        ids = [part.strip() for part in users.split(",") if part.strip()]
        changes[f"platforms.{name}.allowed_users"] = ids
    update.apply_changes(setup.home, changes)
    allowed = users or ", ".join(map(str, settings.allowed_users))
    advice = "list yourself in allowed_users"
    if spec.open(settings, secrets).capabilities.pairs:
        advice = "write to it, then approve your code with hermes pairing"
    access = f"Allowed: {allowed}." if allowed else f"Nobody may talk to it yet: {advice}."
    return f"The token works: {who}. {access} Start with: hermes gateway run"


def _ask_users(name: str) -> str:
    return _ask(f"Your user id on {name} (several with commas; empty: decide later): ")


def _ask(question: str) -> str:
    """A line from the terminal; empty without one."""
    if not os.isatty(0):
        return ""
    print(question, end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip()
