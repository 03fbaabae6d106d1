"""`hermes doctor`: what works here, what does not, and what that costs."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from hermes.cli.main import EXIT_FAILED
from hermes.cli.parser import Parser, profile_option

if TYPE_CHECKING:
    from hermes.cli.doctor.check import Check

_EPILOG = """\
Looks at the configuration, the home and its permissions, the sessions, disk and clock, the model
and whether its provider can be reached, the sandbox, programs and optional packages. Nothing is
sent: the provider is only connected to (so is a host named in terminal.ssh). --online asks it
for its models, which costs nothing and tells whether the key is taken.

--fix closes files that are open to other users and removes what killed processes left behind; it
says what it did, and touches nothing else.
exit status: 0 nothing failed (notes are fine), 1 something did

examples:
  hermes doctor
  hermes doctor --online
  hermes doctor --fix
  hermes doctor --json | jq '.[] | select(.state != "ok")'
"""


def run(argv: list[str], profile: str) -> int:
    parser = Parser("hermes doctor", "Check this installation, and mend it.", _EPILOG)
    parser.add_argument("--online", action="store_true", help="ask the provider, too")
    parser.add_argument("--fix", action="store_true", help="mend what can be mended")
    parser.add_argument("--json", action="store_true", help="as JSON")
    profile_option(parser, profile)
    args, unknown = parser.parse_known_args(argv)
    if unknown:
        parser.complain(unknown)
    import asyncio

    checks = asyncio.run(_all(args))
    if args.json:
        import msgspec

        from hermes.cli.terminal.text import dump

        print(dump([msgspec.to_builtins(check) for check in checks]))
    else:
        for check in checks:
            _print(check)
    return EXIT_FAILED if any(check.state == "failed" for check in checks) else 0


def _print(check: Check) -> None:
    from hermes.cli.terminal.text import printable

    mark = {"ok": "ok    ", "note": "note  ", "failed": "FAILED"}[check.state]
    print(printable(f"{mark}  {check.name}: {check.text}"))
    for line in check.details:
        print(printable(f"          {line}"))


async def _all(args: Namespace) -> list[Check]:
    from hermes.cli.doctor import home, machine, reach
    from hermes.config.env import get_environment
    from hermes.config.load import load_setup
    from hermes.config.paths import find_home
    from hermes.core.errors import ConfigError

    place = find_home(get_environment(), args.profile)
    checks = [machine.version()]
    if args.fix:
        checks.append(_fixed(args))
        checks += await home.saved(place)
    setup = None
    try:
        setup = load_setup(args.profile)
        checks.append(home.configuration(setup))
    except ConfigError as error:
        checks.append(home.unreadable(place, error))
    if place.is_dir():  # looked at whatever its configuration is like
        checks += [home.permissions(place, setup.warnings if setup else ())]
        checks += [await home.sessions(place), home.disk(place), home.clock(place)]
        checks += [home.remains(place)]
    if setup is not None:
        checks += await reach.models(setup, online=args.online)
        if setup.config.terminal.backend != "local":
            checks.append(await reach.backend(setup))
    checks += [machine.sqlite(), await machine.sandbox(setup)]
    return [*checks, *machine.programs(), await machine.browser(setup), *machine.extras()]


def _fixed(args: Namespace) -> Check:
    from hermes.cli.doctor.check import Check
    from hermes.cli.doctor.leftovers import mended_home
    from hermes.config.env import get_environment, is_inside_agent
    from hermes.config.paths import find_home
    from hermes.core.errors import ConfigError
    from hermes.core.text import counted

    if is_inside_agent():
        raise ConfigError("A tool of an agent may not mend its home; do it yourself.")
    done = mended_home(find_home(get_environment(), args.profile))
    text = counted(len(done), "thing") if done else "nothing had to be"
    return Check("mended", "ok", text, tuple(done))
