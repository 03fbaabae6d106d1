"""Weighs every simple command of a command line and sums it up in one judgement."""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path

from hermes.exec.gate.blocks import blocked, blocked_write
from hermes.exec.gate.calls import Call
from hermes.exec.gate.embedded import commands_in, disguises, texts_in
from hermes.exec.gate.grammar import parse
from hermes.exec.gate.options import objections
from hermes.exec.gate.parts import Simple
from hermes.exec.gate.places import Places
from hermes.exec.gate.programs import NETWORK, REMEMBERED, SENSITIVE, VERSIONED
from hermes.exec.gate.reading import Reader
from hermes.exec.gate.rules import Rules, builtin
from hermes.exec.gate.scan import joined, misleading, plain, spelled_out, suspects
from hermes.exec.gate.scope import Scope
from hermes.exec.gate.settings import risky_setting
from hermes.exec.gate.staged import Staged
from hermes.exec.gate.values import Decision, Finding, Judgement, TooComplex
from hermes.exec.gate.wording import remembered, short, where
from hermes.exec.gate.words import UNKNOWN, clean, literal, vague, written
from hermes.exec.gate.wrappers import SHELLS, STDIN, Inner, unwrap

_MAX_LAYERS = 5
_MAX_CALLS = 2000
_MAX_SEARCHES = 12
_MAX_SEARCHED = 200
_MAX_PIECES = 60
_MAX_REASONS = 12
_SYSTEM_BIN = re.compile(r"(?:/usr)?(?:/local)?/s?bin/[^/]+|/opt/homebrew/bin/[^/]+")
_VERSION = frozenset("--version -V -version --help".split())
_BARE = {"yarn": ("yarn", "install")}
_HARMLESS = frozenset("LC_ALL LANG LC_CTYPE TZ NO_COLOR FORCE_COLOR TERM COLUMNS CI".split())
_DECLARING = frozenset("export declare typeset local readonly".split())
_OWN = "touches the agent's own files"


