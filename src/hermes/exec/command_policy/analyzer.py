"""Weighs every simple command of a command line, and whatever is inside it."""

from __future__ import annotations

import re
from itertools import chain, islice

from hermes.exec.command_policy.embedded_commands import (
    bomb_in,
    commands_in,
    decoded,
    disguises,
    held,
    spoken,
    suspects,
    texts_in,
    without_nothing,
)
from hermes.exec.command_policy.findings import Verdict
from hermes.exec.command_policy.hard_denials import blocked, names_in
from hermes.exec.command_policy.paths import OWN, Files, Places
from hermes.exec.command_policy.programs.call import Call
from hermes.exec.command_policy.programs.environment import risky_setting
from hermes.exec.command_policy.programs.options import objections
from hermes.exec.command_policy.programs.wrappers import Inner, unwrap
from hermes.exec.command_policy.rule_lookup import permitted
from hermes.exec.command_policy.rules import Rules
from hermes.exec.command_policy.shell.commands import Reader
from hermes.exec.command_policy.shell.grammar import parse
from hermes.exec.command_policy.shell.prescan import joined, misleading, plain, spelled_out
from hermes.exec.command_policy.shell.scope import Scope
from hermes.exec.command_policy.shell.simple_command import Simple
from hermes.exec.command_policy.shell.words import UNKNOWN, clean, literal, vague, written
from hermes.exec.command_policy.types import Certainty, Judgement, TooComplex
from hermes.exec.command_policy.workspace_code import Code, Staged

_MAX_LAYERS = 5
_MAX_CALLS = 2000
_MAX_SEARCHES = 12
_MAX_SEARCHED = 200
_MAX_PIECES = 60
_MAX_SEARCHED_TEXT = 8000
_MAX_HELD = 100
_SYSTEM_BIN = re.compile(r"(?:/usr)?(?:/local)?/s?bin/[^/]+|/opt/homebrew/bin/[^/]+")
_ENVIRONMENTS = re.compile(r"(?:venv|env|\.tox|\.nox)[^/]*/bin/|node_modules/")
_BARE = {"yarn": ("yarn", "install")}
_HARMLESS = frozenset("LC_ALL LANG LC_CTYPE TZ NO_COLOR FORCE_COLOR TERM COLUMNS CI".split())
_FOLDERS = frozenset("tests test src docs".split())
_DECLARING = frozenset("export declare typeset local readonly".split())
_RENAMING = frozenset("alias hash enable".split())


