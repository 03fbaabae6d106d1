"""`hermes worker`: a node of a cluster that runs what waits and answers no requests."""

from __future__ import annotations

import sys

from hermes.cli.main import EXIT_USAGE, print_stderr
from hermes.cli.parser import CommandParser
from hermes.core.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

_EPILOG = """\
The runs of a cluster wait in queues: `turns` for any worker, `node:NAME` for sessions whose files
are on that node. On SIGTERM or Ctrl-C the worker hands over what it runs and exits with status 0.
See docs/cluster.md.

examples:
  hermes worker
  hermes worker --queues turns --until-idle
"""


def run(argv: list[str], profile: str) -> int:
    parser = CommandParser("worker", "Run what waits in the queues of a cluster.", _EPILOG)
    parser.add_argument(
        "--queues",
        metavar="A,B",
        default="",
        help="the queues to work on (default: turns and that of this node)",
    )
    parser.add_flag("--until-idle", help="end when nothing waits any more")
    args = parser.parse_command(argv, profile)
    import asyncio

    try:
        return asyncio.run(_work(args))
    except ConfigError as error:
        print_stderr(str(error))
        return EXIT_USAGE


async def _work(args: Namespace) -> int:
    import asyncio

    from hermes.app.cluster.node import ClusterNode, place_workspaces
    from hermes.cli.process import SignalHandler, harden_process, tune_garbage_collection
    from hermes.cli.server_process import import_server, load_settings

    harden_process()
    setup, settings = load_settings(args)
    stop = asyncio.Event()
    SignalHandler().attach(stop.set)
    node = ClusterNode(setup, roles=("worker",))
    setup = place_workspaces(setup)
    try:
        await node.join_cluster(stop.set)
        await asyncio.to_thread(import_server)
        from hermes.app.runtime import Runtime
        from hermes.server.app import Server

        queues = tuple(filter(None, (part.strip() for part in args.queues.split(","))))
        async with Runtime.open(setup, store=node.store) as runtime:
            server = Server(runtime, settings, node=node)
            tune_garbage_collection()
            async with server.run_waiting(queues, until_idle=args.until_idle) as working:
                print(f"working as {node.lease.node}", file=sys.stderr, flush=True)
                waiting = asyncio.ensure_future(stop.wait())
                await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
    finally:
        await node.store.close()
    return 0