class Court:
    """One judgement: findings gather here, and every one can only make it stricter."""

    def __init__(self, places: Places, rules: Rules, *, sandboxed: bool) -> None:
        self._places = places
        self._rules = rules
        self._sandboxed = sandboxed
        self._findings: list[Finding] = []
        self._commands: list[tuple[str, ...]] = []
        self._downloads: list[Path] = []
        self._read_only = True
        self._understood = True
        self._dynamic = False
        """Some of it is only known when it runs: it is searched for the worst as a text, too."""
        self._commits = False
        self._calls = 0
        self._layers = 0
        self._only_denials = 0
        self._searches = 0
        self._staged = Staged(places)
        self._seen: set[tuple[Simple, int, bool]] = set()

    def judge(self, command: str, folder: str) -> Judgement:
        if reason := misleading(command):
            self._ask(reason)
            self._skim(plain(command), Scope(folder, self._places.user))
        self._script(command, Scope(folder, self._places.user))
        if self._dynamic or not self._understood:
            self._skim(command, Scope(folder, self._places.user))
        return self._sum_up()

    def _sum_up(self) -> Judgement:
        decision: Decision = "allow"
        for level in ("ask", "deny"):
            if any(finding.decision == level for finding in self._findings):
                decision = level
        telling = [f for f in self._findings if f.decision == decision]
        reasons = tuple(dict.fromkeys(short(finding.reason) for finding in telling))
        grants: tuple[tuple[str, ...], ...] = ()
        if decision == "ask" and all(finding.grant for finding in telling):
            grants = tuple(dict.fromkeys(finding.grant for finding in telling))
        return Judgement(
            decision,
            reasons[:_MAX_REASONS],
            tuple(self._commands),
            self._read_only and decision == "allow",
            grants,
            self._understood,
            tuple(dict.fromkeys(self._downloads)),
            self._commits,
        )

    def _ask(self, reason: str, grant: tuple[str, ...] = ()) -> None:
        self._read_only = False
        if not self._only_denials:
            self._findings.append(Finding("ask", reason, grant))

    def _not_understood(self, reason: str) -> None:
        self._understood = False
        self._ask(reason)

    def _deny(self, reason: str) -> None:
        self._findings.append(Finding("deny", reason))

    # Scripts

    def _script(self, text: str, scope: Scope) -> None:
        """A whole command line, or a text that a shell inside it would run."""
        if self._layers > _MAX_LAYERS:
            self._not_understood("too complex: shells within shells")
            return
        whole = joined(text)
        if whole != text:
            self._ask("a line is continued in the middle of a word")
            self._read(whole, scope.copy())
        self._read(text, scope)

    def _read(self, text: str, scope: Scope) -> None:
        self._layers += 1
        try:
            root, source = parse(clean(spelled_out(text)))
            reader = Reader(root, source, scope, depth=self._layers * 6)
        except TooComplex as limit:
            self._not_understood(f"too complex: {limit}")
        else:
            self._weigh(reader)
        finally:
            self._layers -= 1

    def _skim(self, text: str, scope: Scope) -> None:
        """What cannot be read in full is searched for the worst: nothing must hide it."""
        understood = self._understood
        self._only_denials += 1
        pieces = dict.fromkeys((*suspects(text), *texts_in(text)))
        for piece in islice(pieces, _MAX_PIECES):
            self._read(piece, scope.copy())
        self._only_denials -= 1
        self._understood = understood

    def _weigh(self, reader: Reader) -> None:
        self._dynamic = self._dynamic or bool(reader.doubts)
        for reason in reader.doubts:
            self._ask(reason)
        self._understood = self._understood and reader.whole
        for reason in reader.bombs:
            self._deny(reason)
        for simple in reader.commands:
            self._simple(simple)
        for text, folder in reader.hidden:
            self._script(text, Scope(folder, self._places.user))

    # Simple commands

    def _simple(self, simple: Simple) -> None:
        key = (simple, len(self._places.tainted) + len(self._staged), self._only_denials > 0)
        if key in self._seen:
            return
        self._seen.add(key)
        reads_lines = simple.argv[:1] in (("read",), ("mapfile",), ("readarray",))
        for name, value in simple.assigned:
            if not (reads_lines and name == "IFS"):
                self._setting(name, value, inherited=bool(simple.argv))
        for word in simple.writes:
            self._write(word, simple)
        for word in simple.reads:
            self._open(word, simple.folders)
        self._staged.note(simple)
        if not simple.argv:
            return
        if not self._only_denials:
            self._commands.append(tuple(map(written, simple.argv)))
        self._argv(simple.argv, simple)
        if simple.likely:
            self._only_denials += 1
            self._argv(simple.likely, simple)
            self._only_denials -= 1

    def _setting(self, name: str, value: str, *, inherited: bool) -> None:
        if (inherited or name == "PATH") and name not in _HARMLESS:
            self._read_only = False
            if not self._sandboxed:
                self._ask(f"{name} may change what programs do, and there is no sandbox")
        if reason := risky_setting(name, value):
            self._ask(reason)
            self._dynamic = True
        if self._names_own(value):
            self._deny(f"{name} {_OWN}")

    def _argv(self, argv: tuple[str, ...], simple: Simple) -> None:
        if not argv:
            return
        self._layers += 1
        try:
            self._calls += 1
            if self._layers > _MAX_LAYERS * 3 or self._calls > _MAX_CALLS:
                self._not_understood("too complex: programs within programs")
            else:
                self._one(argv, simple)
        finally:
            self._layers -= 1

    def _one(self, argv: tuple[str, ...], simple: Simple) -> None:
        for word in argv[1:]:
            self._look_at(word, argv[0], simple.folders)
        if vague(argv[0]):
            self._ask("the name of a program is only known when it runs")
            self._dynamic = True
            self._search(argv, simple)
            self._disguised(argv, simple)
            return
        if reason := blocked(argv, simple.folders, self._places):
            self._deny(reason)
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
        if inner.ask:
            self._ask(inner.ask)
            self._dynamic = self._dynamic or not inner.commands
        for name, value in inner.assigned:
            self._setting(name, value, inherited=True)
        for command in inner.commands:
            self._argv(command, simple)
        for command in inner.likely:
            self._only_denials += 1
            self._argv(command, simple)
            self._only_denials -= 1
        for script in inner.scripts:
            if vague(script):
                self._ask("the text a shell would run is only known when it runs")
                self._dynamic = True
            folder = simple.folders[0]
            scope = Scope(folder or "/", self._places.user, inner.arguments)
            scope.feed = None if inner.fed else simple.feed
            self._script(literal(script).replace(UNKNOWN, "").replace("\x1e", ""), scope)

    def _program(self, argv: tuple[str, ...], simple: Simple) -> None:
        words = tuple(literal(word) for word in argv)
        name = self._name(words[0], simple)
        if not name:
            return
        if name == "hermes" and words[1:2] not in (("--version",), ("--help",)):
            self._deny("the agent's own program is the operator's to run")
            return
        if name in _DECLARING:  # as in `command export A=b`, which is no assignment to the parser
            for word in argv[1:]:
                variable, equals, value = word.partition("=")
                if equals:
                    self._setting(variable, value, inherited=True)
        call = Call(name, argv[1:], simple, self._places, sandboxed=self._sandboxed)
        findings = list(objections(call))
        for reason in findings:
            self._ask(reason)
        if findings:
            self._search(argv, simple)
        self._runs_here(call, simple)
        self._commits = self._commits or call.commits
        for path in call.downloads:
            self._download(path)
        if call.alters and not self._sandboxed:
            self._ask(f"{name} changes files, and there is no sandbox")
        known = (name, *call.words) if call.words else _BARE.get(name, (name,))
        if not self._by_rules(known, bool(findings) or call.alters):
            self._search(argv, simple)

    def _runs_here(self, call: Call, simple: Simple) -> None:
        """Texts of this very command that the call runs."""
        if call.name in ("make", "gmake"):
            self._makefile(call, simple)
        if call.name not in SHELLS and call.name not in ("source", "."):
            return
        for text in simple.offered:
            self._run_text(text, simple)
        for word in call.rest("-o +o -O +O")[:1]:
            self._run_staged(word, simple)
            if literal(word) in STDIN and simple.feed and not simple.feed.startswith("\x02"):
                self._run_text(simple.feed, simple)

    def _makefile(self, call: Call, simple: Simple) -> None:
        """The recipes of a makefile that this very command writes."""
        given = call.value("-f", "--file")
        for word in [given] if given else ["Makefile", "makefile", "GNUmakefile"]:
            _, text = self._staged.find(word, simple)
            recipes = re.findall(
                r"^(?:\t|[^\s#=]+\s*:[^=;\n]*;)[-@+\s]*(.*)", text or "", re.MULTILINE
            )
            if recipes:
                self._run_text("\n".join(recipes).replace("$$", "$"), simple)

    def _name(self, word: str, simple: Simple) -> str:
        """The program's name; empty when it is a file, which is weighed here."""
        if "=" in word:
            self._ask(f"{written(word)} is no name of a program")
            return ""
        if "/" not in word:
            if not word.isascii():
                self._ask(f"the name {word!r} is not plain ASCII")
                return ""
            return word
        if _SYSTEM_BIN.fullmatch(word):
            return word.rpartition("/")[2]
        zones = self._places.zones(word, simple.folders, follow=False)
        name = word.rpartition("/")[2]
        if zones <= {"inside"}:
            self._run_file(word, simple)
            self._read_only = False
            if not self._sandboxed:
                self._ask(f"{written(word)} changes things, and there is no sandbox")
            return (
                name if re.search(r"(?:venv|env|\.tox|\.nox)[^/]*/bin/|node_modules/", word) else ""
            )
        self._ask(f"runs {written(word)}, a program outside the workspace")
        self._disguised((word, *simple.argv[1:]), simple)
        return ""

    def _run_file(self, word: str, simple: Simple) -> None:
        self._run_staged(word, simple)
        for path in self._places.paths(word, simple.folders):
            if path is not None and self._places.is_tainted(path):
                self._ask(f"runs {written(word)}, which came from the network")

    def _by_rules(self, argv: tuple[str, ...], suspect: bool) -> bool:
        """Whether some rule knows it."""
        reading, working = builtin()
        shown = tuple(map(written, argv)) if self._rules.own else argv
        own = self._rules.decide(shown) if self._rules.own else None
        quiet = any(rule.goes_on(argv) for rule in reading.get(argv[0], ()))
        busy = any(rule.goes_on(argv) for rule in working.get(argv[0], ()))
        asks_version = len(argv) == 2 and argv[1] in _VERSION
        quiet = quiet or (asks_version and argv[0] in VERSIONED)
        if not quiet or suspect:
            self._read_only = False
        if own is not None and own.decision != "allow":
            reason = own.reason or f"a rule says so about {' '.join(map(str, own.prefix))}"
            self._findings.append(Finding(own.decision, reason))
        elif own is None and not quiet:
            self._unknown(tuple(map(written, argv)), busy or asks_version)
        return own is not None or quiet or busy or asks_version

    def _unknown(self, argv: tuple[str, ...], busy: bool) -> None:
        name = argv[0]
        if busy and self._sandboxed:
            return
        if busy:
            reason = f"{name} changes things, and there is no sandbox"
        elif name in NETWORK:
            reason = f"{name} reaches other machines"
        elif name in SENSITIVE:
            reason = f"{name} reaches beyond the workspace"
        else:
            reason = f"no rule knows {' '.join(remembered(argv) or argv[:1])}"
        prefix = remembered(argv)
        looks = bool(REMEMBERED & set(prefix))
        if name in NETWORK or name in SHELLS or (name in SENSITIVE and not looks):
            prefix = ()
        self._ask(reason, prefix)

    def _search(self, argv: tuple[str, ...], simple: Simple) -> None:
        """What runs texts, or is not known, may run what is never allowed: that is denied even
        where nobody is asked."""
        self._searches += 1
        if self._searches > _MAX_SEARCHES or self._only_denials:
            return
        understood = self._understood
        self._only_denials += 1
        for inner in commands_in(argv):
            self._argv(inner, simple)
        fed = simple.feed if simple.feed and not simple.feed.startswith("\x02") else ""
        text = "\n".join((*map(literal, argv[1:_MAX_SEARCHED]), fed))
        if self._places.names_own(text):
            self._deny(f"a text {_OWN}")
        for piece in texts_in(text):
            self._read(piece, Scope(simple.folders[0] or "/", self._places.user))
        self._only_denials -= 1
        self._understood = understood

    def _disguised(self, argv: tuple[str, ...], simple: Simple) -> None:
        """A program under an unknown name is denied what no program may do with these words."""
        for name in disguises(literal(argv[0])):
            if reason := blocked((name, *argv[1:]), simple.folders, self._places):
                self._deny(reason)

    def _run_text(self, text: str, simple: Simple) -> None:
        """A text that a shell reads from a file, a pipe or a substitution."""
        self._script(text, Scope(simple.folders[0] or "/", self._places.user))

    def _run_staged(self, word: str, simple: Simple) -> None:
        written_here, text = self._staged.find(word, simple)
        if not written_here:
            return
        if text is None:
            self._ask(f"runs {written(word)}, which this command writes: its text is not known")
            self._disguised((word, *simple.argv[1:]), simple)
        elif not re.match(r"\s*#!(?!.*\b(?:ba|da|z|k)?sh\b)", text):
            self._run_text(text, simple)

    # Files

    def _write(self, word: str, simple: Simple) -> None:
        zones = self._places.zones(word, simple.folders, follow=True)
        if zones != {"plain"}:
            self._read_only = False
        if reason := blocked_write(word, simple.folders, self._places):
            self._deny(reason)
        if "own" in zones:
            self._deny(f"writes to {written(word)}: {_OWN}")
        if bad := zones - {"inside", "plain", "top", "device", "own"}:
            self._ask(f"writes to {written(word)}{where(bad)}")
        elif not self._sandboxed and zones != {"plain"}:
            self._ask("writes a file, and there is no sandbox")
        wrapped = simple.argv and unwrap(simple.argv, None) is not None
        programs = (*simple.sources, *(simple.argv if wrapped else simple.argv[:1]))
        if {word.rpartition("/")[2] for word in programs} & NETWORK:
            for path in self._places.paths(word, simple.folders):
                self._download(path)

    def _open(self, word: str, folders: tuple[str | None, ...]) -> None:
        zones = self._places.zones(word, folders, follow=True)
        if "own" in zones:
            self._deny(f"reads {written(word)}: {_OWN}")
        if zones & {"secret", "network", "device"}:
            self._ask(f"reads {written(word)}{where(zones & {'secret', 'network', 'device'})}")

    def _look_at(self, word: str, program: str, folders: tuple[str | None, ...]) -> None:
        """Any argument may be a path, also behind `--option=` or `@`."""
        if "/" not in word and not word.startswith(".") and "=" not in word:
            return
        text = word
        if text.startswith("-") or "=" in text:
            text = text.rpartition("=")[2] or text
        text = text.lstrip("@<>")
        if " " in literal(text) or "\n" in text or program in ("echo", "printf"):
            return
        zones = self._places.zones(text, folders, follow=False)
        if "own" in zones:
            self._deny(f"{written(word)}: {_OWN}")
        if zones & {"secret", "network"}:
            self._ask(f"{written(word)}{where(zones & {'secret', 'network'})}")

    def _names_own(self, value: str) -> bool:
        return value.startswith("/") and "own" in self._places.zones(value, (None,), follow=False)

    def _download(self, path: str | None) -> None:
        if path is not None and not self._only_denials and not path.startswith("/dev/"):
            self._downloads.append(Path(path))
            self._places.tainted |= {path}
