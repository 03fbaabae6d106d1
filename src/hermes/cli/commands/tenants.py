"""`hermes tenants`: the customers of a cluster and what each may use."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hermes.cli.parser import CommandParser
from hermes.cli.startup import load_checked_setup, refuse_agent
from hermes.cli.terminal.text import print_report
from hermes.core.errors import ConfigError

if TYPE_CHECKING:
    from psycopg import Connection

    from hermes.store.tables.tenancy import TenantLimits

_EPILOG = """\
commands:
  list                     list the tenants, their limits and what they run
  add NAME [LIMIT=N ...]   add a tenant
  set NAME LIMIT=N ...     change limits; LIMIT= removes one
  suspend NAME             refuse the keys of a tenant; its data is kept
  resume NAME              accept them again
  remove NAME              delete a tenant, its keys and all its data

limits:
  daily_usd, monthly_usd                    dollars of model calls
  requests_per_minute, tokens_per_minute
  concurrent_turns                          turns at a time, on all nodes together
  storage_mb                                stored messages and responses
  models, toolsets                          A,B,...: only these

The sessions, runs, responses and memory of a tenant are invisible to all others. `hermes keys add
NAME` makes a key for it. See docs/cluster.md.

examples:
  hermes tenants add acme daily_usd=20 requests_per_minute=600
  hermes tenants set acme daily_usd=50 concurrent_turns=
  hermes tenants suspend acme
"""
_MOST = 10**12
_NAMED = ("add", "set", "suspend", "resume", "remove")


def run(argv: list[str], profile: str) -> int:
    parser = CommandParser("tenants", "Manage the tenants of a cluster.", _EPILOG)
    parser.add_action(("list", *_NAMED), "list")
    parser.add_argument("name", nargs="?", metavar="NAME", default="", help="a tenant")
    parser.add_argument("limits", nargs="*", metavar="LIMIT=N", help="limits (add, set)")
    parser.add_flag("--json", help="print JSON (list)")
    parser.add_flag("--yes", help="do not ask (remove)")
    args = parser.parse_command(argv, profile)
    if (args.action in _NAMED) != bool(args.name):
        parser.error(f"{args.action} {'needs a' if args.action in _NAMED else 'takes no'} NAME")
    if args.limits and args.action not in ("add", "set"):
        parser.error(f"{args.action} takes no limits")
    if args.action == "set" and not args.limits:
        parser.error("set needs at least one LIMIT=N")
    if args.action in _NAMED:
        refuse_agent("change tenants")
    changes = dict(_parse_limit(text) for text in args.limits)
    from hermes.app.cluster.database import open_database

    with open_database(load_checked_setup(args.profile)) as db:
        return _ACTIONS[args.action](args, db, changes)


def _parse_limit(text: str) -> tuple[str, Any]:
    """The name of a limit and its value; None: no limit."""
    from hermes.store.tables.tenancy import TenantLimits

    name, equals, value = text.partition("=")
    if not equals or name not in TenantLimits.__struct_fields__:
        known = ", ".join(TenantLimits.__struct_fields__)
        raise ConfigError(f"{text}: not a limit. Nothing was changed. Write LIMIT=N with {known}.")
    if not value:
        return name, None
    if name in ("models", "toolsets"):
        return name, tuple(word.strip() for word in value.split(",") if word.strip())
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    is_amount = name.endswith("_usd") or name == "storage_mb"
    is_right = number >= 0 if is_amount else number >= 1 and number.is_integer()
    if not is_right or number > _MOST:
        kind = "a number from 0" if is_amount else "a whole number from 1"
        raise ConfigError(f"{text}: {name} must be {kind} to {_MOST:,}. Nothing was changed.")
    return name, number if is_amount else int(number)


def _list_tenants(args: Namespace, db: Connection[Any], changes: dict[str, Any]) -> int:
    from msgspec import to_builtins

    from hermes.store.postgres.tenants import list_tenants

    found = list_tenants(db)
    lines = [
        f"{t.name}  {t.state}  {t.keys} keys  {t.sessions} sessions  {t.running} running  "
        f"{_format_limits(t.limits)}".rstrip()
        for t in found
    ]
    if not found and not args.json:
        print("There are no tenants. `hermes tenants add NAME` adds one.", file=sys.stderr)
    return print_report({"tenants": to_builtins(found)}, lines, json=args.json)


def _add_tenant(args: Namespace, db: Connection[Any], changes: dict[str, Any]) -> int:
    from hermes.store.postgres.tenants import add_tenant
    from hermes.store.tables.tenancy import TenantLimits

    limits = TenantLimits(**changes)
    add_tenant(db, args.name, limits)
    print(f"Added {args.name}. {_describe_limits(limits)} Make a key: hermes keys add {args.name}")
    return 0


def _set_limits(args: Namespace, db: Connection[Any], changes: dict[str, Any]) -> int:
    from hermes.store.postgres.tenants import change_tenant

    tenant = change_tenant(db, args.name, limits=changes)
    if "concurrent_turns" in changes:
        from hermes.store.postgres.engine import defer_wake
        from hermes.store.postgres.inbox import renew_wakes

        renew_wakes(db, defer_wake)  # more of what waits may fit now
    print(f"Changed {args.name}. {_describe_limits(tenant.limits)}")
    return 0


def _suspend_tenant(args: Namespace, db: Connection[Any], changes: dict[str, Any]) -> int:
    from hermes.store.postgres.tenants import change_tenant

    change_tenant(db, args.name, state="suspended")
    print(f"Suspended {args.name}: its keys are refused. Its data is kept.")
    return 0


def _resume_tenant(args: Namespace, db: Connection[Any], changes: dict[str, Any]) -> int:
    from hermes.store.postgres.tenants import change_tenant

    change_tenant(db, args.name, state="active")
    print(f"Resumed {args.name}: its keys are accepted again.")
    return 0


def _remove_tenant(args: Namespace, db: Connection[Any], changes: dict[str, Any]) -> int:
    from hermes.store.postgres.tenants import find_tenant, remove_tenant

    find_tenant(db, args.name)
    if not args.yes and sys.stdin.isatty():
        answer = input(f"Delete {args.name} with all its keys, sessions and data? [y/N] ")
        if answer.strip().lower() not in ("y", "yes"):
            print("Nothing was deleted.")
            return 1
    remove_tenant(db, args.name)
    print(f"Removed {args.name}, its keys and its data.")
    return 0


def _describe_limits(limits: TenantLimits) -> str:
    return f"Limits: {_format_limits(limits) or 'none'}."


def _format_limits(limits: TenantLimits) -> str:
    from msgspec import structs

    words = []
    for name, value in structs.asdict(limits).items():
        if value is not None:
            text = ",".join(value) if isinstance(value, tuple) else f"{value:.15g}"
            words.append(f"{name}={text}")
    return " ".join(words)


_ACTIONS: dict[str, Callable[[Namespace, Connection[Any], dict[str, Any]], int]] = {
    "list": _list_tenants,
    "add": _add_tenant,
    "set": _set_limits,
    "suspend": _suspend_tenant,
    "resume": _resume_tenant,
    "remove": _remove_tenant,
}
