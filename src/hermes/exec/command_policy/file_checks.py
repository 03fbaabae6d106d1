"""Checks the files that a command reads, writes and runs."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable
from pathlib import Path

from hermes.exec.command_policy.findings import Findings
from hermes.exec.command_policy.paths import (
    PathZones,
    Zone,
    describe_zones,
    explain_denied_write,
    resolve_links,
)
from hermes.exec.command_policy.programs.builtin_rules import NETWORK_PROGRAMS
from hermes.exec.command_policy.programs.call import ProgramCall
from hermes.exec.command_policy.programs.wrappers import SHELLS, STDIN_NAMES, unwrap_command
from hermes.exec.command_policy.shell.simple_command import SimpleCommand
from hermes.exec.command_policy.shell.static_output import predict_output
from hermes.exec.command_policy.shell.words import display_word, is_vague, literal_text
from hermes.exec.command_policy.types import Certainty

_COPIES = frozenset("cp mv install ln".split())
_MAX_STAGED = 50
_MAX_READ = 3
_MAX_BYTES = 16 * 1024
_DATABASE = re.compile(r"\.(?:db|sqlite)\d*(?:-\w+)?$")
"""Never opened: closing one would drop the locks that SQLite holds on it in this process."""
_SHELL = re.compile(r"\s*#!.*\b(?:ba|da|z|k|a)?sh\b")
_RULE = re.compile(
    r"^([^\s#=:][^#=:\n]*?)[ \t]*::?(?!=)[ \t]*([^=;#\n]*)(?:;([^\n]*))?", re.MULTILINE
)
_VARIABLE = re.compile(r"\$\(([\w.@<^*+?-]+)\)|\$([@<^*+?])")
_FUNCTION = re.compile(r"\$\((?!shell\b)[\w-]+ [^()]*\)")
AGENT_FILES = "touches the agent's own files"
_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
_OTHER_LANGUAGE = re.compile(r"\s*#!(?!.*\b(?:ba|da|z|k)?sh\b)")
_RUNS_COMMANDS = re.compile(r"\b(?:os\.(?:system|popen|exec|spawn)|subprocess|pty\.spawn)")


class FileChecks:
    """Records findings about files, and marks files that come from the network."""

    def __init__(self, path_zones: PathZones, findings: Findings, *, sandboxed: bool) -> None:
        self._path_zones = path_zones
        self._findings = findings
        self._sandboxed = sandboxed

    def check_write(self, word: str, simple: SimpleCommand) -> None:
        zones = self._path_zones.classify_word(word, simple.folders, follow=True)
        if zones != {"plain"}:
            self._findings.read_only = False
        if reason := explain_denied_write(word, simple.folders, self._path_zones):
            self._findings.deny(reason)
        if "own" in zones:
            self._findings.deny(f"writes to {display_word(word)}: {AGENT_FILES}")
        if bad := zones - {"inside", "plain", "top", "device", "own"}:
            self._findings.ask(
                f"writes to {display_word(word)}{describe_zones(bad)}", _zone_certainty(bad)
            )
        elif not self._sandboxed and zones != {"plain"}:
            self._findings.ask("writes a file (no sandbox)")
        wrapped = simple.argv and unwrap_command(simple.argv, None) is not None
        programs = (*simple.sources, *(simple.argv if wrapped else simple.argv[:1]))
        if {word.rpartition("/")[2] for word in programs} & NETWORK_PROGRAMS:
            for path in self._path_zones.resolve_paths(word, simple.folders):
                self.mark_download(path)

    def check_read(self, word: str, folders: tuple[str | None, ...]) -> None:
        zones = self._path_zones.classify_word(word, folders, follow=True)
        if "own" in zones:
            self._findings.deny(f"reads {display_word(word)}: {AGENT_FILES}")
        if bad := zones & {"secret", "network", "device"}:
            self._findings.ask(f"reads {display_word(word)}{describe_zones(bad)}")

    def check_argument(self, word: str, program: str, folders: tuple[str | None, ...]) -> None:
        """Check an argument, which may be a path, also after `--option=` or `@`."""
        text = word
        if text.startswith("-") or "=" in text:
            text = text.rpartition("=")[2] or text
        text = text.lstrip("@<>")
        if " " in literal_text(text) or "\n" in text or program in ("echo", "printf"):
            return
        zones = self._path_zones.classify_word(text, folders, follow=False)
        if "own" in zones:
            self._findings.deny(f"{display_word(word)}: {AGENT_FILES}")
        if bad := zones & {"secret", "network"}:
            self._findings.ask(f"{display_word(word)}{describe_zones(bad)}")

    def check_execution(self, word: str, simple: SimpleCommand) -> None:
        for path in self._path_zones.resolve_paths(word, simple.folders):
            if path is not None and self._path_zones.is_tainted(path):
                self._findings.ask(f"runs {display_word(word)}, which was downloaded")

    def is_agent_path(self, value: str) -> bool:
        """Whether a value names the agent's own files."""
        return value.startswith("/") and "own" in self._path_zones.classify_word(
            value, (None,), follow=False
        )

    def mark_download(self, path: str | None) -> None:
        if path is not None and not self._findings.denials_only and not path.startswith("/dev/"):
            self._findings.downloads.append(Path(path))
            self._path_zones.tainted |= {path}


