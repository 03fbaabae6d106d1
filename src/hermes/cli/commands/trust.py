"""`hermes trust`: whose AGENTS.md and the like are read."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from pathlib import Path

from hermes.cli.main import fail
from hermes.cli.parser import Parser, profile_option

_EPILOG = """\
commands:
  list             the folders that were asked about, and whether they have changed since
  add [PATH...]    agree to the files of these folders and of those above them in the repository
  remove PATH...   take that back
  PATH             the same as add PATH

AGENTS.md, CLAUDE.md, .cursorrules and .hermes.md, from the root of a repository to the working
directory, are told to the model in new conversations (32 KiB at most, the nearest first). They
can steer the agent, so each folder is asked about once, and again when its files change. Where
nobody can be asked they are not read. SOUL.md in HERMES_HOME is yours, and always read.

examples:
  hermes trust .
  hermes trust list
  hermes trust remove ~/src/somebody-elses
"""
_ACTIONS = ("list", "add", "remove")


def run(argv: list[str], profile: str) -> int:
    parser = Parser("hermes trust", "Folders whose notes for agents are read.", _EPILOG)
    parser.add_argument("action", choices=_ACTIONS, help="see below")
    parser.add_argument("paths", nargs="*", metavar="PATH", help="a folder (default: this one)")
    parser.add_argument("--json", action="store_true", help="as JSON (list)")
    profile_option(parser, profile)
    args, unknown = parser.parse_known_intermixed_args(_with_action(argv))
    if unknown:
        parser.complain(unknown)
    if args.action == "list" and args.paths:
        parser.error("list takes no path")
    if args.action == "remove" and not args.paths:
        parser.error("remove needs a PATH")
    return {"list": _list, "add": _add, "remove": _remove}[args.action](args)


def _with_action(argv: list[str]) -> list[str]:
    """`hermes trust PATH`: what looks like a path is one."""
    first = next((word for word in argv if not word.startswith("-")), "")
    if not first or first in _ACTIONS:
        return argv
    if first.startswith((".", "~")) or "/" in first or os.path.isdir(first):  # noqa: PTH112
        return ["add", *argv]
    return argv


def _home(args: Namespace) -> Path:
    from hermes.config import paths
    from hermes.config.env import get_environment, is_inside_agent
    from hermes.core.errors import ConfigError

    if args.action != "list" and is_inside_agent():
        raise ConfigError("A tool of an agent may not say what is trusted; do it yourself.")
    home = paths.find_home(get_environment(), args.profile)
    for warning in paths.make_home(home):
        fail(warning)
    return home


def _list(args: Namespace) -> int:
    from hermes.app.context_files import find
    from hermes.cli.terminal.text import dump, printable
    from hermes.config.trust_store import TrustStore

    rows = []
    for folder, answer in sorted(TrustStore(_home(args)).read_all().items()):
        now = [f for f in find(Path(folder)).folders if str(f.path) == folder]
        state = "trusted" if answer.trusted else "refused"
        if not now:
            state = "gone"
        elif now[0].digest != answer.digest:
            state = "changed"
        files = [file.path.name for found in now for file in found.files]
        rows.append({"folder": folder, "state": state, "files": files, "digest": answer.digest})
    if args.json:
        print(dump(rows))
        return 0
    if not rows:
        print("No folder was asked about yet.", file=sys.stderr)
    for row in rows:
        print(printable(f"{row['state']:<8} {row['folder']}  {', '.join(row['files'])}".rstrip()))
    return 0


def _add(args: Namespace) -> int:
    from hermes.app.context_files import find
    from hermes.cli.project_trust import listed
    from hermes.config.env import decode_argument
    from hermes.config.trust_store import TrustStore, make_decision
    from hermes.core.errors import ConfigError

    home = _home(args)
    found = []
    for word in args.paths or ["."]:
        path = Path(decode_argument(word)).expanduser()
        if not path.exists():
            raise ConfigError(f"There is no {path}; nothing was changed.")
        found.append(find(path if path.is_dir() else path.parent))
    for odd in (sentence for one in found for sentence in one.odd):
        fail(odd)
    folders = list({str(f.path): f for one in found for f in one.folders}.values())
    if not folders:
        print("There is nothing to agree to: no AGENTS.md or the like is there.", file=sys.stderr)
        return 0
    TrustStore(home).save_decisions(
        {str(f.path): make_decision(f.digest, trusted=True) for f in folders}
    )
    print("Read in new conversations, as long as they stay as they are:")
    for line in listed(folders):
        print(line)
    return 0


def _remove(args: Namespace) -> int:
    from hermes.config.env import decode_argument
    from hermes.config.trust_store import TrustStore
    from hermes.core.errors import ConfigError

    book = TrustStore(_home(args))
    names = [str(Path(decode_argument(word)).expanduser().resolve()) for word in args.paths]
    if missing := [name for name in names if name not in book.read_all()]:
        raise ConfigError(f"{missing[0]} is not in the list; hermes trust list shows it.")
    for name in names:
        book.remove(name)
        print(f"{name} is asked about again.")
    return 0
