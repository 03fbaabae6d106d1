"""Before a conversation begins: whether files of the project may have a say in it."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hermes.cli.main import fail
from hermes.config.env import inside_agent
from hermes.config.paths import CONTEXT_FILES

if TYPE_CHECKING:
    from hermes.app.context_files import Folder
    from hermes.config.trust_store import TrustBook

_LISTED = 8


def settle(home: Path, folder: Path, *, attended: bool) -> list[str]:
    """What the user is to be told, a sentence each. Somebody at the terminal is asked, once for
    each content; where nobody is, nothing new is trusted."""
    if not _any_near(folder):
        return []
    from hermes.app.context_files import find, quoted, sort
    from hermes.config.trust_store import TrustBook

    book = TrustBook(home)
    found = find(folder)
    by = sort(found.folders, book.all())
    told = list(found.odd)
    trusted = by.trusted
    if by.unknown and attended and not inside_agent():
        if agreed(by.unknown, book):
            trusted = sort(found.folders, book.all()).trusted
    elif by.unknown:
        told.append(_unread(by.unknown))
    return [*told, *quoted(found.root, trusted).cut]


def welcome(args: Namespace) -> None:
    """Before the prompt appears: what it takes to ask, and no more."""
    if args.resume is not None or args.latest:
        return
    from hermes.config.env import environment
    from hermes.config.paths import config_file, database, find_home, make_home

    home = find_home(environment(), args.profile)
    folder = Path.cwd()
    if _any_near(folder):
        make_home(home)
        for sentence in settle(home, folder, attended=True):
            fail(sentence)
    if not database(home).exists() and not config_file(home).exists():
        _first_start(args)


def _first_start(args: Namespace) -> None:
    """Nobody was here before: with nothing that says which model to call, one is found."""
    if args.model or args.provider or args.base_url:
        return
    from hermes.config.load import load
    from hermes.llm.endpoints.endpoint import ModelChoice
    from hermes.llm.endpoints.resolver import is_undecided

    setup = load(args.profile)
    if inside_agent() or not (
        setup.secrets.get("OPENAI_BASE_URL")  # it says itself which models it has
        or is_undecided(setup.config, setup.secrets, ModelChoice())
    ):
        return
    from hermes.cli.commands.setup import first

    print("Nothing is set up yet; looking for a model. (hermes setup does this again.)")
    asked = Namespace(profile=args.profile, key_env="", asked=False)
    args.latest = first(asked, attended=True) is not None


def _any_near(folder: Path) -> bool:
    """A few looks at the file system, and no import: most folders have none of them."""
    place = str(folder)
    while True:
        if any(os.path.lexists(f"{place}/{name}") for name in CONTEXT_FILES):
            return True
        above = os.path.dirname(place)  # noqa: PTH120 - a start must not wait for pathlib
        if above == place:
            return False
        place = above


def agreed(folders: Sequence[Folder], book: TrustBook) -> bool:
    """Ask about these, and remember the answer to exactly what they hold now."""
    from hermes.cli.terminal.output import ask
    from hermes.config.trust_store import answer

    print("This folder has notes for agents, which nobody has agreed to yet:", file=sys.stderr)
    for line in listed(folders):
        print(line, file=sys.stderr)
    yes = ask("Read them in this and later conversations?")
    book.put({str(f.path): answer(f.digest, trusted=yes) for f in folders})
    if not yes:
        print(f"They are not read. To change that: hermes trust {_where(folders)}", file=sys.stderr)
    return yes


def listed(folders: Sequence[Folder]) -> list[str]:
    """A line per file: where it is, how large."""
    from hermes.cli.terminal.text import one_line
    from hermes.core.untrusted_text import reveal

    files = [file for folder in folders for file in folder.files]
    lines = [f"  {one_line(reveal(str(f.path)), 200)}  {f.size:,} bytes" for f in files[:_LISTED]]
    if more := len(files) - _LISTED:
        lines += [f"  and {more} more"] if more > 0 else []
    return lines


def _unread(folders: Sequence[Folder]) -> str:
    from hermes.cli.terminal.text import one_line
    from hermes.core.untrusted_text import reveal

    files = [file for folder in folders for file in folder.files]
    names = ", ".join(dict.fromkeys(file.path.name for file in files))
    where = one_line(reveal(str(folders[-1].path)), 200)
    return (
        f"{names} of {where} not read: nobody has agreed to what is in there. "
        f"If you do: hermes trust {_where(folders)}"
    )


def _where(folders: Sequence[Folder]) -> str:
    from shlex import quote

    from hermes.core.untrusted_text import reveal

    return quote(reveal(str(folders[-1].path)))
