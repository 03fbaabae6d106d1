"""`hermes mcp`: the MCP servers whose tools the agent may use, and the agent as such a server."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentTypeError, Namespace
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes.cli.main import EXIT_FAILED, print_stderr
from hermes.cli.parser import CommandParser
from hermes.cli.startup import load_checked_setup, refuse_agent, run_async
from hermes.cli.terminal.text import one_line, print_report, strip_controls
from hermes.config.env import decode_argument
from hermes.core.errors import ConfigError

if TYPE_CHECKING:
    from hermes.app.extensions.mcp_servers import McpServers
    from hermes.config.api_server import ApiServer
    from hermes.config.load import Setup
    from hermes.mcp.server_config import ServerConfig
    from hermes.mcp.server_link import ServerLink
    from hermes.store.sqlite import SqliteStore

_EPILOG = """\
commands:
  list                          list the servers and whether they work
  add NAME -- COMMAND [ARG...]  add a server that is a program
  add NAME --url URL            add a server at an address
  test NAME                     start it, or connect to it, and say what it offers
  call NAME TOOL [JSON]         call one of its tools with these arguments
  review NAME                   show what it changed since you agreed, and agree to it
  login NAME                    log in to it with a browser
  enable|disable|remove NAME    use it, stop using it, forget it
  serve                         be an MCP server for another program, on stdin and stdout

The model finds their tools with tool_search; a server starts when it is first needed. At its first
use its tools are remembered, and tools that are new or change later are off until you agree.

examples:
  hermes mcp add time -- uvx mcp-server-time
  hermes mcp add docs --url https://example.com/mcp --header "Authorization=Bearer ${DOCS_TOKEN}"
  hermes mcp test time
  hermes mcp call time get_current_time '{"timezone": "Europe/Berlin"}'
  hermes mcp serve --http --port 8765
