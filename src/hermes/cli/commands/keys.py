"""`hermes keys`: the API keys of the tenants of a cluster."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from hermes.cli.parser import CommandParser
from hermes.cli.startup import load_checked_setup, refuse_agent
from hermes.cli.terminal.text import print_report
from hermes.core.errors import ConfigError

if TYPE_CHECKING:
    from psycopg import Connection

_EPILOG = """\
commands:
  list         list the keys, without the keys themselves
  add TENANT   make a key and print it; it is stored as a hash and cannot be shown again
  revoke ID    delete a key; requests with it are refused at once

scopes: chat, sessions, runs, approve, metrics (all but metrics by default).

examples:
  hermes keys add acme > acme.key
  hermes keys add acme --scopes chat,runs --expires 90
  hermes keys list --json
  hermes keys revoke 1f2e3d4c5b6a
"""
_DAY = 86400.0
_DEFAULT_SCOPES = ("chat", "sessions", "runs", "approve")


def run(argv: list[str], profile: str) -> int:
    parser = CommandParser("keys", "Manage the API keys of the tenants of a cluster.", _EPILOG)
    parser.add_action(("list", "add", "revoke"), "list")
    parser.add_argument("what", nargs="?", metavar="TENANT|ID", default="", help="see below")
    parser.add_argument("--scopes", metavar="A,B", default="", help="what it may be used for (add)")
    parser.add_count_option("--expires", metavar="DAYS", help="refuse it after so many days (add)")
    parser.add_flag("--json", help="print JSON (list)")
    args = parser.parse_command(argv, profile)
    if (args.action != "list") != bool(args.what):
        needs = {"add": "needs a TENANT", "revoke": "needs an ID", "list": "takes no more words"}
        parser.error(f"{args.action} {needs[args.action]}")
    if args.action != "list":
        refuse_agent("change keys")
    scopes = _parse_scopes(args.scopes)
    from hermes.app.cluster.database import open_database

    with open_database(load_checked_setup(args.profile)) as db:
        if args.action == "add":
            return _add_key(args, db, scopes)
        if args.action == "revoke":
            return _revoke_key(args, db)
        return _list_keys(args, db)


def _parse_scopes(text: str) -> tuple[str, ...]:
    if not text:
        return _DEFAULT_SCOPES
    from hermes.config.api_server import SCOPES

    words = tuple(word.strip() for word in text.split(",") if word.strip())
    if unknown := [word for word in words if word not in SCOPES]:
        raise ConfigError(
            f"{unknown[0]}: not a scope of a tenant's key. No key was made. Use "
            f"{', '.join(SCOPES)}."
        )
    return words


def _add_key(args: Namespace, db: Connection[Any], scopes: tuple[str, ...]) -> int:
    from hermes.store.postgres.tenants import add_key

    expires = time.time() + args.expires * _DAY if args.expires else None
    print(add_key(db, args.what, scopes, expires)[1])
    return 0


def _revoke_key(args: Namespace, db: Connection[Any]) -> int:
    from hermes.store.postgres.tenants import revoke_key

    revoke_key(db, args.what)
    print(f"Revoked {args.what}.")
    return 0


def _list_keys(args: Namespace, db: Connection[Any]) -> int:
    from msgspec import to_builtins

    from hermes.store.postgres.tenants import list_keys

    found = list_keys(db)
    if not found and not args.json:
        print("There are no keys. `hermes keys add TENANT` makes one.", file=sys.stderr)
    lines = [
        f"{key.id}  {key.tenant}  {','.join(key.scopes)}  {_describe_expiry(key.expires)}"
        for key in found
    ]
    return print_report({"keys": to_builtins(found)}, lines, json=args.json)


def _describe_expiry(expires: float | None) -> str:
    if expires is None:
        return "does not expire"
    word = "expired" if expires <= time.time() else "expires"
    return f"{word} {time.strftime('%Y-%m-%d', time.localtime(expires))}"
