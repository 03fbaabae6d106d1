"""`hermes pairing`: lets people into the messengers."""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import Any

from hermes.cli.main import EXIT_FAILED, print_stderr
from hermes.cli.parser import CommandParser
from hermes.cli.startup import load_checked_setup, open_shared_store, refuse_agent, run_async
from hermes.cli.terminal.text import print_report, strip_controls
from hermes.core.errors import ConfigError

_EPILOG = """\
commands:
  list                     list the people who were let in, and those who wait
  approve PLATFORM CODE    let in the person who got this code
  revoke PLATFORM USER     take the permission back

Somebody who writes to your bot and is not in allowed_users gets a code, valid for one hour.

examples:
  hermes pairing list
  hermes pairing approve telegram ABCD2345
  hermes pairing revoke telegram 123456789
"""


def run(argv: list[str], profile: str) -> int:
    parser = CommandParser("pairing", "Let people into the messengers.", _EPILOG)
    parser.add_action(("list", "approve", "revoke"), "list")
    parser.add_argument("platform", nargs="?", default="", metavar="PLATFORM", help="a messenger")
    parser.add_argument("who", nargs="?", default="", metavar="CODE|USER", help="see below")
    parser.add_flag("--json", help="print JSON (list)")
    args = parser.parse_command(argv, profile)
    if args.action != "list":
        refuse_agent("decide who is let in")
        if not args.who:
            parser.error(
                f"{args.action} needs PLATFORM and {'CODE' if _approves(args) else 'USER'}"
            )
    return run_async(_run_action(args))


def _approves(args: Namespace) -> bool:
    return bool(args.action == "approve")


async def _run_action(args: Namespace) -> int:
    from hermes.gateway.process.messenger_desk import MessengerDesk

    setup = load_checked_setup(args.profile)
    async with open_shared_store(setup) as store:
        desk = MessengerDesk(setup, store)
        try:
            if args.action == "list":
                return _print_people(await desk.list_people(args.platform), args)
            decide = desk.approve_code if args.action == "approve" else desk.revoke_user
            print(await decide(args.platform, args.who))
        except ConfigError as error:
            print_stderr(str(error))
            return EXIT_FAILED
    return 0


def _print_people(rows: list[dict[str, Any]], args: Namespace) -> int:
    lines = [f"{row['state']:<8} {row['platform']}  {row['user']}  {row['name']}" for row in rows]
    if not rows and not args.json:
        print("Nobody was let in by a code, and nobody waits.", file=sys.stderr)
    return print_report(rows, map(strip_controls, lines), json=args.json)
