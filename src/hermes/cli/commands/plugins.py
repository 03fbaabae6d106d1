"""`hermes plugins`: lists, installs, enables and removes plugins."""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import TYPE_CHECKING

from hermes.app.control.plugin_registry import (
    describe_plugins,
    open_plugin_installer,
    remove_plugin,
    switch_plugins,
)
from hermes.cli.maintenance.bundle_install import BundleCommand
from hermes.cli.parser import CommandParser
from hermes.cli.startup import load_checked_setup, refuse_agent, run_async
from hermes.cli.terminal.text import one_line, print_report, strip_controls
from hermes.config.env import decode_argument
from hermes.core.errors import ConfigError

if TYPE_CHECKING:
    from hermes.config.load import Setup

_EPILOG = """\
commands:
  list             list plugins: name, state, version, description
  info NAME        show where a plugin is from and what it adds
  install SOURCE   fetch a plugin, scan it, show what was found, ask, install it; it stays off
  update [NAME]    fetch installed plugins again, show what changed, ask
  remove NAME      move a plugin to the archive
  enable NAME      load it from the next start on
  disable NAME     do not load it

SOURCE: a folder; a git address (https://, ssh://, file://) with @REF and #PATH if needed;
owner/repo[/PATH]; a zip or tar archive (a file or https). It must have a plugin.yaml. Nothing of it
is executed before you enable it; then it has all rights of this program.
states: enabled, disabled, off (not enabled), failed: why

examples:
  hermes plugins install ~/src/weather
  hermes plugins enable weather
  hermes plugins list --json
"""
_COUNTS = {
    "list": (0, 0),
    "info": (1, 1),
    "install": (1, 1),
    "update": (0, 1),
    "remove": (1, 1),
    "enable": (1, 99),
    "disable": (1, 99),
}
"""Action -> how many words it takes."""
_READING = frozenset({"list", "info"})


def run(argv: list[str], profile: str) -> int:
    parser = CommandParser("plugins", "List, install, enable and remove plugins.", _EPILOG)
    choices = list(_COUNTS)
    parser.add_action(choices, "list")
    parser.add_argument("words", nargs="*", metavar="NAME|SOURCE")
    parser.add_flag("--json", help="print JSON (list, info)")
    parser.add_flag("--yes", help="install, update: do not ask")
    parser.add_flag("--force", help="install, update: although it is blocked or changed here")
    args = parser.parse_command(argv, profile)
    args.words = [decode_argument(word) for word in args.words]
    least, most = _COUNTS[args.action]
    if not least <= len(args.words) <= most:
        parser.error(f"{args.action} {'takes no name' if most == 0 else 'needs a NAME or SOURCE'}")
    if args.action not in _READING:
        refuse_agent("change its plugins")
    return run_async(_run_action(args))


async def _run_action(args: Namespace) -> int:
    setup = load_checked_setup(args.profile)
    match args.action:
        case "list":
            return await _list_plugins(args, setup)
        case "info":
            return await _show_plugin(args, setup)
        case "install":
            return await BundleCommand(args, setup, open_plugin_installer(setup)).install_bundle()
        case "update":
            return await BundleCommand(args, setup, open_plugin_installer(setup)).update_bundles()
        case "remove":
            return _remove_plugin(args, setup)
    return _switch_plugins(args, setup)


async def _list_plugins(args: Namespace, setup: Setup) -> int:
    rows = await describe_plugins(setup)
    if not rows and not args.json:
        print("There are no plugins.", file=sys.stderr)
    lines = [
        f"{row['name']:<24} {row['state']:<9} {row['version']:<8} "
        f"{one_line(row['description'], 90)}".rstrip()
        for row in rows
    ]
    return print_report(rows, map(strip_controls, lines), json=args.json)


async def _show_plugin(args: Namespace, setup: Setup) -> int:
    name = args.words[0]
    row = next((row for row in await describe_plugins(setup) if row["name"] == name), None)
    if row is None:
        raise ConfigError(f"There is no plugin {name}. See: hermes plugins list")
    lines = [f"{key}: {value}" for key, value in row.items() if value]
    return print_report(row, map(strip_controls, lines), json=args.json)


def _remove_plugin(args: Namespace, setup: Setup) -> int:
    name = args.words[0]
    print(f"removed {name}; it is kept in {remove_plugin(setup, name)}")
    return 0


def _switch_plugins(args: Namespace, setup: Setup) -> int:
    switch_plugins(setup, args.words, enabled=args.action == "enable")
    for name in args.words:
        print(f"{name} is {'on from the next start' if args.action == 'enable' else 'off'}")
    return 0
