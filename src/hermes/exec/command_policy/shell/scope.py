"""Variables and working folders of a command line while it is being read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from hermes.exec.command_policy.shell.words import FIELDS, GAP, UNKNOWN, is_vague, split_fields

_MAX_FOLDERS = 6


class ShellScope:
    """Values that are certain, values that are only likely (set in a branch that may not run),
    and every folder the next command may find itself in; None is "anywhere"."""

    def __init__(self, folder: str, home: str, arguments: tuple[str, ...] = ()) -> None:
        self.home = home
        self.feed: str | None = None
        """Standard input of its first command, as in SimpleCommand."""
        self.folders: tuple[str | None, ...] = (folder,)
        self.values: dict[str, tuple[str, bool]] = {}
        self.set_arguments(arguments)
        self._doubt = 0
        self._looks_left = 16
        self._stack: list[tuple[str | None, ...]] = []
        self._target: tuple[str | None, ...] = ()

    def copy(self) -> ShellScope:
        other = ShellScope("", self.home)
        other.folders, other.values = self.folders, dict(self.values)
        other.feed = self.feed
        return other

    def set_arguments(self, arguments: tuple[str, ...]) -> None:
        """`$0`, `$1` and so on."""
        for number, argument in enumerate(arguments):
            self.values[str(number)] = (argument, False)
        if arguments:
            self.values["@"] = (GAP.join(arguments[1:]), False)
            self.values["*"] = (" ".join(arguments[1:]), False)

    def variable_value(self, name: str, *, in_quotes: bool) -> tuple[str, str]:
        """The certain and the probable value of a variable."""
        unknown = UNKNOWN if in_quotes else FIELDS
        known = self.values.get(name)
        if known is None:
            if name == "HOME":
                known = (self.home, True)
            elif name == "PWD" and len(self.folders) == 1 and self.folders[0] is not None:
                known = (self.folders[0], True)
            elif name.isdigit():
                return unknown, ""  # as a rule there are none
            elif name == "IFS":
                return (" ", " ") if in_quotes else (GAP, GAP)
            else:
                return unknown, unknown
        text, certain = known
        shown = text if in_quotes else split_fields(text)
        return (shown, shown) if certain else (unknown, shown)

    def assign_variable(self, name: str, certain: str | None, likely: str) -> None:
        """`certain` is None when the value is known only at run time."""
        if certain is not None and not self._doubt:
            self.values[name] = (certain, True)
        else:
            self.values[name] = (likely, False)

    def apply_cd(self, argv: tuple[str, ...]) -> None:
        """Apply a cd, pushd or popd."""
        targets = [word for word in argv[1:] if word not in ("--", "-P", "-L")]
        target = targets[0] if targets else self.home
        if argv[0] == "popd" and self._stack:
            self.folders = self._stack.pop()
        elif argv[0] == "popd" or is_vague(target) or target.startswith("-"):
            self.change_folder(None)
        else:
            self._stack += [self.folders] if argv[0] == "pushd" else []
            self.change_folder(target)

    def change_folder(self, target: str | None) -> None:
        if target is None or self._looks_left <= 0:
            self.folders = (*self.folders[:1], None)
            return
        new = [
            None
            if folder is None and not target.startswith("/")
            else _join_path(folder or "/", target)
            for folder in self.folders
        ]
        sure = all(folder is not None and self._folder_exists(folder) for folder in new)
        self._target = tuple(new)
        self.folders = _union_folders(self._target, () if sure else self.folders)

    def _folder_exists(self, folder: str) -> bool:
        self._looks_left -= 1
        return self._looks_left > 0 and os.path.isdir(folder)  # noqa: PTH112 - plain text

    def confirm_change(self) -> None:
        """The last change of folder has succeeded: `cd x && …`."""
        if self._target and set(self._target) <= set(self.folders):
            self.folders = self._target
        self._target = ()

    @contextmanager
    def uncertain_branch(self) -> Iterator[None]:
        """What happens inside may not happen at all."""
        before = self.folders
        self._doubt += 1
        try:
            yield
        finally:
            self._doubt -= 1
            self.folders = _union_folders(self.folders, before)

    @contextmanager
    def subshell_scope(self) -> Iterator[None]:
        """What happens inside ends with it, as in a subshell."""
        folders, values = self.folders, dict(self.values)
        try:
            yield
        finally:
            self.folders, self.values = folders, values

    def add_folders(self, folders: tuple[str | None, ...]) -> None:
        self.folders = _union_folders(self.folders, folders)


def _join_path(folder: str, target: str) -> str:
    return os.path.normpath(os.path.join(folder, target))  # noqa: PTH118 - text, not files


def _union_folders(
    first: tuple[str | None, ...], second: tuple[str | None, ...]
) -> tuple[str | None, ...]:
    both = tuple(dict.fromkeys((*first, *second)))
    return both if len(both) <= _MAX_FOLDERS else (*both[:_MAX_FOLDERS], None)
