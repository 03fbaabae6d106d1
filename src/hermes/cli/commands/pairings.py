"""`hermes pairing`: lets people into the messengers."""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import TYPE_CHECKING

from hermes.cli.main import EXIT_FAILED, print_stderr
from hermes.cli.parser import CommandParser
from hermes.cli.startup import create_home, refuse_agent, run_async
from hermes.core.errors import ConfigError

if TYPE_CHECKING:
    from hermes.store.sqlite import SqliteStore

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
    from hermes.config import paths
    from hermes.store.sqlite import SqliteStore

    store = SqliteStore(paths.database_file(create_home(args.profile)))
    try:
        if args.action == "list":
            return await _list_people(store, args)
        if args.action == "approve":
            return await _approve_code(store, args)
        return await _revoke_user(store, args)
    finally:
        await store.close()


async def _list_people(store: SqliteStore, args: Namespace) -> int:
    rows = [
        {
            "platform": p.platform,
            "user": p.user,
            "name": p.name,
            "state": "paired" if p.approved else "waiting",
            "created": p.created,
        }
        for p in await store.pairings.list_all(args.platform)
    ]
    if args.json:
        import msgspec

        sys.stdout.write(msgspec.json.encode(rows).decode() + "\n")
        return 0
    from hermes.cli.terminal.text import strip_controls

    for row in rows:
        print(strip_controls(f"{row['state']:<8} {row['platform']}  {row['user']}  {row['name']}"))
    if not rows:
        print("Nobody was let in by a code, and nobody waits.", file=sys.stderr)
    return 0


async def _approve_code(store: SqliteStore, args: Namespace) -> int:
    from msgspec import structs

    from hermes.gateway import texts
    from hermes.gateway.content.reply import Content, make_entry
    from hermes.gateway.outbox import FOREIGN
    from hermes.gateway.people.pairing_desk import PairingDesk

    try:
        person = await PairingDesk(store.pairings).approve_code(args.platform, args.who)
    except ConfigError as error:
        print_stderr(str(error))
        return EXIT_FAILED
    # The running gateway finds it in the outbox, or the next one does.
    number = await store.mailbox.find_last_number() + 1
    entry = make_entry(number, person.platform, person.chat, Content(texts.PAIRED))
    await store.mailbox.put_reply(structs.replace(entry, inbox=FOREIGN))
    print(f"{person.name or person.user} ({person.platform} {person.user}) may talk to the agent.")
    return 0


async def _revoke_user(store: SqliteStore, args: Namespace) -> int:
    if not await store.pairings.remove(args.platform, args.who):
        print_stderr(f"{args.who} was not let in on {args.platform}. See: hermes pairing list")
        return EXIT_FAILED
    print(f"{args.who} may no longer talk to the agent on {args.platform}.")
    return 0
