"""The process of the API server: `hermes serve` and `hermes dashboard` run it."""

from __future__ import annotations

import sys
from argparse import ArgumentTypeError
from functools import partial
from typing import NamedTuple

from hermes.cli.main import EXIT_USAGE, print_stderr
from hermes.cli.parser import CommandParser
from hermes.core.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from argparse import Namespace
    from collections.abc import Awaitable, Callable

    from hermes.app.cluster.node import ClusterNode
    from hermes.app.control.messengers import Messengers
    from hermes.app.runtime import Runtime
    from hermes.config.api_server import ApiServer
    from hermes.config.load import Setup
    from hermes.core.store import Store
    from hermes.server.http.listener import EarlyListener
    from hermes.store.tables.mailbox import MessengerStore

_CHECKED_SIZE = 512 * 2**20
"""Bytes of a database that is checked before the server starts, in about a second."""


def add_address_options(parser: CommandParser) -> None:
    parser.add_argument("--host", metavar="H", default="", help="address to listen on")
    parser.add_argument("--port", metavar="P", type=_parse_port, help="port; 0 picks a free one")


def _parse_port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise ArgumentTypeError(f"{text!r} is not a port number")
    return int(text)


def run_server(
    args: Namespace, on_listening: Callable[[str, Setup, Store], Awaitable[None]] | None = None
) -> int:
    """Serve until a signal; the exit status. With `on_listening`, which is called with the address
    when the port is open, the dashboard is on whatever the configuration says."""
    import gc

    gc.disable()  # until everything is imported: none of it is garbage
    try:
        import asyncio

        return asyncio.run(_start_server(args, on_listening))
    except ConfigError as error:
        print_stderr(str(error))
        return EXIT_USAGE


async def _start_server(
    args: Namespace, on_listening: Callable[[str, Setup, Store], Awaitable[None]] | None
) -> int:
    """Opens the port as soon as nothing can fail any more: most of a start is importing, and
    requests that arrive meanwhile are answered or wait."""
    import asyncio

    from msgspec import structs

    from hermes.cli.process import SignalHandler, harden_process, raise_file_limit
    from hermes.config import paths
    from hermes.store.sqlite import SqliteStore

    harden_process()
    setup, settings = load_settings(args)
    if args.host:
        settings = structs.replace(settings, host=args.host)
    if args.port is not None:
        settings = structs.replace(settings, port=args.port)
    if on_listening is not None:
        shown = structs.replace(setup.config.dashboard, enabled=True)
        setup = structs.replace(setup, config=structs.replace(setup.config, dashboard=shown))
    most = min(settings.max_connections, raise_file_limit())
    settings = structs.replace(settings, max_connections=most)
    stop = asyncio.Event()
    SignalHandler().attach(stop.set)
    node = _find_node(setup)
    store: MessengerStore
    if node is not None:
        from hermes.app.cluster.node import place_workspaces

        store, setup = node.store, place_workspaces(setup)
    else:
        own = SqliteStore(paths.database_file(setup.home), checked_size=_CHECKED_SIZE)
        own.open()  # on its own thread
        store = own
    from hermes.config.instances import announce_instance
    from hermes.server.http.listener import open_listener
    from hermes.server.http.principals import load_keys

    try:
        load_keys(settings, setup.secrets)
        for notice in await store.wait_until_open():
            print_stderr(notice)
        if node is not None:
            await node.join_cluster(stop.set)
        async with open_listener(settings) as listener:
            with announce_instance(setup.home, "serve", listener.address):
                print(f"listening on {listener.address}", file=sys.stderr, flush=True)
                if on_listening is not None:
                    await on_listening(listener.address, setup, store)
                await asyncio.to_thread(import_server)
                await _serve_until(stop, setup, settings, _Parts(store, listener, node))
    finally:
        await store.close()
    return 0


class _Parts(NamedTuple):
    """What is open before the server is."""

    store: MessengerStore
    listener: EarlyListener
    node: ClusterNode | None


def _find_node(setup: Setup) -> ClusterNode | None:
    """This process as a node; None where no cluster is configured."""
    if not setup.database_url:
        return None
    from hermes.app.cluster.node import ClusterNode

    return ClusterNode(setup)


def load_settings(args: Namespace) -> tuple[Setup, ApiServer]:
    """The configuration; notes about it are printed, and the log is begun."""
    from hermes.cli.log_file import log_info_events, start_logging
    from hermes.config import api_server
    from hermes.config.load import load_setup

    setup = load_setup(args.profile)
    variables = {name: setup.secrets.get(name) or "" for name in api_server.VARIABLES}
    settings, notes = api_server.read_settings(setup.config, variables)
    known = {*setup.secrets.redactable_values(), *filter(None, (settings.key,))}
    start_logging(setup.home, known)
    if settings.access_log:
        log_info_events("hermes.server.access")
    for note in (*setup.warnings, *notes):
        print_stderr(note)
    return setup, settings


def import_server() -> None:
    """Imports the rest while the port is already open, on a thread."""
    from importlib import import_module

    from hermes.llm.http.lazy_tls import load_aiohttp

    load_aiohttp()  # before aiohttp is imported otherwise, which takes twice as long
    import_module("hermes.app.runtime")
    import_module("hermes.server.app").list_routes()


async def _serve_until(
    stop: asyncio.Event, setup: Setup, settings: ApiServer, parts: _Parts
) -> None:
    from contextlib import AsyncExitStack

    from hermes.app.runtime import Runtime
    from hermes.cli.process import tune_garbage_collection
    from hermes.server.app import Server

    node = parts.node

    def open_messengers() -> Messengers:
        from hermes.gateway.process.messenger_desk import MessengerDesk

        return MessengerDesk(setup, parts.store)

    async with Runtime.open(setup, store=parts.store) as runtime:
        if node is not None and "gateway" in node.roles:
            node.add_singleton("gateway", partial(_serve_messengers, node, runtime))
        server = Server(runtime, settings, open_messengers=open_messengers, node=node)
        tune_garbage_collection()
        async with AsyncExitStack() as stack:
            if parts.node is not None and "worker" in parts.node.roles:
                from hermes.cli.batch.node import take_batches

                await stack.enter_async_context(take_batches(setup, parts.node, stop))
            await stack.enter_async_context(server.listen(parts.listener))
            await stop.wait()


async def _serve_messengers(node: ClusterNode, runtime: Runtime, stop: asyncio.Event) -> None:
    import asyncio
    from importlib import import_module

    gateway = await asyncio.to_thread(import_module, "hermes.cli.gateway.node")
    process = await asyncio.to_thread(import_module, "hermes.cli.gateway.process")
    await gateway.serve_gateway(node, runtime, process.open_or_tell, stop)
