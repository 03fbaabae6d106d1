"""`hermes tools`: list, enable, disable."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TypeAlias

from hermes.cli.main import fail
from hermes.cli.parser import Parser, profile_option
from hermes.cli.terminal.text import dump, one_line
from hermes.config import paths
from hermes.config.env import decode_argument, get_environment, is_inside_agent
from hermes.config.load import load_setup, read_config
from hermes.config.schema import Selection, Tools
from hermes.core.errors import ConfigError
from hermes.tools import registry

Put: TypeAlias = Callable[[str, str], object]
"""Sets a key of config.yaml, whose lock is held."""
_EPILOG = """\
commands:
  list               every tool: its toolset, its risk, whether it is on, and why not
  enable NAME...     turn tools or whole toolsets on
  disable NAME...    turn them off; `all` means every toolset

on: every request declares it; deferred: the model finds it with tool_search when it needs it.
--platform P looks at and changes one platform only (cli, telegram, ...); what is said there
counts before what is said in general. On webhook only tools that read are on by default.

examples:
  hermes tools list --json | jq -r '.[] | select(.risk == "network") | .name'
  hermes tools disable browser
  hermes tools enable web_search --platform webhook
"""


def run(argv: list[str], profile: str) -> int:
    parser = Parser("hermes tools", "Look at the tools, turn them on and off.", _EPILOG)
    parser.add_argument("action", choices=sorted(_ACTIONS), help="see below")
    parser.add_argument("words", nargs="*", metavar="NAME", help="tools or toolsets")
    parser.add_argument("--platform", metavar="P", default="", help="only there")
    parser.add_argument("--json", action="store_true", help="as JSON (list)")
    profile_option(parser, profile)
    args, unknown = parser.parse_known_intermixed_args(argv)
    if unknown:
        parser.complain(unknown)
    if args.action == "list" and args.words:
        parser.error("list takes no name")
    if args.action != "list" and not args.words:
        parser.error(f"{args.action} needs the name of a tool or toolset")
    if not all(part.isidentifier() for part in args.platform.split("-") if args.platform):
        parser.error(f"{args.platform!r} is not the name of a platform")
    words = [decode_argument(word) for word in args.words]
    everything = list(registry.catalog())
    args.words = [w for word in words for w in (everything if word == registry.ALL else [word])]
    return _ACTIONS[args.action](args)


def _list(args: Namespace) -> int:
    setup = load_setup(args.profile)
    for warning in setup.warnings:
        fail(warning)
    settings = setup.config.tools
    rows = states(settings, args.platform)
    if args.json:
        print(dump(rows))
        return 0
    for word in unknown_words(settings):
        fail(f"config.yaml, tools: {registry.unknown(word)}")
    widths = [max(len(row[key]) for row in rows) for key in ("name", "toolset", "risk", "state")]
    for row in rows:
        cells = [row["name"], row["toolset"], row["risk"], row["state"]]
        line = "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        print(f"{line}  {row['why'] or one_line(row['description'], 70)}".rstrip())
    return 0


def states(settings: Tools, platform: str) -> list[dict[str, str]]:
    """Every tool there is, with what becomes of it on the platform."""
    rows = []
    for toolset, modules in registry.catalog().items():
        for name in modules:
            missing = registry.unavailable(name, toolset)
            why = missing or registry.off(name, toolset, settings, platform)
            found = registry.load(name)
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


def unknown_words(settings: Tools) -> list[str]:
    """What the configuration names and nobody knows."""
    known = {name for toolset, tools in registry.catalog().items() for name in (toolset, *tools)}
    said = [settings, *settings.platforms.values()]
    words = {word for one in said for word in (*one.enabled, *one.disabled)}
    return sorted(words - known)


def _enable(args: Namespace) -> int:
    return _change(args, True)


def _disable(args: Namespace) -> int:
    return _change(args, False)


def _change(args: Namespace, on: bool) -> int:
    from hermes.config.update import edit_config

    if is_inside_agent():
        raise ConfigError("A tool of an agent may not change its tools; do it yourself.")
    home = paths.find_home(get_environment(), args.profile)
    for warning in paths.make_home(home):
        fail(warning)
    for word in args.words:
        _members(word)
    for word in args.words:
        with edit_config(home) as put:
            _turn(home, word, args.platform, on, put)
        settings = read_config(home).tools
        left = {n: _off(n, settings, args.platform) for n in _members(word)}
        print(
            f"{word} is {'on' if on else 'off'}{f' for {args.platform}' if args.platform else ''}"
        )
        if on:
            for name, why in left.items():
                if why:
                    print(f"but {name} is not there: {why}", file=sys.stderr)
    return 0


def _turn(home: Path, word: str, platform: str, on: bool, put: Put) -> None:
    """Take back what was said against it; say it only where that is not enough."""
    members = _members(word)
    about = {word, *members}
    config = read_config(home).tools
    old = config.platforms.get(platform, Selection()) if platform else config
    base = f"tools.platforms.{platform}" if platform else "tools"
    against, favour = ("disabled", "enabled") if on else ("enabled", "disabled")
    _write(put, f"{base}.{against}", getattr(old, against), about, "")
    settings = read_config(home).tools
    wrong = [n for n in members if bool(_off(n, settings, platform, said=True)) is on]
    if wrong:
        _write(put, f"{base}.{favour}", getattr(old, favour), about, word)


def _write(put: Put, key: str, old: Collection[str], gone: Collection[str], new: str) -> None:
    from hermes.config.yaml_edit import render_value

    words = [*(word for word in old if word not in gone), *([new] if new else [])]
    if words != list(old):
        put(key, render_value(words))


def _members(word: str) -> list[str]:
    for toolset, tools in registry.catalog().items():
        if word == toolset:
            return list(tools)
        if word in tools:
            return [word]
    raise ConfigError(registry.unknown(word))


def _off(name: str, settings: Tools, platform: str, *, said: bool = False) -> str:
    """Why it is not there; with `said`, only for what the configuration can change."""
    toolset = next(s for s, tools in registry.catalog().items() if name in tools)
    why = registry.off(name, toolset, settings, platform)
    return "" if said and why == registry.unavailable(name, toolset) else why


_ACTIONS = {"list": _list, "enable": _enable, "disable": _disable}
