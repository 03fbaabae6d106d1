"""`hermes doctor`: checks this installation and repairs it."""

from typing import TYPE_CHECKING

from hermes.cli.main import EXIT_FAILED
from hermes.cli.parser import CommandParser
from hermes.cli.startup import locate_home, refuse_agent, run_async

if TYPE_CHECKING:
    from hermes.app.control.doctor.check import Check

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
    from functools import partial

    from msgspec import to_builtins

    from hermes.app.control.doctor.examination import run_checks
    from hermes.cli.terminal.text import print_report, strip_controls
    from hermes.config.load import load_setup
    from hermes.gateway.process.connection_checks import check_messengers

    if args.fix:
        refuse_agent("repair its home")
    home, load = locate_home(args.profile), partial(load_setup, args.profile)
    examined = run_checks(home, load, check_messengers, online=args.online, fix=args.fix)
    checks = run_async(examined)
    lines = (strip_controls(line) for check in checks for line in _format_check(check))
    print_report(to_builtins(checks), lines, json=args.json)
    return EXIT_FAILED if any(check.state == "failed" for check in checks) else 0


def _format_check(check: "Check") -> list[str]:
    mark = {"ok": "ok    ", "note": "note  ", "failed": "FAILED"}[check.state]
    details = [f"          {line}" for line in check.details]
    return [f"{mark}  {check.name}: {check.text}", *details]
