"""`hermes gateway`: the agent in messengers."""

from __future__ import annotations

import sys
from argparse import Namespace

from hermes.cli.parser import CommandParser
from hermes.cli.startup import create_home, refuse_agent

_EPILOG = """\
commands:
  run              serve the configured messengers in the foreground
  start, stop      start it in the background, stop it
  restart          restart it when its running turns have ended
  status           show what it is doing; exit 3 when it does not run
  setup [NAME]     set up a messenger: asks for its token and tries it
  install          start it with your login (systemd or launchd)
  uninstall        remove it from your login

Settings: `gateway` and `platforms` in config.yaml; tokens in .env. Nobody may talk to the agent
until you allow them: allowed_users, or hermes pairing. See docs/gateway.md.

examples:
  hermes gateway setup telegram
  hermes gateway run
  hermes gateway status --json
"""
_ACTIONS = ("run", "start", "stop", "restart", "status", "setup", "install", "uninstall")


def run(argv: list[str], profile: str) -> int:
    parser = CommandParser("gateway", "Run the agent in messengers.", _EPILOG)
    parser.add_action(_ACTIONS, "status")
    parser.add_argument("name", nargs="?", default="", metavar="NAME", help="a messenger (setup)")
    parser.add_flag("--json", help="print JSON (status)")
    args = parser.parse_command(argv, profile)
    if args.name and args.action != "setup":
        parser.error(f"{args.action} takes no name")
    if args.action != "status":
        refuse_agent("control the gateway")
    if args.action == "run":
        return _run_gateway(args)
    if args.action == "status":
        return _show_status(args)
    print(_act(args))
    return 0


def _run_gateway(args: Namespace) -> int:
    import asyncio
    import gc

    gc.disable()  # until everything is imported: none of it is garbage
    from hermes.llm.http.lazy_tls import load_aiohttp

    load_aiohttp()
    from hermes.cli.gateway.process import run_gateway

    return asyncio.run(run_gateway(args.profile))


def _show_status(args: Namespace) -> int:
    from hermes.cli.gateway.control import describe_status, format_status
    from hermes.cli.terminal.text import strip_controls

    code, found = describe_status(create_home(args.profile))
    if args.json:
        import msgspec

        sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
    else:
        print("\n".join(map(strip_controls, format_status(found))))
    return code


def _act(args: Namespace) -> str:
    from hermes.cli.gateway import control

    home = create_home(args.profile)
    match args.action:
        case "start":
            return control.start_gateway(home, args.profile)
        case "stop":
            return control.stop_gateway(home)
        case "restart":
            return control.restart_gateway(home)
        case "setup":
            from hermes.cli.gateway.setup import set_up_platform
            from hermes.cli.startup import run_async

            return run_async(set_up_platform(args.profile, args.name))
        case "install":
            from hermes.cli.gateway.unit import install_unit

            return install_unit(home, args.profile)
        case _:
            from hermes.cli.gateway.unit import uninstall_unit

            return uninstall_unit(args.profile)
