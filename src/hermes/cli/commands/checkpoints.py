"""`hermes checkpoints`: list, show, restore, prune."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from hermes.cli.main import EXIT_USAGE, fail
from hermes.cli.parser import Parser, positive, profile_option
from hermes.cli.terminal.text import dump, one_line, printable
from hermes.config import paths
from hermes.config.env import argument_text, environment, inside_agent
from hermes.core.errors import ConfigError

if TYPE_CHECKING:
    from hermes.exec.snapshots.checkpoints import Checkpoint, RestoredFiles

_EPILOG = """\
commands:
  list                 the checkpoints of this folder, latest first
  show ID [PATH...]    what has changed since then, as a diff
  restore ID [PATH...] the folder (or these files and folders) as it was then; asks first
  prune                forget old ones and give their disk space back

A checkpoint is made before a turn first changes files in a folder. It holds every file that is
not ignored (.gitignore) and not larger than 5 MB. Restoring first makes a checkpoint of the
present state, so that it can be undone; ignored files stay as they are. An ID may be shortened.

examples:
  hermes checkpoints list
  hermes checkpoints show 20260101
  hermes checkpoints restore 20260101-120000-ab12cd src/main.py
  hermes checkpoints prune --keep 10
"""


def run(argv: list[str], profile: str) -> int:
    parser = Parser("hermes checkpoints", "Go back to earlier states of a folder.", _EPILOG)
    parser.add_argument("action", choices=sorted(_ACTIONS), help="see below")
    parser.add_argument("words", nargs="*", metavar="ID PATH")
    parser.add_argument("-C", "--workspace", metavar="DIR", default="", help="another folder")
    parser.add_argument("--all", action="store_true", help="of all folders (list, prune)")
    parser.add_argument("--keep", type=positive, help="prune: so many (default: 50)")
    parser.add_argument("--days", type=positive, help="prune: so old (default: 30)")
    parser.add_argument("--yes", action="store_true", help="restore without asking")
    parser.add_argument("--json", action="store_true", help="as JSON")
    profile_option(parser, profile)
    args, unknown = parser.parse_known_intermixed_args(argv)
    if unknown:
        parser.complain(unknown)
    if args.action in ("show", "restore") and not args.words:
        parser.error(f"{args.action} needs the ID of a checkpoint")
    if args.action in ("list", "prune") and args.words:
        parser.error(f"{args.action} takes no ID")
    if args.action in ("restore", "prune") and inside_agent():
        raise ConfigError("A tool of an agent may not touch its checkpoints; do it yourself.")
    args.home = paths.find_home(environment(), args.profile)
    args.base = Path.cwd() / args.workspace
    args.workspace = args.base if args.workspace else _nearest(args.base, args.home)
    import asyncio

    return asyncio.run(_ACTIONS[args.action](args))


def _nearest(here: Path, home: Path) -> Path:
    """This folder, or the one above it that has checkpoints: sessions start at the top."""
    from hermes.exec.snapshots.shadow_repo import repository_folder

    above = (here, *here.parents)
    return next((f for f in above if repository_folder(f.resolve(), home.resolve()).is_dir()), here)


async def _folders(args: Namespace) -> list[Path]:
    from hermes.exec.snapshots import checkpoints

    return await checkpoints.list_workspaces(args.home) if args.all else [args.workspace]


async def _list(args: Namespace) -> int:
    from hermes.exec.snapshots import checkpoints

    found = [
        c
        for folder in await _folders(args)
        for c in await checkpoints.list_checkpoints(folder, args.home)
    ]
    if args.json:
        print(dump([_public(c) for c in found]))
        return 0
    if not found:
        why = checkpoints.explain_unsuitable(args.workspace, args.home)
        print(f"No checkpoints{f': {why}' if why and not args.all else ' yet'}.", file=sys.stderr)
    for c in found:
        skipped = f", {c.skipped} skipped" if c.skipped else ""
        where = f"  {c.workspace}" if args.all else ""
        size = f"{c.files} files{skipped}"
        print(f"{c.id}  {_when(c)}  {size}{where}  {one_line(c.label, 80)}".rstrip())
    return 0


async def _show(args: Namespace) -> int:
    from hermes.exec.snapshots import checkpoints

    found = await _find(args)
    rest = [str(args.base.resolve() / word) for word in args.words[1:]]
    text = await checkpoints.diff_checkpoint(args.workspace, args.home, found.id, rest)
    if args.json:
        print(dump({**_public(found), "diff": text}))
        return 0
    print(f"checkpoint {found.id}, {_when(found)}, {found.files} files: {one_line(found.label)}")
    for note in found.notes:
        print(f"not in it: {one_line(note)}")
    if found.skipped > len(found.notes):
        print(f"not in it: {found.skipped - len(found.notes)} more")
    print()
    text = text or "Nothing has changed since.\n"
    print(printable(text) if sys.stdout.isatty() else text, end="")
    return 0


async def _restore(args: Namespace) -> int:
    from hermes.cli.terminal.output import ask
    from hermes.exec.snapshots import checkpoints

    found = await _find(args)
    if not args.yes:
        if not sys.stdin.isatty():
            fail("checkpoints restore needs --yes when nobody is there to ask")
            return EXIT_USAGE
        folder = found.workspace
        if not ask(f"Put {folder} back to {_when(found)} ({one_line(found.label, 60)})?"):
            print("Nothing was changed.", file=sys.stderr)
            return 0
    rest = [str(args.base.resolve() / word) for word in args.words[1:]]
    done = await checkpoints.restore_checkpoint(args.workspace, args.home, found.id, rest)
    if args.json:
        print(dump(_public(done)))
    else:
        _tell(done)
    return 0


def _tell(done: RestoredFiles) -> None:
    for word, names in (
        ("changed", done.changed),
        ("brought back", done.added),
        ("removed", done.removed),
        ("left as it is", done.kept),
    ):
        for name in names:
            print(f"{word}: {one_line(name, 400)}")
    if not (done.changed or done.added or done.removed):
        print("Nothing had changed.")
    print(f"hermes checkpoints restore {done.before} undoes this.", file=sys.stderr)


async def _prune(args: Namespace) -> int:
    from hermes.exec.snapshots.checkpoints import KEEP_COUNT, KEEP_DAYS, prune_checkpoints

    gone = 0
    for folder in await _folders(args):
        gone += await prune_checkpoints(
            folder, args.home, args.keep or KEEP_COUNT, args.days or KEEP_DAYS
        )
    print(dump({"forgotten": gone}) if args.json else f"forgotten: {gone}")
    return 0


async def _find(args: Namespace) -> Checkpoint:
    from hermes.exec.snapshots import checkpoints

    prefix = argument_text(args.words[0])
    listed = await checkpoints.list_checkpoints(args.workspace, args.home)
    found = [c for c in listed if prefix and c.id.startswith(prefix)]
    match [c for c in found if c.id == prefix] or found:
        case [one]:
            return one
        case []:
            raise ConfigError(
                f"There is no checkpoint {prefix!r} of this folder; hermes checkpoints list "
                "shows them."
            )
        case _:
            raise ConfigError(f"{prefix!r} fits several checkpoints; give more of the id.")


def _when(checkpoint: Checkpoint) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(checkpoint.created))


def _public(value: Checkpoint | RestoredFiles) -> Any:
    return msgspec.to_builtins(value)


_ACTIONS = {"list": _list, "show": _show, "restore": _restore, "prune": _prune}
