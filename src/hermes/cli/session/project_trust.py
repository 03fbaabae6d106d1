"""Whether the instruction files of a project (AGENTS.md and the like) may steer the agent."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hermes.config.env import is_inside_agent
from hermes.config.paths import CONTEXT_FILES, SERVER_FILE, SKILL_FOLDERS

if TYPE_CHECKING:
    from hermes.app.knowledge.context_files import ContextFile, ContextFolder
    from hermes.config.trust_store import TrustStore

_LISTED_FILES = 8
_NAMES = (*CONTEXT_FILES, *SKILL_FOLDERS, SERVER_FILE)


def check_context_files(
    home: Path, folder: Path, *, attended: bool, are_loaded: Callable[[], bool] = lambda: True
) -> list[str]:
    """Sentences for the user about the instruction files that apply to a folder.

    Somebody at the terminal is asked once for each content; where nobody is, nothing new is
    trusted. `are_loaded`: whether the model is given such files at all; if not, nobody is asked.
    """
    if not has_context_files(folder):
        return []
    from hermes.app.knowledge.context_files import find_context_files, quote_files, sort_by_trust
    from hermes.config.trust_store import TrustStore

    book = TrustStore(home)
    found = find_context_files(folder)
    by = sort_by_trust(found.folders, book.read_all())
    sentences = list(found.skipped)
    trusted = by.trusted
    if by.unknown and attended and not are_loaded():
        return []
    if by.unknown and attended and not is_inside_agent():
        if ask_trust(by.unknown, book):
            trusted = sort_by_trust(found.folders, book.read_all()).trusted
    elif by.unknown:
        sentences.append(_describe_untrusted_files(by.unknown))
    return [*sentences, *quote_files(found.root, trusted).truncations]


def has_context_files(folder: Path) -> bool:
    """Looks only at the file system and imports nothing: most folders have no such files."""
    path = str(folder)
    while True:
        if any(os.path.lexists(f"{path}/{name}") for name in _NAMES):
            return True
        above = os.path.dirname(path)  # noqa: PTH120 - a start must not wait for pathlib
        if above == path:
            return False
        path = above


def ask_trust(folders: Sequence[ContextFolder], book: TrustStore) -> bool:
    """Asks about the files of these folders and remembers the answer for their present content."""
    from hermes.cli.terminal.picker import ask_yes_no
    from hermes.config.trust_store import make_decision

    print("This folder contains instructions for AI agents:", file=sys.stderr)
    for line in list_files(folders):
        print(line, file=sys.stderr)
    yes = ask_yes_no("Let Hermes follow them, now and in later conversations?")
    book.save_decisions({str(f.path): make_decision(f.digest, trusted=yes) for f in folders})
    if not yes:
        hint = f"To change that, run: {_trust_command(folders)}"
        print(f"They are ignored. {hint}", file=sys.stderr)
    return yes


def list_files(folders: Sequence[ContextFolder]) -> list[str]:
    """A line per file: its path and size."""
    files = _join_files(folders)
    lines = [
        f"  {_path_line(f.path)}  {f.size:,} bytes"
        + (" (MCP servers: programs that Hermes starts)" if f.path.name == SERVER_FILE else "")
        for f in files[:_LISTED_FILES]
    ]
    more = len(files) - _LISTED_FILES
    return [*lines, f"  and {more} more"] if more > 0 else lines


def _join_files(folders: Sequence[ContextFolder]) -> list[ContextFile]:
    """The files that are trusted together; servers first, because they start programs."""
    return [file for f in folders for file in (*f.servers, *f.files, *f.skills)]


def _describe_untrusted_files(folders: Sequence[ContextFolder]) -> str:
    files = _join_files(folders)
    names = list(dict.fromkeys(file.path.name for file in files))
    what = f"{', '.join(names)} in {_path_line(folders[-1].path)}"
    why = "not loaded: the folder is not trusted"
    verb = "was" if len(names) == 1 else "were"
    return f"{what} {verb} {why}. Run: {_trust_command(folders)}"


def _path_line(path: Path) -> str:
    from hermes.cli.terminal.text import one_line
    from hermes.core.untrusted_text import reveal_hidden

    return one_line(reveal_hidden(str(path)), 200)


def _trust_command(folders: Sequence[ContextFolder]) -> str:
    from shlex import quote

    from hermes.core.untrusted_text import reveal_hidden

    return f"hermes trust {quote(reveal_hidden(str(folders[-1].path)))}"
