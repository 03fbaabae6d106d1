"""The files a command line writes itself, so that what it then runs is read before it does."""

from __future__ import annotations

from hermes.exec.command_policy.paths import Places
from hermes.exec.command_policy.shell.simple_command import Simple
from hermes.exec.command_policy.shell.static_output import output_of
from hermes.exec.command_policy.shell.words import literal, vague

_COPIES = frozenset("cp mv install ln".split())
_MAX_FILES = 50


class Staged:
    """The text of each file by its path; None where it is only known when it runs."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._texts: dict[str, str | None] = {}

    def __len__(self) -> int:
        return len(self._texts)

    def note(self, simple: Simple) -> None:
        """What this command leaves behind."""
        name = simple.argv[0].rpartition("/")[2] if simple.argv else ""
        if not simple.writes and name != "tee" and name not in _COPIES:
            return
        fed = simple.feed if simple.feed and not simple.feed.startswith("\x02") else None
        for word in simple.writes:
            self._write(word, simple, output_of(simple.argv, simple.feed) if simple.argv else fed)
        words = [word for word in simple.argv[1:] if not word.startswith("-")]
        if name == "tee":
            for word in words:
                self._write(word, simple, fed)
        elif name in _COPIES and len(words) > 1:
            self._copy(words[:-1], words[-1], simple)

    def find(self, word: str, simple: Simple) -> tuple[bool, str | None]:
        """Whether it was written here, and its text."""
        for path in self._places.paths(word, simple.folders):
            if path in self._texts:
                return True, self._texts[path]
        return False, None

    def _write(self, word: str, simple: Simple, text: str | None) -> None:
        for path in self._places.paths(word, simple.folders):
            if path is not None and not path.startswith("/dev/") and len(self) < _MAX_FILES:
                before = self._texts.get(path, "")
                known = text is not None and before is not None
                self._texts[path] = f"{before}\n{text}" if known and before else text

    def _copy(self, sources: list[str], target: str, simple: Simple) -> None:
        for source in sources:
            known, text = self.find(source, simple)
            foreign = vague(source) or bool(
                self._places.zones(source, simple.folders, follow=False) & {"outside", "vital"}
            )
            if known or foreign:
                self._write(target, simple, text)
                self._write(f"{target}/{literal(source).rpartition('/')[2]}", simple, text)