class Court:
    """One judgement."""

    def __init__(self, places: Places, rules: Rules, *, sandboxed: bool) -> None:
        self._places = places
        self._rules = rules
        self._sandboxed = sandboxed
        self._verdict = Verdict()
        self._files = Files(places, self._verdict, sandboxed=sandboxed)
        self._staged = Staged(places)
        self._code = Code(places, self._staged, self._verdict, self._run_text, self._names_worst)
        self._calls = 0
        self._layers = 0
        self._searches = 0
        self._seen: set[tuple[Simple, int, bool]] = set()
        self._read_before: list[Simple] = []
        self._searched = 0
        self._skimmed: set[str] = set()
        self._judged: set[str] = set()
        """Texts that need not be searched for the worst again."""
        self._unnamed: list[tuple[tuple[str, ...], Simple]] = []
        """The calls of programs that nobody knows, or only when they run."""

    def judge(self, command: str, folder: str) -> Judgement:
        scope = Scope(folder, self._places.user)
        if reason := misleading(command):
            self._verdict.ask(reason)
            self._skim(plain(command), scope.copy())
        self._script(command, scope)
        verdict = self._verdict
        if verdict.decision != "deny" and (verdict.dynamic or not verdict.understood):
            self._look_for_worst(command, Scope(folder, self._places.user))
        return verdict.sum_up()

    def _look_for_worst(self, command: str, scope: Scope) -> None:
        """In the whole as a text, in its texts once decoded, and behind names not known."""
        self._skim(command, scope)
        if (shorter := without_nothing(command)) != command:
            self._skim(shorter, scope)
        for text in islice(decoded((*held(self._read_before), command)), _MAX_SEARCHES):
            if text != command:
                self._skim(text, scope, whole=True)
        names = dict.fromkeys(name for _, name in islice(names_in(command), _MAX_SEARCHES))
        for name in names if self._unnamed else ():
            for argv, simple in self._unnamed[:_MAX_SEARCHES]:
                if reason := blocked((name, *argv[1:]), simple.folders, self._places):
                    self._verdict.deny(reason)

    # Scripts

    def _script(self, text: str, scope: Scope) -> None:
        """A whole command line, or a text that a shell inside it would run."""
        if self._layers > _MAX_LAYERS:
            self._verdict.not_understood("too complex: shells within shells")
            return
        whole = joined(text)
        if whole != text:
            self._verdict.ask("a line is continued in the middle of a word", Certainty.UNCERTAIN)
            self._read(whole, scope.copy())
        self._read(text, scope)

    def _read(self, text: str, scope: Scope) -> None:
        if self._verdict.only_worst:
            if text in self._judged or self._searched > _MAX_SEARCHED_TEXT:
                return
            self._searched += len(text)
        self._judged.add(text)
        self._layers += 1
        try:
            root, source = parse(clean(spelled_out(text)))
            reader = Reader(root, source, scope, depth=self._layers * 6)
        except TooComplex as limit:
            self._verdict.not_understood(f"too complex: {limit}")
        else:
            self._weigh(reader)
        finally:
            self._layers -= 1

    def _skim(self, text: str, scope: Scope, *, whole: bool = False) -> None:
        """What cannot be read in full is searched for the worst: nothing must hide it."""
        with self._verdict.searching():
            pieces = [text] if whole else []
            for piece in islice(chain(pieces, suspects(text)), _MAX_PIECES):
                self._read(piece, scope.copy())
        self._skim_texts(text, scope)

    def _weigh(self, reader: Reader) -> None:
        self._verdict.dynamic = self._verdict.dynamic or bool(reader.doubts)
        for reason in reader.doubts:
            self._verdict.ask(reason, Certainty.UNCERTAIN)
        self._verdict.understood = self._verdict.understood and reader.whole
        for reason in reader.bombs:
            self._verdict.deny(reason)
        for simple in reader.commands:
            self._simple(simple)
        for text, folder in reader.hidden:
            self._script(text, Scope(folder, self._places.user))

    # Simple commands

    def _simple(self, simple: Simple) -> None:
        verdict = self._verdict
        key = (simple, len(self._places.tainted) + len(self._staged), verdict.quiet)
        known = len(self._seen)
        self._seen.add(key)
        if len(self._seen) == known:
            return
        reads_lines = simple.argv[:1] in (("read",), ("mapfile",), ("readarray",))
        for name, value in simple.assigned:
            if not (reads_lines and name == "IFS"):
                self._setting(name, value, inherited=bool(simple.argv))
        for word in simple.writes:
            self._files.written(word, simple)
        for word in simple.reads:
            self._files.opened(word, simple.folders)
        self._staged.note(simple)
        if not verdict.quiet and len(self._read_before) < _MAX_HELD:
            self._read_before.append(simple)
        if not simple.argv:
            return
        if not verdict.quiet:
            verdict.commands.append(tuple(map(written, simple.argv)))
        self._argv(simple.argv, simple)
        if simple.likely and verdict.guessing:
            with verdict.searching():
                self._argv(simple.likely, simple)

    def _setting(self, name: str, value: str, *, inherited: bool) -> None:
        verdict = self._verdict
        if (inherited or name == "PATH") and name not in _HARMLESS:
            verdict.read_only = False
            if not self._sandboxed:
                reason = f"{name} may change what programs do, and there is no sandbox"
                verdict.ask(reason, _certainty_of(name))
        if reason := risky_setting(name, value):
            verdict.ask(reason, _certainty_of(name.partition("[")[0]))
            verdict.dynamic = True
        if self._files.own(value):
            verdict.deny(f"{name} {OWN}")

    def _argv(self, argv: tuple[str, ...], simple: Simple) -> None:
        if not argv:
            return
        self._layers += 1
        try:
            self._calls += 1
            if self._layers > _MAX_LAYERS * 3 or self._calls > _MAX_CALLS:
                self._verdict.not_understood("too complex: programs within programs")
            else:
                self._one(argv, simple)
        finally:
            self._layers -= 1

    def _one(self, argv: tuple[str, ...], simple: Simple) -> None:
        for word in argv[1:]:
            if "/" in word or "=" in word or word[:1] == ".":
                self._files.named(word, argv[0], simple.folders)
        if vague(argv[0]):
            reason = "the name of a program is only known when it runs"
            self._verdict.ask(reason, Certainty.UNCERTAIN)
            self._verdict.dynamic = True
            self._search(argv, simple)
            self._disguised(argv, simple)
            self._unnamed.append((argv, simple))
            return
        if reason := blocked(argv, simple.folders, self._places):
            self._verdict.deny(reason)
        inner = unwrap(argv, simple.feed)
        if inner is not None:
            self._inner(inner, simple)
            if inner.ask:
                self._search(argv, simple)
            if inner.pure:
                return
        if simple.function and argv == simple.argv:
            return
        self._program(argv, simple)

    def _inner(self, inner: Inner, simple: Simple) -> None:
        verdict = self._verdict
        if inner.ask:
            verdict.ask(inner.ask, inner.certainty)
            verdict.dynamic = verdict.dynamic or not inner.commands
        for name, value in inner.assigned:
            self._setting(name, value, inherited=True)
        for command in inner.commands:
            self._argv(command, simple)
        maybe = inner.passed_on
        if maybe and not self._is_there(maybe[0], simple):
            self._argv(maybe, simple)
        for command in (maybe, *inner.likely):
            with verdict.searching():
                self._argv(command, simple)
        for script in inner.scripts:
            if vague(script):
                reason = "the text a shell would run is only known when it runs"
                verdict.ask(reason, Certainty.UNCERTAIN)
                verdict.dynamic = True
            folder = simple.folders[0]
            scope = Scope(folder or "/", self._places.user, inner.arguments)
            scope.feed = None if inner.fed else simple.feed
            self._script(literal(script).replace(UNKNOWN, "").replace("\x1e", ""), scope)

    def _is_there(self, word: str, simple: Simple) -> bool:
        """It is a file, or the name of a test, and so no command."""
        text = literal(word)
        if re.search(r"[/.:]", text):
            return self._places.zones(word, simple.folders, follow=False) <= {"inside", "top"}
        paths = self._places.paths(word, simple.folders)
        return text in _FOLDERS or any(p and self._places.exists(p) for p in paths)

    def _program(self, argv: tuple[str, ...], simple: Simple) -> None:
        verdict = self._verdict
        name = self._name(literal(argv[0]), simple)
        if not name:
            return
        if name == "hermes" and argv[1:2] not in (("--version",), ("--help",)):
            verdict.deny("the agent's own program is the operator's to run")
            return
        if name in _DECLARING:  # as in `command export A=b`, which is no assignment to the parser
            for word in argv[1:]:
                variable, equals, value = word.partition("=")
                if equals:
                    self._setting(variable, value, inherited=True)
        call = Call(name, argv[1:], simple, self._places, sandboxed=self._sandboxed)
        findings = list(objections(call))
        for finding in findings:
            verdict.add(finding)
        if findings:
            unread = simple.feed is not None and simple.feed.startswith("\x02")
            verdict.dynamic = verdict.dynamic or name in _RENAMING or unread
            self._search(argv, simple)
        self._code.called(call, simple)
        verdict.commits = verdict.commits or call.commits
        for path in call.downloads:
            self._files.downloaded(path)
        if call.alters and not self._sandboxed:
            verdict.ask(f"{name} changes files, and there is no sandbox")
        known = (name, *call.words) if call.words else _BARE.get(name, (name,))
        suspect = bool(findings) or call.alters
        if not permitted(known, self._rules, verdict, sandboxed=self._sandboxed, suspect=suspect):
            self._search(argv, simple)
            self._unnamed.append((argv, simple))
            if verdict.dynamic and not verdict.only_worst:
                self._disguised(argv, simple)

    def _name(self, word: str, simple: Simple) -> str:
        """The program's name; empty when it is a file, which is weighed here."""
        verdict = self._verdict
        if "=" in word:
            verdict.ask(f"{written(word)} is no name of a program")
            return ""
        if "/" not in word:
            if not word.isascii():
                verdict.ask(f"the name {word!r} is not plain ASCII")
                self._disguised((word, *simple.argv[1:]), simple)
                return ""
            return word
        if _SYSTEM_BIN.fullmatch(word):
            return word.rpartition("/")[2]
        if self._places.zones(word, simple.folders, follow=False) <= {"inside"}:
            if self._code.run(word, simple):
                self._disguised((word, *simple.argv[1:]), simple)
            self._files.ran(word, simple)
            verdict.read_only = False
            if not self._sandboxed:
                verdict.ask(f"{written(word)} changes things, and there is no sandbox")
            return word.rpartition("/")[2] if _ENVIRONMENTS.search(word) else ""
        reason = f"runs {written(word)}, a program outside the workspace"
        verdict.ask(reason, Certainty.UNCERTAIN)
        self._disguised((word, *simple.argv[1:]), simple)
        return ""

    # What is never allowed, in what cannot be read

    def _search(self, argv: tuple[str, ...], simple: Simple) -> None:
        """What runs texts, or is not known, may run what is never allowed: that is denied even
        where nobody is asked."""
        self._searches += 1
        verdict = self._verdict
        if self._searches > _MAX_SEARCHES or verdict.only_worst or not verdict.guessing:
            return
        words = tuple(map(literal, spoken(argv[:_MAX_SEARCHED])))
        fed = simple.feed if simple.feed and not simple.feed.startswith("\x02") else ""
        text = "\n".join((*words, fed))
        if self._places.names_own(text):
            self._verdict.deny(f"a text {OWN}")
        with self._verdict.searching():
            for inner in commands_in((argv[0], *spoken(argv))):
                self._argv(inner, simple)
        scope = Scope(simple.folders[0] or "/", self._places.user)
        self._skim_texts(text, scope)
        for word in decoded(word for word in words if len(word) > 7):
            self._skim_texts(word, scope)
            with self._verdict.searching():
                self._read(word, scope.copy())

    def _skim_texts(self, text: str, scope: Scope) -> None:
        if text in self._skimmed:
            return
        self._skimmed.add(text)
        if bomb_in(text):
            self._verdict.deny("a fork bomb")
        with self._verdict.searching():
            for piece in texts_in(text):
                self._read(piece, scope.copy())

    def _disguised(self, argv: tuple[str, ...], simple: Simple) -> None:
        """A program under an unknown name is denied what no program may do with these words."""
        for name in disguises(literal(argv[0])) if self._verdict.guessing else ():
            if reason := blocked((name, *argv[1:]), simple.folders, self._places):
                self._verdict.deny(reason)

    # Code that is run

    def _run_text(self, text: str, simple: Simple) -> None:
        """A text that a shell reads from a file, a pipe or a substitution."""
        self._script(text, Scope(simple.folders[0] or "/", self._places.user))

    def _names_worst(self, text: str, simple: Simple) -> bool:
        """Whether a text of another language holds a command that is never run."""
        court = Court(self._places, self._rules, sandboxed=self._sandboxed)
        court._skim_texts(text, Scope(simple.folders[0] or "/", self._places.user))
        return court._verdict.decision == "deny"


def _certainty_of(variable: str) -> Certainty:
    """Scripts set IFS all the time, to split what they read themselves."""
    return Certainty.UNCERTAIN if variable == "IFS" else Certainty.CERTAIN
