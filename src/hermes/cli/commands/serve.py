"""`hermes serve`: the API server alone."""

from __future__ import annotations

import sys
from argparse import Namespace

from hermes.cli.main import EXIT_USAGE, fail
from hermes.cli.parser import Parser, profile_option
from hermes.core.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio

    from hermes.config.api_server import ApiServer
    from hermes.config.load import Setup
    from hermes.core.store import Store
    from hermes.server.http.early_listener import Lobby

_EPILOG = """\
Speaks the protocols of OpenAI (chat completions, responses) and Anthropic (messages) at
http://HOST:PORT/v1. Settings: platforms.api_server in config.yaml, API_SERVER_KEY,
API_SERVER_HOST, API_SERVER_PORT. Without a key it listens on this machine only.
SIGTERM or Ctrl-C: what runs may end, then the server does; exit status 0.

examples:
  hermes serve
  hermes serve --port 0
  API_SERVER_KEY=$(cat key) hermes serve --host 0.0.0.0
"""


def run(argv: list[str], profile: str) -> int:
    parser = Parser("hermes serve", "Serve the agent over HTTP.", _EPILOG)
    parser.add_argument("--host", metavar="H", default="", help="address to listen on")
    parser.add_argument("--port", metavar="P", type=port, help="port; 0 picks a free one")
    profile_option(parser, profile)
    args, unknown = parser.parse_known_args(argv)
    if unknown:
        parser.complain(unknown)
    import gc

    gc.disable()  # until all is imported: none of it is garbage
    try:
        import asyncio

        return asyncio.run(_serve(args))
    except ConfigError as error:
        fail(str(error))
        return EXIT_USAGE


def port(text: str) -> int:
    number = int(text)
    if not 0 <= number <= 65535:
        raise ValueError(text)
    return number


async def _serve(args: Namespace) -> int:
    """The port is open as early as can be, and only when nothing is left that could go wrong:
    most of a start is importing, and who asks meanwhile is answered or waits."""
    import asyncio

    from hermes.cli.process import Signals, harden, many_files
    from hermes.config import paths
    from hermes.store.sqlite import SqliteStore

    setup, settings = _settings(args)
    harden()
    many_files()
    stop = asyncio.Event()
    Signals().attach(stop.set)
    store = SqliteStore(paths.database(setup.home))
    store.open()  # on its own thread
    from hermes.config.instances import announced
    from hermes.server.http.early_listener import opened
    from hermes.server.http.principals import checked_keys

    try:
        checked_keys(settings, setup.secrets)
        for notice in await store.ready():
            fail(notice)
        async with opened(settings) as lobby:
            with announced(setup.home, "serve", lobby.address):
                print(f"listening on {lobby.address}", file=sys.stderr, flush=True)
                await asyncio.to_thread(_rest)
                await _until(stop, setup, settings, store=store, lobby=lobby)
    finally:
        await store.close()
    return 0


def _settings(args: Namespace) -> tuple[Setup, ApiServer]:
    from msgspec import structs

    from hermes.cli import log_file as logs
    from hermes.config import api_server, paths
    from hermes.config.load import load
    from hermes.core.redaction.redactor import Redactor

    setup = load(args.profile)
    variables = {name: setup.secrets.get(name) or "" for name in api_server.VARIABLES}
    settings, notes = api_server.read(setup.config, variables)
    known = {*setup.secrets.known(), *filter(None, (settings.key,))}
    logs.install(paths.log_file(setup.home), Redactor(known).clean)
    if settings.access_log:
        logs.tell("hermes.server.access")
    for note in (*setup.warnings, *notes):
        fail(note)
    if args.host:
        settings = structs.replace(settings, host=args.host)
    if args.port is not None:
        settings = structs.replace(settings, port=args.port)
    return setup, settings


def _rest() -> None:
    """What is imported while the port is open already, on a thread of its own."""
    from importlib import import_module

    from hermes.llm.http.lazy_tls import load_aiohttp

    load_aiohttp()  # before anybody imports aiohttp, which takes twice as long by itself
    import_module("hermes.app.runtime")
    import_module("hermes.server.app").all_routes()


async def _until(
    stop: asyncio.Event, setup: Setup, settings: ApiServer, *, store: Store, lobby: Lobby
) -> None:
    from hermes.app.runtime import Runtime
    from hermes.cli.process import settle_in
    from hermes.server.app import Server

    async with Runtime.open(setup, store=store) as runtime:
        server = Server(runtime, settings)
        settle_in()
        async with server.listening(lobby):
            await stop.wait()