"""
_ACTIONS = (
    *("list", "add", "test", "call", "review", "login", "enable", "disable", "remove", "serve"),
)
_READING = frozenset({"list", "test"})
_WORDS = {"list": (0, 0), "serve": (0, 0), "call": (2, 3)}
"""How many words an action takes; others take the name of a server."""


def run(argv: list[str], profile: str) -> int:
    parser = CommandParser("mcp", "Use MCP servers, or be one.", _EPILOG)
    parser.add_action(_ACTIONS, "list")
    parser.add_argument("words", nargs="*", metavar="NAME")
    parser.add_argument("--url", metavar="U", default="", help="add: the address of the server")
    parser.add_argument("--transport", choices=("http", "sse"), help="add: how it speaks (http)")
    pairs: dict[str, Any] = {
        "action": "append",
        "default": [],
        "type": _parse_pair,
        "metavar": "K=V",
    }
    parser.add_argument("--env", help="add: a variable for the program", **pairs)
    parser.add_argument("--header", help="add: a header of its requests", **pairs)
    parser.add_flag("--oauth", help="add: it needs a login")
    parser.add_flag("--no-browser", help="login: only print the address")
    parser.add_flag("--yes", help="review: agree without asking")
    parser.add_flag("--json", help="print JSON (list)")
    parser.add_flag("--http", help="serve: over HTTP instead of stdin and stdout")
    parser.add_argument("--host", metavar="H", default="127.0.0.1", help="serve: address")
    parser.add_argument("--port", metavar="P", type=_parse_port, default=0,
                        help="serve: port; 0 picks a free one")  # fmt: skip
    cut = argv.index("--") if "--" in argv else len(argv)
    args = parser.parse_command(argv[:cut], profile)
    args.command = [decode_argument(word) for word in argv[cut + 1 :]]
    args.words = [decode_argument(word) for word in args.words]
    least, most = _WORDS.get(args.action, (1, 1))
    if not least <= len(args.words) <= most:
        wanted = "NAME TOOL [JSON]" if most > 1 else "one NAME" if most else "no name"
        parser.error(f"{args.action} takes {wanted}")
    if args.action == "add" and bool(args.url) == bool(args.command):
        parser.error("add needs either --url U or -- COMMAND")
    if args.action not in _READING:
        refuse_agent("use or change MCP servers")
    if args.action == "serve":
        return run_async(_serve(args))
    return run_async(_run_action(args))


def _parse_pair(text: str) -> tuple[str, str]:
    name, equals, value = decode_argument(text).partition("=")
    if not name or not equals:
        raise ArgumentTypeError(f"{text!r} must be NAME=VALUE")
    return name, value


def _parse_port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise ArgumentTypeError(f"{text!r} is not a port number")
    return int(text)


async def _run_action(args: Namespace) -> int:
    from hermes.app.control.mcp_registry import require_server
    from hermes.app.extensions.mcp_servers import open_servers

    setup = load_checked_setup(args.profile)
    if args.action == "add":
        return _add_server(args, setup)
    async with open_servers(setup) as servers:
        known = servers.read_servers(Path.cwd())
        if args.action == "list":
            return await _list_servers(args, servers, known)
        config = require_server(known, args.words[0])
        if args.action in ("enable", "disable", "remove"):
            return _change_server(args.action, setup, config)
        if args.action == "login":
            return await _log_in(args, setup, config)
        link = servers.get_link(config)
        if args.action == "test":
            return await _test_server(link)
        if args.action == "review":
            return await _review_server(args, link)
        return await _call_tool(args, link)


def _add_server(args: Namespace, setup: Setup) -> int:
    from hermes.app.control.mcp_registry import add_server

    name = args.words[0]
    entry: dict[str, Any] = {"url": args.url} if args.url else {"command": args.command[0]}
    parts = {
        "args": args.command[1:],
        "transport": args.transport,
        "env": dict(args.env),
        "headers": dict(args.header),
        "auth": "oauth" if args.oauth else "",
    }
    add_server(setup, name, entry | {key: value for key, value in parts.items() if value})
    print(f"added {name}; to try it: hermes mcp {'login' if args.oauth else 'test'} {name}")
    return 0


def _change_server(action: str, setup: Setup, config: ServerConfig) -> int:
    from hermes.app.control.mcp_registry import remove_server, switch_server

    if action == "remove":
        remove_server(setup, config)
        print(f"removed {config.name}")
        return 0
    switch_server(setup, config, enabled=action == "enable")
    print(f"{config.name} is {action}d")
    return 0


async def _list_servers(
    args: Namespace, servers: McpServers, known: dict[str, ServerConfig]
) -> int:
    import asyncio

    if not known and not args.json:
        print_stderr("no MCP servers are configured; see hermes mcp --help")
        return 0
    from hermes.app.control.mcp_registry import describe_server
    from hermes.core.text import format_plural

    rows = await asyncio.gather(*(describe_server(servers, c) for c in known.values()))
    width = max((len(name) for name in known), default=0)
    lines = [
        f"{row['name']:<{width}}  {row['state']}"
        + (f"  {format_plural(row['tools'], 'tool')}" if row["tools"] is not None else "")
        for row in rows
    ]
    return print_report(rows, map(strip_controls, lines), json=args.json)


async def _test_server(link: ServerLink) -> int:
    from hermes.app.control.mcp_registry import try_server
    from hermes.core.text import format_plural

    found = await try_server(link)
    if found["state"] != "ok":
        print(one_line(f"{found['name']}: {found['state']}", 500))
        if found["note"]:
            print_stderr(found["note"])
        return EXIT_FAILED
    count = format_plural(found["tools"], "tool")
    print(f"{found['name']}: ok, {count}, {found['milliseconds']} ms, {found['version']}")
    return 0


async def _call_tool(args: Namespace, link: ServerLink) -> int:
    import msgspec

    from hermes.core.message import Text

    try:
        arguments = msgspec.json.decode(
            args.words[2] if len(args.words) > 2 else "{}", type=dict[str, Any]
        )
    except msgspec.DecodeError:
        raise ConfigError("The arguments must be a JSON object, such as '{\"a\": 1}'.") from None
    await link.connect(lambda code, text: print_stderr(text))
    agreed = {tool.name: tool for tool in link.agreement.read_tools()}
    if args.words[1] not in agreed:
        names = ", ".join(agreed) or "none"
        raise ConfigError(f"{link.config.name} has no tool {args.words[1]}. Tools: {names}.")
    result = await link.call_tool(agreed[args.words[1]], arguments)
    parts = (Text(result.content),) if isinstance(result.content, str) else result.content
    for part in parts:
        if isinstance(part, Text):
            print(strip_controls(part.text))
        else:
            print(f"[{part.mime}, {len(part.data)} bytes]")
    return EXIT_FAILED if result.error else 0


async def _review_server(args: Namespace, link: ServerLink) -> int:
    from hermes.app.control.mcp_registry import list_changes
    from hermes.cli.terminal.picker import confirm_change
    from hermes.core.text import format_plural

    name = link.config.name
    changes = await list_changes(link)
    if not link.agreement.describe_changes():
        print(f"{name}: nothing changed")
        return 0
    if link.agreement.has_other_source:
        print(f"{name} has another command or address than the one you agreed to.")
    for tool in changes:
        print(f"{'new' if tool['is_new'] else 'changed'}  {one_line(tool['name'], 200)}")
        if not tool["is_new"] and tool["before"] != tool["description"]:
            print(f"  - {one_line(tool['before'], 1000)}")
        print(f"  + {one_line(tool['description'], 1000)}")
        if tool["parameters_changed"]:
            print("  (its parameters changed)")
    if not args.yes:
        question = f"Agree to {format_plural(len(link.agreement.changed), 'tool')}?"
        code = confirm_change("mcp review", question, "They stay off.")
        if code is not None:
            return code
    await link.agree()
    print(f"agreed to {format_plural(len(link.agreement.read_tools()), 'tool')} of {name}")
    return 0


async def _log_in(args: Namespace, setup: Setup, config: ServerConfig) -> int:
    from hermes.app.extensions.mcp_servers import log_in_to_server
    from hermes.cli.auth.login import LoginScreen, read_line

    if not config.settings.url:
        raise ConfigError(f"{config.name} is a program; there is nothing to log in to.")
    attended = os.isatty(0) and os.isatty(2)
    screen = LoginScreen(setup, browser=attended and not args.no_browser)
    await log_in_to_server(setup, config, screen.show_page, read_line if attended else None)
    print(f"{config.name}: logged in")
    return 0


async def _serve(args: Namespace) -> int:
    import asyncio
    from functools import partial

    from hermes.app.runtime import Runtime
    from hermes.cli.gateway.channels import list_channels, queue_message
    from hermes.cli.log_file import start_logging
    from hermes.cli.process import SignalHandler, harden_process
    from hermes.mcp.server_link import load_library

    harden_process()
    setup = load_checked_setup(args.profile)
    start_logging(setup.home, setup.secrets.redactable_values())
    settings = _read_http_settings(args, setup)
    module = await load_library("hermes.server.mcp.agent_server")
    stop = asyncio.Event()
    SignalHandler().attach(stop.set)
    async with _open_own_store(setup) as store, Runtime.open(setup, store=store) as runtime:
        channels, send = (partial(work, store) for work in (list_channels, queue_message))
        server = module.build_agent_server(runtime, channels, send)
        if args.http:
            await module.serve_http(server, settings, runtime, _announce_address, stop)
            return 0
        serving = asyncio.ensure_future(server.run_stdio_async())
        waiting = asyncio.ensure_future(stop.wait())
        await asyncio.wait([serving, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        serving.cancel()
    return 0


@asynccontextmanager
async def _open_own_store(setup: Setup) -> AsyncIterator[SqliteStore]:
    from hermes.config.paths import database_file
    from hermes.store.sqlite import SqliteStore

    store = SqliteStore(database_file(setup.home))
    try:
        for notice in await store.wait_until_open():
            print_stderr(notice)
        yield store
    finally:
        await store.close()


def _announce_address(address: str) -> None:
    print(f"listening on {address}", file=sys.stderr, flush=True)


def _read_http_settings(args: Namespace, setup: Setup) -> ApiServer:
    """The settings of the API server, with this address: who may connect is the same."""
    from msgspec import structs

    from hermes.config import api_server

    variables = {name: setup.secrets.get(name) or "" for name in api_server.VARIABLES}
    settings, _ = api_server.read_settings(setup.config, variables)
    return structs.replace(settings, host=args.host, port=args.port)
