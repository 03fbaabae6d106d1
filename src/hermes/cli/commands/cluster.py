"""`hermes cluster`: prepares the database of a cluster and shows its nodes."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from hermes.cli.main import EXIT_FAILED, print_stderr
from hermes.cli.parser import CommandParser
from hermes.cli.startup import load_checked_setup, locate_home, refuse_agent
from hermes.cli.terminal.text import print_report
from hermes.core.errors import ConfigError

if TYPE_CHECKING:
    from psycopg import Connection

    from hermes.store.postgres.nodes import NodeRecord
    from hermes.store.tables.tenancy import Tenant

_EPILOG = """\
commands:
  init         create the tables in the database, or bring them up to date
  status       show the nodes, the running turns and the database
  nodes        list the nodes
  drain NODE   let a node finish its turns and end
  check        look for what is wrong in the tables; --fix repairs it
  import [TENANT]   bring the conversations of a home without a cluster into a tenant; ended at any
               moment, it continues where it was (default: the operator)
  export TENANT     write everything of a tenant into the database of a new home

Several machines are one Hermes when they share a PostgreSQL database: set HERMES_DATABASE_URL (or
cluster.database) and run `hermes serve` on each. See docs/cluster.md.

examples:
  HERMES_DATABASE_URL=postgresql://hermes:secret@db/hermes hermes cluster init
  hermes cluster status --json
  hermes cluster drain web-1
  hermes cluster check --fix
  hermes cluster import acme --home /home/ann/.hermes
  hermes cluster export acme --output acme-home
