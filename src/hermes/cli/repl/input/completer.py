"""Completion in the prompt: /commands with their help, and @files and @folders that exist."""

import re
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

if TYPE_CHECKING:
    from hermes.app.commands import Command
    from hermes.app.commands._own import OwnCommand
    from hermes.app.extensions.plugin_api import PluginCommand


_REFERENCE = re.compile(r'(?<![\w@])@(?:"([^"\n]*)|([^\s"]*))\Z')
_COMMAND = re.compile(r"/([A-Za-z][\w-]*)?\Z")
_MAX_COMPLETIONS = 50
_MAX_FILES = 20_000
_REFRESH_SECONDS = 10.0

LOCAL_COMMANDS = {
    "copy": "copy the last answer to the clipboard",
    "doctor": "check this installation",
    "exit": "quit; the session stays stored",
    "export": "write this conversation to a Markdown file",
    "keys": "list the keys",
    "login": "log in to a provider",
    "theme": "choose the colours",
}
"""Commands that only the terminal has."""


class WorkspaceFiles:
    """The files below the working folder, without ignored ones; listed again now and then."""

    def __init__(self, cwd: Path, home: Path) -> None:
        self._cwd = cwd
        self._home = home
        self._found: list[str] = []
        self._listed_at = -_REFRESH_SECONDS

    def list_all(self) -> list[str]:
        now = time.monotonic()
        if now - self._listed_at > _REFRESH_SECONDS:
            self._found = self._walk_folder()
            self._listed_at = time.monotonic()
        return self._found

    def list_beside(self, path: str) -> list[str]:
        """The entries of the folder in which a path ends; any folder, not only those below."""
        folder = path[: path.rfind("/") + 1]
        hidden = path[len(folder) :].startswith(".")
        try:
            found = sorted((self._cwd / Path(folder).expanduser()).iterdir())
        except (OSError, RuntimeError, ValueError):
            return []
        shown = [entry for entry in found[:_MAX_FILES] if hidden or entry.name[0] != "."]
        return [f"{folder}{entry.name}{'/' * entry.is_dir()}" for entry in shown]

    def _walk_folder(self) -> list[str]:
        from itertools import islice

        from hermes.core.tool import Workspace
        from hermes.tools._files.walk import walk_files

        workspace = Workspace(self._cwd, self._home, outputs=self._home)
        found = list(islice(walk_files(self._cwd, workspace), _MAX_FILES))
        folders = {f"{parent}/" for name in found for parent in Path(name).parents}
        return sorted([*found, *(folders - {"./"})], key=lambda name: (name.count("/"), name))


class PromptCompleter(Completer):
    """Runs on a thread of its own: listing a large folder takes time."""

    def __init__(self, commands: "Callable[[], tuple[Command, ...]]") -> None:
        self._commands = commands
        self.own_commands: Callable[[], dict[str, OwnCommand]] = dict
        """The commands that the user wrote."""
        self.plugin_commands: Mapping[str, PluginCommand] = {}
        self.files: WorkspaceFiles | None = None

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        before = document.text_before_cursor
        if found := _COMMAND.match(before):
            yield from self._complete_command(found[1] or "")
        elif (word := _REFERENCE.search(before)) and self.files is not None:
            yield from self._complete_path(word[1] if word[1] is not None else word[2], word[0])

    def _complete_command(self, prefix: str) -> Iterable[Completion]:
        rows = [(c.name, c.usage, c.help) for c in self._commands()]
        usage = {"export": "[FILE]", "login": "[PROVIDER]", "theme": "[NAME]"}
        rows += [(name, usage.get(name, ""), text) for name, text in LOCAL_COMMANDS.items()]
        known = {name for name, _, _ in rows}
        own = self.own_commands().values()
        rows += [(c.name, "[ARGUMENTS]", c.help) for c in own if c.name not in known]
        rows += [(c.name, c.usage, c.help) for c in self.plugin_commands.values()]
        for name, values, text in sorted(rows):
            if name.startswith(prefix.lower()):
                shown = f"/{name} {values}".rstrip()
                yield Completion(f"/{name}", -len(prefix) - 1, display=shown, display_meta=text)

    def _complete_path(self, path: str, typed: str) -> Iterable[Completion]:
        assert self.files is not None
        word = path.casefold()
        explicit = path.startswith(("/", "~/", "./", "../"))
        names = self.files.list_beside(path) if explicit else self.files.list_all()
        found = [name for name in names if word in name.casefold()]
        found.sort(key=lambda name: not name.casefold().startswith(word))
        for name in found[:_MAX_COMPLETIONS]:
            text = f'@"{name}"' if " " in name else f"@{name}"
            yield Completion(text, -len(typed), display=name)
