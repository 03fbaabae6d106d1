"""`hermes worker`: a node of a cluster that runs what waits and answers no requests."""

from __future__ import annotations

import sys
from contextlib import asynccontextmanager

from hermes.cli.main import EXIT_FAILED, EXIT_USAGE, print_stderr
from hermes.cli.parser import CommandParser
from hermes.core.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from argparse import Namespace
    from collections.abc import AsyncIterator

    from hermes.app.cluster.node import ClusterNode
    from hermes.config.api_server import ApiServer
    from hermes.config.load import Setup

_EPILOG = """\
The runs of a cluster wait in queues: `turns` for any worker, `node:NAME` for sessions whose files
are on that node, `batch` for the items of batches. On SIGTERM or Ctrl-C the worker hands over what
it runs and exits with status 0. See docs/cluster.md.

examples:
  hermes worker
  hermes worker --queues batch --until-idle
"""

_QUEUES = ("turns", "batch")


def run(argv: list[str], profile: str) -> int:
    parser = CommandParser("worker", "Run what waits in the queues of a cluster.", _EPILOG)
    parser.add_argument(
        "--queues",
        metavar="A,B",
        default="",
        help="the queues to work on (default: turns, batch and that of this node)",
    )
    parser.add_flag("--until-idle", help="end when nothing waits any more")
    args = parser.parse_command(argv, profile)
    args.queues = [name for part in args.queues.split(",") if (name := part.strip())]
    for name in args.queues:
        if name not in _QUEUES and not name.startswith("node:"):
            parser.error(f"there is no queue {name}: use {', '.join(_QUEUES)} or node:NAME")
    import asyncio

    try:
        return asyncio.run(_work(args))
    except ConfigError as error:
        print_stderr(str(error))
        return EXIT_USAGE


async def _work(args: Namespace) -> int:
    import asyncio
    from contextlib import AsyncExitStack

    from hermes.app.cluster.node import ClusterNode, place_workspaces
    from hermes.cli.batch.node import NO_SANDBOX, can_confine, take_batches
    from hermes.cli.process import SignalHandler, harden_process, tune_garbage_collection
    from hermes.cli.server_process import load_settings

    harden_process()
    setup, settings = load_settings(args)
    queues: list[str] = args.queues
    stop = asyncio.Event()
    SignalHandler().attach(stop.set)
    node = ClusterNode(setup, roles=("worker",))
    setup = place_workspaces(setup)
    try:
        if "batch" in queues and not await can_confine(setup):
            raise ConfigError(NO_SANDBOX)
        await node.join_cluster(stop.set)
        async with AsyncExitStack() as stack:
            tasks = []
            if not queues or "batch" in queues:
                batches = take_batches(
                    setup, node, stop, always=bool(queues), until_idle=args.until_idle
                )
                tasks.append(await stack.enter_async_context(batches))
            if queues == ["batch"]:
                for service in (node.bury_dead(), node.notices.exchange_notices()):
                    stack.callback(asyncio.create_task(service).cancel)
            else:
                others = [queue for queue in queues if queue != "batch"]
                working = _work_on_turns(node, setup, settings, others, until_idle=args.until_idle)
                tasks.append(await stack.enter_async_context(working))
            tune_garbage_collection()
            print(f"working as {node.lease.node}", file=sys.stderr, flush=True)
            stopping = asyncio.ensure_future(stop.wait())
            done = asyncio.ensure_future(asyncio.wait(tasks))
            await asyncio.wait({done, stopping}, return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            done.cancel()
            failed = any(
                task.done() and not task.cancelled() and task.exception() for task in tasks
            )
    finally:
        await node.store.close()
    return EXIT_FAILED if failed else 0


@asynccontextmanager
async def _work_on_turns(
    node: ClusterNode, setup: Setup, settings: ApiServer, queues: list[str], *, until_idle: bool
) -> AsyncIterator[asyncio.Task[None]]:
    """Answer what waits for sessions until the block ends."""
    import asyncio

    from hermes.cli.server_process import import_server

    await asyncio.to_thread(import_server)
    from hermes.app.runtime import Runtime
    from hermes.server.app import Server

    async with Runtime.open(setup, store=node.store) as runtime:
        server = Server(runtime, settings, node=node)
        async with server.run_waiting(queues, until_idle=until_idle) as working:
            yield working
