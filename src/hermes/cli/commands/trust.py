"""`hermes trust`: the folders whose AGENTS.md and similar files are loaded."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from hermes.cli.main import print_stderr
from hermes.cli.parser import CommandParser
from hermes.cli.startup import create_home, refuse_agent
from hermes.cli.terminal.text import print_report, strip_controls
from hermes.config.env import decode_argument
from hermes.core.errors import ConfigError

if TYPE_CHECKING:
    from hermes.config.trust_store import TrustStore

_EPILOG = """\
commands:
  list             list the folders and slash commands with a decision, and what has changed
  add [PATH...]    trust the files of these folders and of those above them in the repository
  remove PATH...   forget the decision
  PATH             the same as add PATH

AGENTS.md, CLAUDE.md, .cursorrules and .hermes.md, from the root of a repository to the working
directory, are shown to the model in new conversations (32 KiB at most, the nearest first). They
can steer the agent, so you are asked about each folder once, and again when its files change.
Where nobody can be asked they are not loaded. The same decision covers the skills of a folder
(.agents/skills, .hermes/skills, .claude/skills) and its MCP servers (.mcp.json), which are programs
that Hermes starts. SOUL.md in HERMES_HOME is yours and always loaded.

examples:
  hermes trust .
  hermes trust list
  hermes trust remove ~/src/somebody-elses
"""


def run(argv: list[str], profile: str) -> int:
    about = "Choose the folders whose AGENTS.md and similar files are loaded."
    parser = CommandParser("trust", about, _EPILOG)
    parser.add_action(_ACTIONS, "list")
    parser.add_argument("paths", nargs="*", metavar="PATH", help="a folder (default: this one)")
    parser.add_flag("--json", help="print JSON (list)")
    args = parser.parse_command(_with_action(argv), profile)
    if args.action == "list" and args.paths:
        parser.error("list takes no path")
    if args.action == "remove" and not args.paths:
        parser.error("remove needs a PATH")
    from hermes.config.trust_store import TrustStore

    if args.action != "list":
        refuse_agent("decide what is trusted")
    return _ACTIONS[args.action](args, TrustStore(create_home(args.profile)))


def _with_action(argv: list[str]) -> list[str]:
    """`hermes trust PATH` means `hermes trust add PATH`."""
    first = next((word for word in argv if not word.startswith("-")), "")
    path = first.startswith((".", "~")) or "/" in first or os.path.isdir(first)  # noqa: PTH112
    return ["add", *argv] if path and first not in _ACTIONS else argv


def _list_folders(args: Namespace, book: TrustStore) -> int:
    from hermes.app.commands._own import digest_command
    from hermes.app.knowledge.context_files import find_context_files

    rows = []
    for folder, decision in sorted(book.read_all().items()):
        files: list[str] = []
        if folder.endswith(".md"):  # a slash command of a project
            digest = digest_command(Path(folder))
        else:
            now = [f for f in find_context_files(Path(folder)).folders if str(f.path) == folder]
            digest = now[0].digest if now else ""
            files = [file.path.name for f in now for file in (*f.files, *f.servers)]
        state = "trusted" if decision.trusted else "refused"
        if digest != decision.digest:
            state = "changed" if digest else "gone"
        rows.append({"folder": folder, "state": state, "files": files, "digest": decision.digest})
    if not rows and not args.json:
        print("There are no decisions yet.", file=sys.stderr)
    lines = (f"{row['state']:<8} {row['folder']}  {', '.join(row['files'])}" for row in rows)
    return print_report(rows, (strip_controls(line.rstrip()) for line in lines), json=args.json)


def _trust_folders(args: Namespace, book: TrustStore) -> int:
    from hermes.app.knowledge.context_files import find_context_files
    from hermes.cli.session.project_trust import list_files
    from hermes.config.trust_store import make_decision

    found = []
    for word in args.paths or ["."]:
        path = Path(decode_argument(word)).expanduser()
        if not path.exists():
            raise ConfigError(f"{path} does not exist; nothing was changed.")
        found.append(find_context_files(path if path.is_dir() else path.parent))
    for sentence in (sentence for files in found for sentence in files.skipped):
        print_stderr(sentence)
    folders = list({str(f.path): f for files in found for f in files.folders}.values())
    if not folders:
        print("There is nothing to trust: no AGENTS.md or similar file was found.", file=sys.stderr)
        return 0
    book.save_decisions({str(f.path): make_decision(f.digest, trusted=True) for f in folders})
    print("Loaded in new conversations, until they change:")
    for line in list_files(folders):
        print(line)
    return 0


def _forget_folders(args: Namespace, book: TrustStore) -> int:
    names = [str(Path(decode_argument(word)).expanduser().resolve()) for word in args.paths]
    if missing := [name for name in names if name not in book.read_all()]:
        raise ConfigError(f"There is no decision about {missing[0]}. Run: hermes trust list")
    for name in names:
        book.remove(name)
        print(f"Forgot the decision about {name}; you will be asked again.")
    return 0


_ACTIONS = {"list": _list_folders, "add": _trust_folders, "remove": _forget_folders}
