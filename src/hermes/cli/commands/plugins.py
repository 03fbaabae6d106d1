"""`hermes plugins`: lists, installs, enables and removes plugins."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hermes.cli.maintenance.bundle_install import BundleCommand
from hermes.cli.parser import CommandParser
from hermes.cli.startup import load_checked_setup, refuse_agent, run_async
from hermes.cli.terminal.text import one_line, print_report, strip_controls
from hermes.config.env import decode_argument
from hermes.config.paths import make_private_folder, plugins_folder
from hermes.core.errors import ConfigError

if TYPE_CHECKING:
    from hermes.config.load import Setup
    from hermes.skills.installer import SkillInstaller

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
            return await BundleCommand(args, setup, _open_installer(setup)).install_bundle()
        case "update":
            return await BundleCommand(args, setup, _open_installer(setup)).update_bundles()
        case "remove":
            return _remove_plugin(args, setup)
    return _switch_plugins(args, setup)


def _open_installer(setup: Setup) -> SkillInstaller:
    from hermes.app.extensions.plugin_sources import MANIFEST_FILE
    from hermes.skills.bundle import BundleKind
    from hermes.skills.installer import SkillInstaller, refuse_download

    folder = plugins_folder(setup.home)
    make_private_folder(folder)
    kind = BundleKind("plugin", MANIFEST_FILE, _validate_plugin, _find_name)
    return SkillInstaller(folder, refuse_download, kind)


def _find_name(files: Mapping[str, bytes], folder: str) -> str:
    """The name in plugin.yaml, else that of the folder; ConfigError if it cannot be one."""
    from hermes.app.extensions.plugin_sources import MANIFEST_FILE, is_plugin_name, read_manifest

    fields = read_manifest(files[MANIFEST_FILE].decode("utf-8", "replace"))
    name = str(fields.get("name") or folder)
    if not is_plugin_name(name):
        raise ConfigError(f"{name[:60]!r} cannot be the name of a plugin; nothing was installed.")
    return name


def _validate_plugin(folder: Path) -> Sequence[str]:
    return () if (folder / "__init__.py").is_file() else ("it has no __init__.py",)


async def _describe_plugins(setup: Setup) -> list[dict[str, str]]:
    from hermes.app.extensions.plugin_sources import list_local_plugins, list_packaged_plugins
    from hermes.app.extensions.plugins import describe_rows, try_loading

    found = {**list_packaged_plugins(), **list_local_plugins(setup.home)}
    return describe_rows(setup, await try_loading(setup), found)


async def _list_plugins(args: Namespace, setup: Setup) -> int:
    rows = await _describe_plugins(setup)
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
    row = next((row for row in await _describe_plugins(setup) if row["name"] == name), None)
    if row is None:
        raise ConfigError(f"There is no plugin {name}. See: hermes plugins list")
    lines = [f"{key}: {value}" for key, value in row.items() if value]
    return print_report(row, map(strip_controls, lines), json=args.json)


def _remove_plugin(args: Namespace, setup: Setup) -> int:
    name = args.words[0]
    installer = _open_installer(setup)
    place = installer.remove_skill(name)
    if name in setup.config.plugins.enabled:
        enabled = [other for other in setup.config.plugins.enabled if other != name]
        _save_names(setup, enabled, setup.config.plugins.disabled)
    print(f"removed {name}; it is kept in {place}")
    return 0


def _switch_plugins(args: Namespace, setup: Setup) -> int:
    from hermes.app.extensions.plugin_sources import list_local_plugins, list_packaged_plugins

    section = setup.config.plugins
    known = {*list_packaged_plugins(), *list_local_plugins(setup.home)}
    if args.action == "disable":
        known |= {*section.enabled}
    if missing := [name for name in args.words if name not in known]:
        raise ConfigError(f"There is no plugin {missing[0]}; nothing was changed.")
    enabled = [name for name in section.enabled if name not in args.words]
    disabled = [name for name in section.disabled if name not in args.words]
    if args.action == "enable":
        enabled = list(dict.fromkeys((*section.enabled, *args.words)))
    _save_names(setup, enabled, disabled)
    for name in args.words:
        print(f"{name} is {'on from the next start' if args.action == 'enable' else 'off'}")
    return 0


def _save_names(setup: Setup, enabled: Sequence[str], disabled: Sequence[str]) -> None:
    from hermes.config.update import apply_changes

    changes = {"plugins.enabled": list(enabled)}
    if list(disabled) != list(setup.config.plugins.disabled):
        changes["plugins.disabled"] = list(disabled)
    apply_changes(setup.home, changes)