"""


def run(argv: list[str], profile: str) -> int:
    about = "Prepare the database of a cluster and show its nodes."
    parser = CommandParser("cluster", about, _EPILOG)
    parser.add_action(sorted(_ACTIONS), "status")
    parser.add_argument(
        "name",
        nargs="?",
        metavar="NODE|TENANT",
        default="",
        help="see below (drain, import, export)",
    )
    parser.add_flag("--json", help="print JSON (status, nodes, check)")
    parser.add_flag("--fix", help="repair what is wrong (check)")
    parser.add_argument(
        "--home", metavar="DIR", default="", help="the home to import (default: yours)"
    )
    parser.add_argument(
        "--output", "-o", metavar="DIR", default="", help="the home to write (export)"
    )
    args = parser.parse_command(argv, profile)
    if args.action in ("drain", "export") and not args.name:
        parser.error(f"{args.action} needs a {'NODE' if args.action == 'drain' else 'TENANT'}")
    if args.name and args.action not in ("drain", "export", "import"):
        parser.error(f"{args.action} takes no name")
    if args.action in ("init", "drain", "import", "export") or args.fix:
        refuse_agent("change the cluster")
    from hermes.app.cluster.database import open_database

    setup = load_checked_setup(args.profile)
    with open_database(setup, checks=args.action != "init") as db:
        return _ACTIONS[args.action](args, db)


def _init_database(args: Namespace, db: Connection[Any]) -> int:
    from hermes.store.postgres.schema import SCHEMA_VERSION, migrate_database

    before = migrate_database(db)
    if before >= SCHEMA_VERSION:
        print(f"The database is up to date (schema {before}).")
    elif before:
        print(f"The database was updated from schema {before} to {SCHEMA_VERSION}.")
    else:
        print(f"The database is ready (schema {SCHEMA_VERSION}). Start nodes with `hermes serve`.")
    return 0


def _show_status(args: Namespace, db: Connection[Any]) -> int:
    from hermes.store.postgres.nodes import describe_cluster

    found = describe_cluster(db)
    _warn_of_differences(found.nodes)
    lines = [
        *_format_nodes(found.nodes),
        f"turns: {found.running} running, {found.stalled} stalled",
        f"queue: {found.queue_depth} waiting, the oldest for {found.oldest_wait:.1f} s",
        f"database: {found.database_ms:.1f} ms, schema {found.schema}",
    ]
    return print_report(to_builtins(found), lines, json=args.json)


def _list_nodes(args: Namespace, db: Connection[Any]) -> int:
    from hermes.store.postgres.nodes import list_nodes

    nodes = list_nodes(db)
    return print_report({"nodes": to_builtins(nodes)}, _format_nodes(nodes), json=args.json)


def _drain_node(args: Namespace, db: Connection[Any]) -> int:
    from hermes.store.postgres.nodes import request_drain

    if not request_drain(db, args.name):
        raise ConfigError(
            f"There is no living node {args.name}. Nothing was changed. "
            "`hermes cluster nodes` lists them."
        )
    print(f"{args.name} takes no new work; it ends when its turns have.")
    return 0


def _check_tables(args: Namespace, db: Connection[Any]) -> int:
    from hermes.store.postgres.administration.cluster_check import check_cluster

    found = check_cluster(db, fix=args.fix)
    lines = [f"{f.count} {f.what}{': repaired' if f.repaired else ''}" for f in found]
    if not found:
        lines = ["Everything is in order."]
    elif not args.fix:
        lines.append("Nothing was changed. `hermes cluster check --fix` repairs this.")
    print_report({"findings": to_builtins(found)}, lines, json=args.json)
    return EXIT_FAILED if found and not args.fix else 0


def _import_home(args: Namespace, db: Connection[Any]) -> int:
    from pathlib import Path

    from hermes.config import paths
    from hermes.store.postgres.administration.home_transfer import import_home

    home = Path(args.home).expanduser() if args.home else locate_home(args.profile)
    file = paths.database_file(home)
    if not file.exists():
        raise ConfigError(f"{home} has no conversations. Nothing was changed. Name another --home.")
    count = import_home(db, file, _find_tenant(db, args.name))
    known = f" {count.known} sessions were there already." if count.known else ""
    print(f"Imported {count.sessions} sessions with {count.messages} messages.{known}")
    return 0


def _export_tenant(args: Namespace, db: Connection[Any]) -> int:
    from pathlib import Path

    from hermes.config import paths
    from hermes.store.postgres.administration.home_transfer import export_tenant

    home = Path(args.output or f"hermes-{args.name}").expanduser().absolute()
    file = paths.database_file(home)
    if file.exists():
        raise ConfigError(
            f"{home} has conversations already. Nothing was changed. Name another --output."
        )
    tenant = _find_tenant(db, args.name)
    paths.make_home(home)
    count = export_tenant(db, tenant, file)
    print(f"Wrote {count.sessions} sessions with {count.messages} messages to {home}")
    return 0


def _find_tenant(db: Connection[Any], name: str) -> Tenant:
    from hermes.store.postgres.tenants import find_tenant
    from hermes.store.tables.tenancy import OPERATOR, Tenant

    if name in ("", "operator"):
        return Tenant(OPERATOR, "operator")
    return find_tenant(db, name)


def _format_nodes(nodes: tuple[NodeRecord, ...]) -> list[str]:
    if not nodes:
        return ["no nodes"]
    return [
        f"{node.name}  {_describe_state(node)}  {','.join(node.roles)}  {node.version}  "
        f"{node.turns} turns  config {node.digest}  {node.address}".rstrip()
        for node in nodes
    ]


def _describe_state(node: NodeRecord) -> str:
    if not node.alive:
        return f"dead for {node.lease_age:.0f} s"
    return "draining" if node.draining else f"alive, seen {node.lease_age:.0f} s ago"


def _warn_of_differences(nodes: tuple[NodeRecord, ...]) -> None:
    living = [node for node in nodes if node.alive]
    for what, values in (
        ("configurations", {node.digest for node in living}),
        ("versions", {node.version for node in living}),
    ):
        if len(values) > 1:
            print_stderr(f"The nodes have different {what}.")


_ACTIONS: dict[str, Callable[[Namespace, Connection[Any]], int]] = {
    "init": _init_database,
    "status": _show_status,
    "nodes": _list_nodes,
    "drain": _drain_node,
    "check": _check_tables,
    "import": _import_home,
    "export": _export_tenant,
}
