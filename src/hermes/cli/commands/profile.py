"""`hermes profile`: homes of their own."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

from hermes.cli.main import EXIT_USAGE
from hermes.cli.parser import Parser, profile_option

_EPILOG = """\
commands:
  list             the profiles; * marks the one in use
  show [NAME]      where it is and what is in it
  create NAME      a new one; --from NAME copies configuration and persona, never keys
  use NAME         from now on, where -p does not say otherwise; default is the main one
  delete NAME      with its sessions and keys, for good; asks first, or give --yes

A profile has its own configuration, keys, sessions, memory and skills, in
HERMES_HOME/profiles/NAME. Downloaded models are shared.

examples:
  hermes profile create work --from default
  hermes -p work chat -q hi
  hermes profile use work
  hermes profile delete work --yes
"""
_COPIED = ("config.yaml", "SOUL.md")


def run(argv: list[str], profile: str) -> int:
    parser = Parser("hermes profile", "Homes of their own.", _EPILOG)
    parser.add_argument("action", choices=sorted(_ACTIONS), help="see below")
    parser.add_argument("name", nargs="?", default="", metavar="NAME")
    parser.add_argument("--from", dest="source", metavar="NAME", help="create: like this one")
    parser.add_argument("--yes", action="store_true", help="delete without asking")
    parser.add_argument("--json", action="store_true", help="as JSON (list, show)")
    profile_option(parser, profile)
    args, unknown = parser.parse_known_intermixed_args(argv)
    if unknown:
        parser.complain(unknown)
    if args.action == "list" and args.name:
        parser.error("list takes no name; show does")
    if args.action in ("create", "use", "delete") and not args.name:
        parser.error(f"{args.action} needs the NAME of a profile")
    if args.source and args.action != "create":
        parser.error("--from goes with create")
    return _ACTIONS[args.action](args)


def _root(args: Namespace) -> Path:
    from hermes.config.env import get_environment, is_inside_agent
    from hermes.config.paths import DEFAULT_PROFILE, find_home
    from hermes.core.errors import ConfigError

    if args.action in ("create", "use", "delete") and is_inside_agent():
        raise ConfigError("A tool of an agent may not change its profiles; do it yourself.")
    return find_home(get_environment(), DEFAULT_PROFILE)


def _home(root: Path, name: str, *, there: bool = True) -> Path:
    from hermes.config.paths import DEFAULT_PROFILE, check_profile_name
    from hermes.core.errors import ConfigError

    if name == DEFAULT_PROFILE:
        return root
    home = root / "profiles" / check_profile_name(name)
    if there and not home.is_dir():
        from difflib import get_close_matches

        close = get_close_matches(name, _names(root), 1)
        meant = f"did you mean {close[0]}?" if close else "hermes profile list shows them."
        raise ConfigError(f"There is no profile {name}; {meant}")
    return home


def _names(root: Path) -> list[str]:
    from hermes.config.paths import DEFAULT_PROFILE

    folder = root / "profiles"
    found = folder.iterdir() if folder.is_dir() else ()
    return [DEFAULT_PROFILE, *sorted(f.name for f in found if f.is_dir() and f.name[0] != ".")]


def _used(root: Path) -> str:
    """Also when it is gone."""
    from hermes.config.paths import read_active_profile
    from hermes.core.errors import ConfigError

    try:
        return read_active_profile(root)
    except ConfigError:
        return ""


def _about(root: Path, name: str) -> dict[str, Any]:
    from hermes.config import paths
    from hermes.config.load import read_config
    from hermes.core.errors import ConfigError

    home = _home(root, name)
    try:
        model = read_config(home).model
        said = ":".join(filter(None, (model.provider, model.default)))
    except ConfigError as error:
        said = f"configuration: {error}"
    database = paths.database_file(home)
    return {
        "name": name,
        "used": name == _used(root),
        "home": str(home),
        "model": said,
        "keys": paths.env_file(home).exists(),
        "sessions_mb": round(database.stat().st_size / 1e6, 1) if database.exists() else 0,
    }


def _list(args: Namespace) -> int:
    root = _root(args)
    rows = [_about(root, name) for name in _names(root)]
    if args.json:
        from hermes.cli.terminal.text import dump

        print(dump(rows))
        return 0
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        print(f"{'*' if row['used'] else ' '} {row['name']:<{width}}  {row['model']}".rstrip())
    return 0


def _show(args: Namespace) -> int:
    root = _root(args)
    about = _about(root, args.name or args.profile or _used(root))
    if args.json:
        from hermes.cli.terminal.text import dump

        print(dump(about))
        return 0
    print(f"{about['name']}{' (in use)' if about['used'] else ''}: {about['home']}")
    print(f"model: {about['model'] or 'not set'}")
    print(f"keys of its own: {'yes' if about['keys'] else 'no'}")
    print(f"sessions: {about['sessions_mb']} MB")
    return 0


def _create(args: Namespace) -> int:
    from hermes.config import paths
    from hermes.config.private_files import replace_file
    from hermes.core.errors import ConfigError

    root = _root(args)
    home = _home(root, args.name, there=False)
    if home == root or os.path.lexists(home):
        raise ConfigError(f"There is a profile {args.name} already; nothing was changed.")
    source = _home(root, args.source) if args.source else None
    paths.make_home(root)
    paths.make_home(home)
    copied = []
    for name in _COPIED if source else ():
        assert source is not None
        if (source / name).is_file():
            replace_file(home / name, (source / name).read_bytes())
            copied.append(name)
    print(f"{args.name} is in {home}.")
    if copied:
        print(f"It has {' and '.join(copied)} of {args.source}; keys were not copied.")
    print(f"To use it: hermes -p {args.name} ..., or for good: hermes profile use {args.name}")
    return 0


def _use(args: Namespace) -> int:
    from hermes.config import paths
    from hermes.config.private_files import replace_file

    root = _root(args)
    home = _home(root, args.name)
    paths.make_home(root)
    if args.name == paths.DEFAULT_PROFILE:
        (root / paths.ACTIVE_PROFILE_FILE).unlink(missing_ok=True)
    else:
        replace_file(root / paths.ACTIVE_PROFILE_FILE, f"{args.name}\n".encode())
    print(f"{args.name} is used from now on: {home}")
    return 0


def _delete(args: Namespace) -> int:
    import shutil

    from hermes.cli.main import fail
    from hermes.cli.terminal.output import ask
    from hermes.config import paths
    from hermes.core.errors import ConfigError

    root = _root(args)
    home = _home(root, args.name)
    if home == root:
        raise ConfigError("The main profile is not deleted; its folder is HERMES_HOME itself.")
    _refuse_in_use(home)
    if not args.yes:
        if not sys.stdin.isatty():
            fail("profile delete needs --yes when nobody is there to ask")
            return EXIT_USAGE
        if not ask(f"Delete {home} with its sessions and keys for good?"):
            print("Nothing was deleted.", file=sys.stderr)
            return 0
    gone = home.with_name(f".{home.name}.deleted")
    shutil.rmtree(gone, ignore_errors=True)
    home.rename(gone)  # all of it is gone at once, or nothing
    shutil.rmtree(gone, ignore_errors=True)
    if _used(root) in ("", args.name):
        (root / paths.ACTIVE_PROFILE_FILE).unlink(missing_ok=True)
        print("default is used from now on.")
    print(f"deleted {args.name}")
    return 0


def _refuse_in_use(home: Path) -> None:
    from hermes.config import paths
    from hermes.config.instances import list_instances
    from hermes.core.errors import ConfigError, StoreError

    running = [p.kind for p in list_instances(home)]
    database = paths.database_file(home)
    if database.exists() and not running:
        from hermes.store.backup import merge_wal

        try:
            merge_wal(database)
        except StoreError as error:
            running = ["hermes"] if error.code == "in_use" else []
    if running:
        raise ConfigError(f"{running[0]} is running in {home}; end it first. Nothing was deleted.")


_ACTIONS = {"list": _list, "show": _show, "create": _create, "use": _use, "delete": _delete}