def _zone_certainty(zones: Iterable[Zone]) -> Certainty:
    return Certainty.UNCERTAIN if "unknown" in zones else Certainty.CERTAIN


class WrittenFiles:
    """Files that the command line writes itself: path -> text, None if known only at run time."""

    def __init__(self, path_zones: PathZones) -> None:
        self._path_zones = path_zones
        self._texts: dict[str, str | None] = {}

    def __len__(self) -> int:
        return len(self._texts)

    def record_command(self, simple: SimpleCommand) -> None:
        """Record the files that a command writes."""
        name = simple.argv[0].rpartition("/")[2] if simple.argv else ""
        if not simple.writes and name != "tee" and name not in _COPIES:
            return
        fed = simple.feed if simple.feed and not simple.feed.startswith("\x02") else None
        for word in simple.writes:
            self._record_write(
                word, simple, predict_output(simple.argv, simple.feed) if simple.argv else fed
            )
        words = [word for word in simple.argv[1:] if not word.startswith("-")]
        if name == "tee":
            for word in words:
                self._record_write(word, simple, fed)
        elif name in _COPIES and len(words) > 1:
            self._record_copy(words[:-1], words[-1], simple)

    def find_text(self, word: str, simple: SimpleCommand) -> tuple[bool, str | None]:
        """Whether the command line writes this file, and its text."""
        for path in self._path_zones.resolve_paths(word, simple.folders):
            if path in self._texts:
                return True, self._texts[path]
        return False, None

    def _record_write(self, word: str, simple: SimpleCommand, text: str | None) -> None:
        for path in self._path_zones.resolve_paths(word, simple.folders):
            if path is not None and not path.startswith("/dev/") and len(self) < _MAX_STAGED:
                before = self._texts.get(path, "")
                known = text is not None and before is not None
                self._texts[path] = f"{before}\n{text}" if known and before else text

    def _record_copy(self, sources: list[str], target: str, simple: SimpleCommand) -> None:
        for source in sources:
            known, text = self.find_text(source, simple)
            foreign = is_vague(source) or bool(
                self._path_zones.classify_word(source, simple.folders, follow=False)
                & {"outside", "vital"}
            )
            if known or foreign:
                self._record_write(target, simple, text)
                self._record_write(
                    f"{target}/{literal_text(source).rpartition('/')[2]}", simple, text
                )


class WorkspaceFiles:
    """Reads a few small regular files of the workspace; never through a link that leads out."""

    def __init__(self, path_zones: PathZones) -> None:
        self._path_zones = path_zones
        self._left = _MAX_READ
        self._absent: set[str] = set()

    def read_text(self, path: str | None) -> str | None:
        if path is None or self._left <= 0 or not self._path_zones.in_workspace(path):
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
            if not plain or not self._path_zones.in_workspace(resolve_links(path)):
                return None
            data = os.read(file, _MAX_BYTES)
        except OSError:
            return None
        finally:
            os.close(file)
        return None if b"\0" in data else data.decode("utf-8", "replace")


def is_shell_script(text: str, *, given_to_shell: bool) -> bool:
    """Whether a file is a shell script: by its first line, or because a shell runs it."""
    if text.lstrip().startswith("#!"):
        return _SHELL.match(text) is not None
    return given_to_shell


