"""`hermes cluster`: prepares the database of a cluster and shows its nodes."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from hermes.cli.main import print_stderr
from hermes.cli.parser import CommandParser
from hermes.cli.startup import load_checked_setup, refuse_agent
from hermes.cli.terminal.text import print_report
from hermes.core.errors import ConfigError

if TYPE_CHECKING:
    from psycopg import Connection

    from hermes.store.postgres.nodes import NodeRecord

_EPILOG = """\
commands:
  init         create the tables in the database, or bring them up to date
  status       show the nodes, the running turns and the database
  nodes        list the nodes
  drain NODE   let a node finish its turns and end

Several machines are one Hermes when they share a PostgreSQL database: set HERMES_DATABASE_URL (or
cluster.database) and run `hermes serve` on each. See docs/cluster.md.

examples:
  HERMES_DATABASE_URL=postgresql://hermes:secret@db/hermes hermes cluster init
  hermes cluster status --json
  hermes cluster drain web-1
"""


def run(argv: list[str], profile: str) -> int:
    about = "Prepare the database of a cluster and show its nodes."
    parser = CommandParser("cluster", about, _EPILOG)
    parser.add_action(sorted(_ACTIONS), "status")
    parser.add_argument("node", nargs="?", metavar="NODE", default="", help="a node (drain)")
    parser.add_flag("--json", help="print JSON (status, nodes)")
    args = parser.parse_command(argv, profile)
    if (args.action == "drain") != bool(args.node):
        parser.error("drain needs a NODE" if args.action == "drain" else "only drain takes a NODE")
    if args.action in ("init", "drain"):
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
        f"database: {found.database_ms:.1f} ms, schema {found.schema}",
    ]
    return print_report(to_builtins(found), lines, json=args.json)


def _list_nodes(args: Namespace, db: Connection[Any]) -> int:
    from hermes.store.postgres.nodes import list_nodes

    nodes = list_nodes(db)
    return print_report({"nodes": to_builtins(nodes)}, _format_nodes(nodes), json=args.json)


def _drain_node(args: Namespace, db: Connection[Any]) -> int:
    from hermes.store.postgres.nodes import request_drain

    if not request_drain(db, args.node):
        raise ConfigError(
            f"There is no living node {args.node}. Nothing was changed. "
            "`hermes cluster nodes` lists them."
        )
    print(f"{args.node} takes no new work; it ends when its turns have.")
    return 0


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
}
