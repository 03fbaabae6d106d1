"""Slash commands that users write: Markdown files in the home and, once trusted, in a project."""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from hermes.config.trust_store import TrustStore
from hermes.core.untrusted_text import reveal_hidden

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*\Z")
_HEADER = re.compile(r"---\r?\n(.*?)^---\r?\n", re.DOTALL | re.MULTILINE)
_DESCRIPTION = re.compile(r"^description:\s*(.+)$", re.MULTILINE)
_PLACEHOLDER = re.compile(r"\$(ARGUMENTS|[1-9])")
_MAX_BYTES = 100_000
_MAX_HELP = 100


class OwnCommand(Struct, frozen=True):
    """A prompt with a name; `$ARGUMENTS` and `$1` to `$9` in it stand for what follows the name."""

    name: str
    file: Path
    text: str
    in_project: bool

    @property
    def help(self) -> str:
        """Its description, or the beginning of its text."""
        header = _HEADER.match(self.text)
        found = _DESCRIPTION.search(header[1]) if header else None
        shown = found[1].strip("\"' ") if found else self.body
        return " ".join(reveal_hidden(shown).split())[:_MAX_HELP]

    @property
    def body(self) -> str:
        return _HEADER.sub("", self.text, count=1).strip()

    @property
    def digest(self) -> str:
        return _digest_text(self.text)

    def fill_in(self, args: str) -> str:
        """The prompt with these arguments; those it has no place for are added below it."""
        words = args.split()

        def replace(found: re.Match[str]) -> str:
            if found[1] == "ARGUMENTS":
                return args
            return words[int(found[1]) - 1] if int(found[1]) <= len(words) else ""

        text = _PLACEHOLDER.sub(replace, self.body)
        return f"{text}\n\n{args}" if args and not _PLACEHOLDER.search(self.body) else text

    def is_trusted(self, home: Path) -> bool:
        """Commands of the home are the user's own; those of a project are trusted as they are."""
        decision = TrustStore(home).read_all().get(str(self.file))
        return not self.in_project or (
            decision is not None and decision.trusted and decision.digest == self.digest
        )


def list_own_commands(home: Path, folder: Path) -> dict[str, OwnCommand]:
    """Name -> command; those of the home take precedence over those of the project."""
    found: dict[str, OwnCommand] = {}
    for base, in_project in ((home / "commands", False), (folder / ".hermes/commands", True)):
        for command in _read_folder(base, in_project=in_project):
            found.setdefault(command.name, command)
    return found


def _read_folder(base: Path, *, in_project: bool) -> Iterator[OwnCommand]:
    try:
        files = sorted(base.glob("*.md"))
    except OSError:
        return
    for file in files:
        if not _NAME.match(file.stem) or (in_project and file.is_symlink()):
            continue
        if (text := _read_text(file)) is not None:
            yield OwnCommand(file.stem.lower(), file, text, in_project)


def digest_command(file: Path) -> str:
    """The digest of a command's present text; empty: there is none."""
    text = _read_text(file)
    return "" if text is None else _digest_text(text)


def _read_text(file: Path) -> str | None:
    try:
        with file.open("rb") as stream:
            return stream.read(_MAX_BYTES).decode("utf-8", "replace")
    except OSError:
        return None


def _digest_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
