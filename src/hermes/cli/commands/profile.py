"""`hermes profile`: separate sets of settings, keys and sessions."""

import os
from argparse import Namespace
from pathlib import Path
from typing import Any

from hermes.cli.parser import CommandParser
from hermes.cli.startup import locate_home, refuse_agent
from hermes.cli.terminal.picker import confirm_change
from hermes.cli.terminal.text import print_report
from hermes.config import paths
from hermes.config.paths import DEFAULT_PROFILE, check_profile_name, read_active_profile
from hermes.config.private_files import replace_file
from hermes.core.errors import ConfigError, StoreError

_EPILOG = """\
commands:
  list             list the profiles; * marks the one in use
  show [NAME]      show where a profile is and what it contains
  create NAME      create a profile; --from NAME copies configuration and persona, never keys
  use NAME         use this profile unless -p names another; `default` is the main one
  delete NAME      delete a profile with its sessions and keys; asks first, or add --yes

A profile has its own configuration, keys, sessions, memory and skills, in
HERMES_HOME/profiles/NAME. Downloaded models are shared.

examples:
  hermes profile create work --from default
  hermes -p work chat -q hi
  hermes profile use work
  hermes profile delete work --yes
"""
_COPIED_FILES = ("config.yaml", "SOUL.md")


def run(argv: list[str], profile: str) -> int:
    about = "Manage separate sets of settings, keys and sessions."
    parser = CommandParser("profile", about, _EPILOG)
    parser.add_action(sorted(_ACTIONS), "list")
    parser.add_argument("name", nargs="?", default="", metavar="NAME")
    parser.add_argument("--from", dest="source", metavar="NAME", help="create: copy this profile")
    parser.add_flag("--yes", help="delete without asking")
    parser.add_flag("--json", help="print JSON (list, show)")
    args = parser.parse_command(argv, profile)
    if args.action == "list" and args.name:
        parser.error("list takes no name; show does")
    if args.action in ("create", "use", "delete") and not args.name:
        parser.error(f"{args.action} needs the NAME of a profile")
    if args.source and args.action != "create":
        parser.error("--from goes with create")
    if args.action in ("create", "use", "delete"):
        refuse_agent("change its profiles")
    return _ACTIONS[args.action](args, locate_home(DEFAULT_PROFILE))


def _profile_home(root: Path, name: str, *, must_exist: bool = True) -> Path:
    if name == DEFAULT_PROFILE:
        return root
    home = root / "profiles" / check_profile_name(name)
    if must_exist and not home.is_dir():
        from difflib import get_close_matches

        close = get_close_matches(name, _list_names(root), 1)
        hint = f"did you mean {close[0]}?" if close else "see hermes profile list."
        raise ConfigError(f"There is no profile {name}; {hint}")
    return home


def _list_names(root: Path) -> list[str]:
    folder = root / "profiles"
    found = folder.iterdir() if folder.is_dir() else ()
    return [DEFAULT_PROFILE, *sorted(f.name for f in found if f.is_dir() and f.name[0] != ".")]


def _used_profile(root: Path) -> str:
    """The profile in use; empty when it does not exist any more."""
    try:
        return read_active_profile(root)
    except ConfigError:
        return ""


def _describe_profile(root: Path, name: str) -> dict[str, Any]:
    from hermes.config.load import read_config

    home = _profile_home(root, name)
    try:
        section = read_config(home).model
        model = ":".join(filter(None, (section.provider, section.default)))
    except ConfigError as error:
        model = f"configuration: {error}"
    database = paths.database_file(home)
    return {
        "name": name,
        "used": name == _used_profile(root),
        "home": str(home),
        "model": model,
        "keys": paths.env_file(home).exists(),
        "sessions_mb": round(database.stat().st_size / 1e6, 1) if database.exists() else 0,
    }


def _list_profiles(args: Namespace, root: Path) -> int:
    rows = [_describe_profile(root, name) for name in _list_names(root)]
    width = max(len(row["name"]) for row in rows)
    lines = (
        f"{'*' if row['used'] else ' '} {row['name']:<{width}}  {row['model']}".rstrip()
        for row in rows
    )
    return print_report(rows, lines, json=args.json)


def _show_profile(args: Namespace, root: Path) -> int:
    about = _describe_profile(root, args.name or args.profile or _used_profile(root))
    lines = (
        f"{about['name']}{' (in use)' if about['used'] else ''}: {about['home']}",
        f"model: {about['model'] or 'not set'}",
        f"own keys: {'yes' if about['keys'] else 'no'}",
        f"sessions: {about['sessions_mb']} MB",
    )
    return print_report(about, lines, json=args.json)


def _create_profile(args: Namespace, root: Path) -> int:
    home = _profile_home(root, args.name, must_exist=False)
    if home == root or os.path.lexists(home):
        raise ConfigError(f"There already is a profile {args.name}; nothing was changed.")
    source = _profile_home(root, args.source) if args.source else home
    copied = [name for name in _COPIED_FILES if (source / name).is_file()]
    paths.make_home(root)
    paths.make_home(home)
    for name in copied:
        replace_file(home / name, (source / name).read_bytes())
    print(f"Created {args.name} in {home}.")
    if copied:
        print(f"Copied {' and '.join(copied)} from {args.source}; keys were not copied.")
    print(f"To use it once: hermes -p {args.name} ...; always: hermes profile use {args.name}")
    return 0


def _use_profile(args: Namespace, root: Path) -> int:
    home = _profile_home(root, args.name)
    paths.make_home(root)
    if args.name == paths.DEFAULT_PROFILE:
        (root / paths.ACTIVE_PROFILE_FILE).unlink(missing_ok=True)
    else:
        replace_file(root / paths.ACTIVE_PROFILE_FILE, f"{args.name}\n".encode())
    print(f"Now using the profile {args.name}: {home}")
    return 0


def _delete_profile(args: Namespace, root: Path) -> int:
    import shutil

    home = _profile_home(root, args.name)
    if home == root:
        raise ConfigError("The default profile cannot be deleted.")
    _refuse_in_use(home)
    if not args.yes:
        question = f"Permanently delete {home} with its sessions and keys?"
        code = confirm_change("profile delete", question, "Nothing was deleted.")
        if code is not None:
            return code
    deleted = home.with_name(f".{home.name}.deleted")
    shutil.rmtree(deleted, ignore_errors=True)
    home.rename(deleted)  # all of it goes at once, or nothing
    shutil.rmtree(deleted, ignore_errors=True)
    if _used_profile(root) in ("", args.name):
        (root / paths.ACTIVE_PROFILE_FILE).unlink(missing_ok=True)
        print("Now using the profile default.")
    print(f"Deleted {args.name}.")
    return 0


def _refuse_in_use(home: Path) -> None:
    from hermes.config.instances import list_instances

    running = [p.kind for p in list_instances(home)]
    database = paths.database_file(home)
    if database.exists() and not running:
        from hermes.store.recovery.backup import merge_wal

        try:
            merge_wal(database)
        except StoreError as error:
            running = ["hermes"] if error.code == "in_use" else []
    if running:
        raise ConfigError(f"{running[0]} is running in {home}; stop it first. Nothing was deleted.")


_ACTIONS = {
    "list": _list_profiles,
    "show": _show_profile,
    "create": _create_profile,
    "use": _use_profile,
    "delete": _delete_profile,
}
