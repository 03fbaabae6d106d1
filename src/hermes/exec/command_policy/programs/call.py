"""One call of a program, as the checks of programs see it."""

from __future__ import annotations

from hermes.exec.command_policy.paths import PathZones, Zone
from hermes.exec.command_policy.shell.simple_command import SimpleCommand
from hermes.exec.command_policy.shell.words import literal_text


class ProgramCall:
    """`downloads` collects the files it writes from the network; `alters` is set when a program
    that mostly reads changes something."""

    def __init__(
        self,
        name: str,
        args: tuple[str, ...],
        simple: SimpleCommand,
        path_zones: PathZones,
        *,
        sandboxed: bool,
    ) -> None:
        self.name = name
        self.args = args
        self.simple = simple
        self.path_zones = path_zones
        self.sandboxed = sandboxed
        self.words = [literal_text(arg) for arg in args]
        self.downloads: list[str | None] = []
        self.alters = False
        self.commits = False
        """Git writes to the repository."""

    def has_option(self, *options: str) -> bool:
        """One of these options, also as `--long=value`; or `-xyz` for a single letter `-y`."""
        short = "".join(o[1] for o in options if len(o) == 2)
        for word in self.words:
            if word in options or word.partition("=")[0] in options:
                return True
            bundled = short and word[:1] == "-" and word[1:2].isalnum()
            if bundled and any(letter in word[1:] for letter in short):
                return True
        return False

    def option_value(self, *options: str) -> str | None:
        """The value of an option, as a word."""
        for at, word in enumerate(self.words):
            if word in options and at + 1 < len(self.args):
                return self.args[at + 1]
            for option in options:
                if option.startswith("--") and word.startswith(option + "="):
                    return self.args[at][len(option) + 1 :]
                if len(option) == 2 and word.startswith(option) and len(word) > 2:
                    return self.args[at][2:]
        return None

    def positional_words(self, valued: str = "") -> list[str]:
        """The words that are neither options nor values of the options named."""
        takes = valued.split()
        found: list[str] = []
        at = 0
        while at < len(self.args):
            word = self.words[at]
            if word == "--":
                return found + list(self.args[at + 1 :])
            if word in takes:
                at += 1
            elif not word.startswith("-") or word == "-":
                found.append(self.args[at])
            at += 1
        return found

    def classify_word(self, word: str, *, follow: bool = True) -> set[Zone]:
        return self.path_zones.classify_word(word, self.simple.folders, follow=follow)

    def resolve_paths(self, word: str) -> list[str | None]:
        return self.path_zones.resolve_paths(word, self.simple.folders)
