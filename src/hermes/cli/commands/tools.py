"""`hermes tools`: lists tools, turns them on and off."""

import sys
from argparse import Namespace
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TypeAlias

import hermes.app  # noqa: F401 - adds the tools of other packages
from hermes.cli.main import print_stderr
from hermes.cli.parser import CommandParser
from hermes.cli.startup import create_home, load_checked_setup, refuse_agent
from hermes.cli.terminal.tables import align_columns
from hermes.cli.terminal.text import one_line, print_report
from hermes.config.env import decode_argument
from hermes.config.load import read_config
from hermes.config.schema import ToolSelection, ToolsSection
from hermes.core.errors import ConfigError
from hermes.tools import registry

Put: TypeAlias = Callable[[str, str], object]
"""Sets a key of config.yaml while its lock is held."""
_EPILOG = """\
commands:
  list               list every tool: toolset, risk, whether it is on, and if not, why
  enable NAME...     turn tools or whole toolsets on
  disable NAME...    turn them off; `all` means every toolset

on: declared in every request; deferred: the model finds it with tool_search when it needs it.
--platform P shows and changes one platform only (api, cli, library or webhook); its settings
override the general ones. On webhook only tools that read are on by default.

examples:
  hermes tools list --json | jq -r '.[] | select(.risk == "network") | .name'
  hermes tools disable browser
  hermes tools enable web_search --platform webhook
"""
_PLATFORMS = frozenset({"api", "cli", "library", "webhook"})


def run(argv: list[str], profile: str) -> int:
    parser = CommandParser("tools", "List tools, turn them on and off.", _EPILOG)
    parser.add_action(sorted(_ACTIONS), "list")
    parser.add_argument("words", nargs="*", metavar="NAME", help="tools or toolsets")
    parser.add_argument("--platform", metavar="P", default="", help="only this platform")
    parser.add_flag("--json", help="print JSON (list)")
    args = parser.parse_command(argv, profile)
    if args.action == "list" and args.words:
        parser.error("list takes no name")
    if args.action != "list" and not args.words:
        parser.error(f"{args.action} needs the name of a tool or toolset")
    if not all(part.isidentifier() for part in args.platform.split("-") if args.platform):
        parser.error(f"{args.platform!r} is not the name of a platform")
    words = [decode_argument(word) for word in args.words]
    everything = list(registry.list_toolsets())
    args.words = [w for word in words for w in (everything if word == registry.ALL else [word])]
    return _ACTIONS[args.action](args)


def _list_tools(args: Namespace) -> int:
    settings = load_checked_setup(args.profile).config.tools
    known = _PLATFORMS | settings.platforms.keys()
    if args.platform and args.platform not in known:
        names = ", ".join(sorted(known))
        raise ConfigError(f"There is no platform {args.platform}; use one of {names}.")
    rows = _describe_tools(settings, args.platform)
    for word in () if args.json else registry.list_unknown_names(settings):
        print_stderr(f"config.yaml, tools: {registry.describe_unknown_name(word)}")
    cells = [
        (r["name"], r["toolset"], r["risk"], r["state"], r["why"] or one_line(r["description"], 70))
        for r in rows
    ]
    return print_report(rows, align_columns(cells), json=args.json)


def _describe_tools(settings: ToolsSection, platform: str) -> list[dict[str, str]]:
    """Every tool and its state on the platform."""
    rows = []
    for toolset, modules in registry.list_toolsets().items():
        for name in modules:
            missing = registry.explain_missing_extra(name, toolset)
            why = missing or registry.explain_absence(name, toolset, settings, platform)
            found = registry.load_tool(name)
            on = "on" if toolset == registry.CORE else "deferred"
            rows.append(
                {
                    "name": name,
                    "toolset": toolset,
                    "risk": found.risk,
                    "state": "unavailable" if missing else "off" if why else on,
                    "why": why,
                    "description": found.description,
                }
            )
    return rows


def _change_tools(args: Namespace) -> int:
    from hermes.config.update import edit_config

    on = args.action == "enable"
    refuse_agent("change its tools")
    home = create_home(args.profile)
    for word in args.words:
        _list_members(word)
    for word in args.words:
        with edit_config(home) as put:
            _write_change(home, word, args.platform, on, put)
        settings = read_config(home).tools
        where = f" for {args.platform}" if args.platform else ""
        print(f"{word} is {'on' if on else 'off'}{where}")
        for name in _list_members(word) if on else ():
            if why := _why_off(name, settings, args.platform):
                print(f"but {name} is not available: {why}", file=sys.stderr)
    return 0


def _write_change(home: Path, word: str, platform: str, on: bool, put: Put) -> None:
    """Removes the contrary setting; adds one only where that is not enough."""
    members = _list_members(word)
    names = {word, *members}
    config = read_config(home).tools
    old = config.platforms.get(platform, ToolSelection()) if platform else config
    base = f"tools.platforms.{platform}" if platform else "tools"
    against, favour = ("disabled", "enabled") if on else ("enabled", "disabled")
    other = {key: [w for w in getattr(old, key) if w not in names] for key in (against, favour)}
    _write_names(put, f"{base}.{against}", getattr(old, against), other[against])
    settings = read_config(home).tools
    if any(bool(_why_off(n, settings, platform, configurable=True)) is on for n in members):
        _write_names(put, f"{base}.{favour}", getattr(old, favour), [*other[favour], word])


def _write_names(put: Put, key: str, old: Collection[str], new: list[str]) -> None:
    from hermes.config.yaml_edit import render_value

    if new != list(old):
        put(key, render_value(new))


def _list_members(word: str) -> list[str]:
    for toolset, tools in registry.list_toolsets().items():
        if word == toolset:
            return list(tools)
        if word in tools:
            return [word]
    raise ConfigError(registry.describe_unknown_name(word))


def _why_off(
    name: str, settings: ToolsSection, platform: str, *, configurable: bool = False
) -> str:
    """Why a tool is off; with `configurable`, only a reason that the configuration can change."""
    toolset = next(s for s, tools in registry.list_toolsets().items() if name in tools)
    why = registry.explain_absence(name, toolset, settings, platform)
    return "" if configurable and why == registry.explain_missing_extra(name, toolset) else why


_ACTIONS = {"list": _list_tools, "enable": _change_tools, "disable": _change_tools}
