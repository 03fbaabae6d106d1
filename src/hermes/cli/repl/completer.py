"""Completion in the prompt: /commands with what they do, @files and @folders that are there."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

if TYPE_CHECKING:
    from hermes.app.commands import Command

_WORD = re.compile(r'(?<![\w@])@(?:"([^"\n]*)|([^\s"]*))\Z')
_COMMAND = re.compile(r"/([A-Za-z][\w-]*)?\Z")
_SHOWN = 50
_FILES = 20_000
_FRESH = 10.0

LOCAL = {
    "export": "write this conversation to a Markdown file",
    "exit": "leave; the session stays stored",
    "keys": "what the keys do",
}
"""Commands of this surface alone."""


class Files:
    """The files below the working folder, ignored ones left out; listed anew now and then."""

    def __init__(self, cwd: Path, home: Path) -> None:
        self._cwd = cwd
        self._home = home
        self._found: list[str] = []
        self._at = -_FRESH

    def all(self) -> list[str]:
        now = time.monotonic()
        if now - self._at > _FRESH:
            self._found = self._walk()
            self._at = time.monotonic()
        return self._found

    def beside(self, wanted: str) -> list[str]:
        """What is in the folder that a path names: anywhere, not only below."""
        place = wanted[: wanted.rfind("/") + 1]
        hidden = wanted[len(place) :].startswith(".")
        try:
            found = sorted((self._cwd / Path(place).expanduser()).iterdir())
        except (OSError, RuntimeError, ValueError):
            return []
        shown = [entry for entry in found[:_FILES] if hidden or entry.name[0] != "."]
        return [f"{place}{entry.name}{'/' * entry.is_dir()}" for entry in shown]

    def _walk(self) -> list[str]:
        from itertools import islice

        from hermes.core.tool import Workspace
        from hermes.tools._files.walk import files

        workspace = Workspace(self._cwd, self._home, outputs=self._home)
        found = list(islice(files(self._cwd, workspace), _FILES))
        folders = {f"{parent}/" for name in found for parent in Path(name).parents}
        return sorted([*found, *(folders - {"./"})], key=lambda name: (name.count("/"), name))


class Completing(Completer):
    """Runs on a thread of its own: listing a large folder takes its time."""

    def __init__(self, commands: Callable[[], tuple[Command, ...]]) -> None:
        self._commands = commands
        self.files: Files | None = None

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        before = document.text_before_cursor
        if found := _COMMAND.match(before):
            yield from self._named(found[1] or "")
        elif (word := _WORD.search(before)) and self.files is not None:
            yield from self._paths(word[1] if word[1] is not None else word[2], word[0])

    def _named(self, prefix: str) -> Iterable[Completion]:
        rows = [(c.name, c.usage, c.help) for c in self._commands()]
        rows += [(name, "[FILE]" * (name == "export"), text) for name, text in LOCAL.items()]
        for name, usage, text in sorted(rows):
            if name.startswith(prefix.lower()):
                yield Completion(
                    f"/{name}",
                    -len(prefix) - 1,
                    display=f"/{name} {usage}".rstrip(),
                    display_meta=text,
                )

    def _paths(self, wanted: str, typed: str) -> Iterable[Completion]:
        assert self.files is not None
        word = wanted.casefold()
        elsewhere = wanted.startswith(("/", "~/", "./", "../"))
        names = self.files.beside(wanted) if elsewhere else self.files.all()
        first = [name for name in names if name.casefold().startswith(word)]
        later = [
            n for n in names if word and word in n.casefold() and not n.casefold().startswith(word)
        ]
        for name in (first + later)[:_SHOWN]:
            text = f'@"{name}"' if " " in name else f"@{name}"
            yield Completion(text, -len(typed), display=name)
