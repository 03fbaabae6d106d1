"""`hermes checkpoints`: lists, shows, restores and prunes states of a folder."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import to_builtins

from hermes.cli.parser import CommandParser
from hermes.cli.startup import locate_home, refuse_agent, run_async
from hermes.cli.terminal.picker import confirm_change
from hermes.cli.terminal.text import one_line, strip_controls, to_json
from hermes.config.env import decode_argument
from hermes.core.errors import ConfigError

if TYPE_CHECKING:
    from hermes.exec.snapshots.checkpoints import Checkpoint, RestoredFiles

_EPILOG = """\
commands:
  list                 list the checkpoints of this folder, latest first
  show ID [PATH...]    show what has changed since then, as a diff
  restore ID [PATH...] restore the folder, or these files and folders; asks first
  prune                delete old checkpoints and free their disk space

A checkpoint is made before a turn first changes files in a folder. It contains every file that is
not ignored (.gitignore) and not larger than 5 MB. Restoring first makes a checkpoint of the
present state, so that it can be undone; ignored files stay as they are. An ID may be shortened.

examples:
  hermes checkpoints list
  hermes checkpoints show 20260101
  hermes checkpoints restore 20260101-120000-ab12cd src/main.py
  hermes checkpoints prune --keep 10
"""


def run(argv: list[str], profile: str) -> int:
    parser = CommandParser("checkpoints", "Restore earlier states of a folder.", _EPILOG)
    parser.add_action(sorted(_ACTIONS), "list")
    parser.add_argument("words", nargs="*", metavar="ID PATH")
    parser.add_argument("-C", "--workspace", metavar="DIR", default="", help="use another folder")
    parser.add_flag("--all", help="all folders (list, prune)")
    parser.add_count_option("--keep", help="prune: keep this many (default: 50)")
    parser.add_count_option("--days", help="prune: keep those younger (default: 30)")
    parser.add_flag("--yes", help="restore without asking")
    parser.add_flag("--json", help="print JSON")
    args = parser.parse_command(argv, profile)
    if args.action in ("show", "restore") and not args.words:
        parser.error(f"{args.action} needs the ID of a checkpoint")
    if args.action in ("list", "prune") and args.words:
        parser.error(f"{args.action} takes no ID")
    if args.action in ("restore", "prune"):
        refuse_agent("change its checkpoints")
    args.home = locate_home(args.profile)
    args.base = Path.cwd() / args.workspace
    args.workspace = args.base if args.workspace else _find_workspace(args.base, args.home)
    return run_async(_ACTIONS[args.action](args))


def _find_workspace(here: Path, home: Path) -> Path:
    """This folder or the nearest one above it that has checkpoints."""
    from hermes.exec.snapshots.shadow_repo import repository_folder

    above = (here, *here.parents)
    return next((f for f in above if repository_folder(f.resolve(), home.resolve()).is_dir()), here)


async def _list_workspaces(args: Namespace) -> list[Path]:
    from hermes.exec.snapshots import checkpoints

    return await checkpoints.list_workspaces(args.home) if args.all else [args.workspace]


async def _list_checkpoints(args: Namespace) -> int:
    from hermes.exec.snapshots import checkpoints

    found: list[Checkpoint] = []
    for folder in await _list_workspaces(args):
        found += await checkpoints.list_checkpoints(folder, args.home)
    if args.json:
        print(to_json(to_builtins(found)))
        return 0
    if not found:
        why = checkpoints.explain_unsuitable(args.workspace, args.home)
        print(f"No checkpoints{f': {why}' if why and not args.all else ' yet'}.", file=sys.stderr)
    for c in found:
        skipped = f", {c.skipped} skipped" if c.skipped else ""
        where = f"  {c.workspace}" if args.all else ""
        size = f"{c.files} files{skipped}"
        print(f"{c.id}  {_format_time(c)}  {size}{where}  {one_line(c.label, 80)}".rstrip())
    return 0


async def _show_checkpoint(args: Namespace) -> int:
    from hermes.exec.snapshots import checkpoints

    found = await _find_checkpoint(args)
    paths = [str(args.base.resolve() / word) for word in args.words[1:]]
    text = await checkpoints.diff_checkpoint(args.workspace, args.home, found.id, paths)
    if args.json:
        print(to_json({**to_builtins(found), "diff": text}))
        return 0
    label = one_line(found.label)
    print(f"checkpoint {found.id}, {_format_time(found)}, {found.files} files: {label}")
    for note in found.notes:
        print(f"not included: {one_line(note)}")
    if found.skipped > len(found.notes):
        print(f"not included: {found.skipped - len(found.notes)} more")
    print()
    text = text or "Nothing has changed since.\n"
    print(strip_controls(text) if sys.stdout.isatty() else text, end="")
    return 0


async def _restore_checkpoint(args: Namespace) -> int:
    from hermes.exec.snapshots import checkpoints

    found = await _find_checkpoint(args)
    if not args.yes:
        when, label = _format_time(found), one_line(found.label, 60)
        question = f"Restore {found.workspace} to {when} ({label})?"
        code = confirm_change("checkpoints restore", question, "Nothing was changed.")
        if code is not None:
            return code
    paths = [str(args.base.resolve() / word) for word in args.words[1:]]
    done = await checkpoints.restore_checkpoint(args.workspace, args.home, found.id, paths)
    if args.json:
        print(to_json(to_builtins(done)))
    else:
        _print_restored_files(done)
    return 0


def _print_restored_files(done: RestoredFiles) -> None:
    for word, names in (
        ("changed", done.changed),
        ("restored", done.added),
        ("removed", done.removed),
        ("left unchanged", done.kept),
    ):
        for name in names:
            print(f"{word}: {one_line(name, 400)}")
    if not (done.changed or done.added or done.removed):
        print("Nothing had changed.")
    print(f"To undo this, run: hermes checkpoints restore {done.before}", file=sys.stderr)


async def _prune_checkpoints(args: Namespace) -> int:
    from hermes.exec.snapshots.checkpoints import KEEP_COUNT, KEEP_DAYS, prune_checkpoints

    deleted, limits = 0, (args.keep or KEEP_COUNT, args.days or KEEP_DAYS)
    for folder in await _list_workspaces(args):
        deleted += await prune_checkpoints(folder, args.home, *limits)
    print(to_json({"forgotten": deleted}) if args.json else f"deleted: {deleted}")
    return 0


async def _find_checkpoint(args: Namespace) -> Checkpoint:
    from hermes.exec.snapshots import checkpoints

    prefix = decode_argument(args.words[0])
    listed = await checkpoints.list_checkpoints(args.workspace, args.home)
    found = [c for c in listed if prefix and c.id.startswith(prefix)]
    match [c for c in found if c.id == prefix] or found:
        case [checkpoint]:
            return checkpoint
        case []:
            hint = "Run: hermes checkpoints list"
            raise ConfigError(f"This folder has no checkpoint {prefix!r}. {hint}")
        case _:
            raise ConfigError(f"{prefix!r} matches several checkpoints; give more of the id.")


def _format_time(checkpoint: Checkpoint) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(checkpoint.created))


_ACTIONS = {
    "list": _list_checkpoints,
    "show": _show_checkpoint,
    "restore": _restore_checkpoint,
    "prune": _prune_checkpoints,
}
