"""`hermes doctor`: checks this installation and repairs it."""

from argparse import Namespace
from typing import TYPE_CHECKING

from hermes.cli.main import EXIT_FAILED
from hermes.cli.parser import CommandParser
from hermes.cli.startup import locate_home, refuse_agent, run_async

if TYPE_CHECKING:
    from hermes.cli.doctor.check import Check

_EPILOG = """\
Checks the configuration, the home and its permissions, the sessions, disk and clock, the schedule,
the model and whether its provider can be reached, the messengers that are on, MCP servers (each is
started once), plugins, the sandbox, programs and optional packages. Nothing is sent: it only
connects to the provider (and to a host named in terminal.ssh), and asks each messenger whom its
token belongs to. --online also asks the provider for the list of models, which costs nothing and
shows whether the key is accepted.

--fix makes files private that other users could read, removes what killed processes left behind,
and salvages a damaged database; it reports each change and touches nothing else.
exit status: 0 nothing failed (notes do not count as failures), 1 something failed

examples:
  hermes doctor
  hermes doctor --online
  hermes doctor --fix
  hermes doctor --json | jq '.[] | select(.state != "ok")'
"""


def run(argv: list[str], profile: str) -> int:
    parser = CommandParser("doctor", "Check this installation and repair it.", _EPILOG)
    parser.add_flag("--online", help="also test the key at the provider")
    parser.add_flag("--fix", help="repair what can be repaired")
    parser.add_flag("--json", help="print JSON")
    args = parser.parse_command(argv, profile)
    from msgspec import to_builtins

    from hermes.cli.terminal.text import print_report, strip_controls

    checks = run_async(_run_checks(args))
    lines = (strip_controls(line) for check in checks for line in _format_check(check))
    print_report(to_builtins(checks), lines, json=args.json)
    return EXIT_FAILED if any(check.state == "failed" for check in checks) else 0


def _format_check(check: "Check") -> list[str]:
    mark = {"ok": "ok    ", "note": "note  ", "failed": "FAILED"}[check.state]
    details = [f"          {line}" for line in check.details]
    return [f"{mark}  {check.name}: {check.text}", *details]


async def _run_checks(args: Namespace) -> "list[Check]":
    from hermes.cli.doctor import (
        connectivity,
        home,
        knowledge,
        machine,
        mcp,
        messengers,
        plugins,
        schedule,
    )
    from hermes.config.load import load_setup
    from hermes.core.errors import ConfigError

    folder = locate_home(args.profile)
    checks = [machine.check_version()]
    if args.fix:
        refuse_agent("repair its home")
        checks.append(home.repair_home(folder))
        checks += await home.salvage_sessions(folder)
    setup = None
    try:
        setup = load_setup(args.profile)
        checks.append(home.check_configuration(setup))
    except ConfigError as error:
        checks.append(home.describe_broken_config(folder, error))
    if folder.is_dir():  # checked even with a broken configuration
        checks.append(home.check_permissions(folder, setup.warnings if setup else ()))
        checks.append(await home.check_sessions(folder))
        checks += [home.check_disk(folder), home.check_clock(folder), home.check_leftovers(folder)]
        checks.append(await schedule.check_schedule(folder))
    if setup is not None:
        checks.append(await plugins.check_plugins(setup))
        checks += await knowledge.check_knowledge(setup)
        checks += await connectivity.check_models(setup, online=args.online)
        checks += await messengers.check_messengers(setup)
        checks += await mcp.check_servers(setup)
        if setup.config.terminal.backend != "local":
            checks.append(await connectivity.check_backend(setup))
    checks += [machine.check_sqlite(), await machine.check_sandbox(setup)]
    checks += [*machine.check_programs(), await machine.check_browser(setup)]
    return [*checks, *machine.check_extras()]
