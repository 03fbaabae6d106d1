"""Reads the scripts and makefiles of the workspace that a command would run."""

from __future__ import annotations

import os
import re
import stat

from hermes.exec.command_policy.paths import Places, real_path

_MAX_FILES = 3
_MAX_BYTES = 16 * 1024
_DATABASE = re.compile(r"\.(?:db|sqlite)\d*(?:-\w+)?$")
"""Whoever opens and closes one drops the locks that SQLite holds on it in this process."""
_SHELL = re.compile(r"\s*#!.*\b(?:ba|da|z|k|a)?sh\b")
_RULE = re.compile(
    r"^([^\s#=:][^#=:\n]*?)[ \t]*::?(?!=)[ \t]*([^=;#\n]*)(?:;([^\n]*))?", re.MULTILINE
)
_VARIABLE = re.compile(r"\$\(([\w.@<^*+?-]+)\)|\$([@<^*+?])")
_FUNCTION = re.compile(r"\$\((?!shell\b)[\w-]+ [^()]*\)")


class Stored:
    """A few small plain files per judgement; a link that leads out of the workspace is none."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._left = _MAX_FILES
        self._absent: set[str] = set()

    def text(self, path: str | None) -> str | None:
        if path is None or self._left <= 0 or not self._places.in_workspace(path):
            return None
        if path in self._absent or _DATABASE.search(path):
            return None
        try:
            file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            self._absent.add(path)
            return None
        self._left -= 1
        try:
            plain = stat.S_ISREG(os.fstat(file).st_mode)
            if not plain or not self._places.in_workspace(real_path(path)):
                return None
            data = os.read(file, _MAX_BYTES)
        except OSError:
            return None
        finally:
            os.close(file)
        return None if b"\0" in data else data.decode("utf-8", "replace")


def is_shell(text: str, *, given_to_shell: bool) -> bool:
    """A file is a shell's when it says so, or says nothing and is run by one."""
    if text.lstrip().startswith("#!"):
        return _SHELL.match(text) is not None
    return given_to_shell


def recipes(text: str, targets: list[str] | None = None) -> str:
    """What make would run for these targets, or for the first, and what they depend on; without
    targets for all."""
    rules: dict[str, tuple[list[str], list[str]]] = {}
    found = list(_RULE.finditer(text))
    for at, rule in enumerate(found):
        end = found[at + 1].start() if at + 1 < len(found) else len(text)
        lines = re.findall(r"^\t[-@+ \t]*(.*(?:\\\n.*)*)", text[rule.end() : end], re.MULTILINE)
        for name in rule[1].split():
            needs, runs = rules.setdefault(name, ([], []))
            needs += rule[2].split()
            runs += [rule[3].strip(" \t-@+")] if rule[3] else []
            runs += lines
    first = [name for name in rules if not name.startswith(".")][:1]
    todo = list(rules) if targets is None else [n for n in targets if n in rules] or first
    seen, out = set[str](), list[str]()
    while todo:
        name = todo.pop(0)
        if name in rules and name not in seen:
            seen.add(name)
            todo += rules[name][0]
            out += rules[name][1]
    script = "\n".join(out)
    return script.replace("$$", "$") if targets is None else _as_shell(script)


def _as_shell(text: str) -> str:
    """The variables and functions of make in the words of a shell."""
    text = _FUNCTION.sub("$MADE", _VARIABLE.sub(lambda found: "${MADE}", text))
    return text.replace("$(shell ", "$(").replace("$$", "$")