def extract_recipes(text: str, targets: list[str] | None = None) -> str:
    """The commands make would run for these targets, or for the first one, and for what they depend
    on; for all targets when None is given."""
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
    return script.replace("$$", "$") if targets is None else _make_to_shell(script)


def _make_to_shell(text: str) -> str:
    """Translate variables and functions of make to shell syntax."""
    text = _FUNCTION.sub("$MADE", _VARIABLE.sub(lambda found: "${MADE}", text))
    return text.replace("$(shell ", "$(").replace("$$", "$")


class RunCodeChecks:
    """Checks the code that a command runs; in existing workspace files only certain findings count.

    `judge_shell_text` judges a shell script; `contains_denied` tells whether a text in another
    language contains a command that is always denied."""

    def __init__(
        self,
        path_zones: PathZones,
        written_files: WrittenFiles,
        findings: Findings,
        judge_shell_text: Callable[[str, SimpleCommand], None],
        contains_denied: Callable[[str, SimpleCommand], bool],
    ) -> None:
        self._path_zones = path_zones
        self._written_files = written_files
        self._workspace_files = WorkspaceFiles(path_zones)
        self._findings = findings
        self._judge_shell_text = judge_shell_text
        self._contains_denied = contains_denied

    def check_call(self, call: ProgramCall, simple: SimpleCommand) -> None:
        """Check the code that a shell, make or an interpreter runs."""
        if call.name in ("make", "gmake"):
            self._check_makefile(call, simple)
        elif call.name.startswith(("python", "pypy")):
            self._check_python(call, simple)
        elif call.name in SHELLS or call.name in ("source", "."):
            self._check_shell(call, simple)

    def check_file(self, word: str, simple: SimpleCommand, *, given_to_shell: bool = False) -> bool:
        """Judge the text of a file that is run; True when it is known only at run time."""
        written_here, text = self._written_files.find_text(word, simple)
        if written_here and text is None:
            reason = f"runs {display_word(word)}, which it writes itself with unknown content"
            self._findings.ask(reason)
            self._findings.dynamic = True
            return True
        if text is not None:
            if not _OTHER_LANGUAGE.match(text):
                self._judge_shell_text(text, simple)
            return False
        stored = self._read_workspace_file(word, simple)
        if stored is not None and is_shell_script(stored, given_to_shell=given_to_shell):
            with self._findings.workspace_file_scope():
                self._judge_shell_text(stored, simple)
        return False

    def _check_shell(self, call: ProgramCall, simple: SimpleCommand) -> None:
        for text in simple.offered:
            self._judge_shell_text(text, simple)
        for word in call.positional_words("-o +o -O +O")[:1]:
            self.check_file(word, simple, given_to_shell=True)
            if (
                literal_text(word) in STDIN_NAMES
                and simple.feed
                and not simple.feed.startswith("\x02")
            ):
                self._judge_shell_text(simple.feed, simple)

    def _check_makefile(self, call: ProgramCall, simple: SimpleCommand) -> None:
        given, folder = call.option_value("-f", "--file"), call.option_value("-C", "--directory")
        targets = [
            literal_text(word)
            for word in call.positional_words("-f --file -C --directory -j -l -o -W -I")
        ]
        for word in [given] if given else _MAKEFILES:
            path = f"{folder}/{word}" if folder else word
            written_here, text = self._written_files.find_text(path, simple)
            if text:
                self._judge_shell_text(extract_recipes(text), simple)
            stored = None if written_here else self._read_workspace_file(path, simple)
            if stored is not None:
                with self._findings.workspace_file_scope():
                    self._judge_shell_text(extract_recipes(stored, targets), simple)
                return

    def _check_python(self, call: ProgramCall, simple: SimpleCommand) -> None:
        script = next((word for word in call.words if not word.startswith("-")), "")
        if not script.endswith(".py") or call.words[0] in ("-c", "-m"):
            return
        text = self._read_workspace_file(script, simple)
        if text and _RUNS_COMMANDS.search(text) and self._contains_denied(text, simple):
            self._findings.ask(
                f"{call.name} runs {script}, which contains a command that is always denied"
            )

    def _read_workspace_file(self, word: str, simple: SimpleCommand) -> str | None:
        if is_vague(word):
            return None
        for path in self._path_zones.resolve_paths(word, simple.folders):
            if (text := self._workspace_files.read_text(path)) is not None:
                return text
        return None
