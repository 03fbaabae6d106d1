"""Judges a command line by its simple commands."""

import re
from functools import cache
from typing import NamedTuple

from hermes.core.untrusted_text import explain_misleading
from hermes.exec.command_policy import read_only, types, wrappers
from hermes.exec.command_policy.hard_denials import explain_denial, find_hard_program
from hermes.exec.command_policy.lost_work import explain_lost_work, writes_repository
from hermes.exec.command_policy.parser import CommandReader
from hermes.exec.command_policy.paths import PathZones, change_folder
from hermes.exec.command_policy.rules import CommandRules
from hermes.exec.command_policy.types import Argv, Judgement, SimpleCommand
from hermes.exec.command_policy.words import LISTS, REMEMBERED_PREFIXES, UNKNOWN, display_argv
from hermes.exec.sandbox.planted_files import list_hooks_and_remotes

_MAX_LAYERS, _MAX_COMMANDS, _MAX_PROGRAMS = 6, 600, 24
_MAX_REASONS, _MAX_REASON = 6, 200
_EFFECTS = LISTS.get_table("effects without a sandbox")
_WITH_SUBCOMMAND = LISTS.get_words("programs with subcommands")
_NOT_REMEMBERED = wrappers.SHELLS | wrappers.WRAPPERS | LISTS.get_words("not remembered")
"""Programs that run others, or whose words do not say what they do."""
_HOOKS = {name: set(hooks.split()) for name, hooks in LISTS.get_table("git hooks")}
_RUNS = re.compile(r"-c|-[xO].*|.*ext::.*|fd::.*")
_GIT_OPTIONS = LISTS.get_words("git options that run programs or write files")


class _Question(NamedTuple):
    """A reason to ask."""

    reason: str
    grant: Argv
    """The prefix whose rule would make it unnecessary."""
    unconfined: bool
    """Whether it holds without a sandbox only."""


class CommandAnalyzer:
    """Judges one command line."""

    def __init__(self, path_zones: PathZones, rules: CommandRules, *, sandboxed: bool) -> None:
        self._path_zones = path_zones
        self._rules = rules
        self._sandboxed = sandboxed
        self._commands: list[SimpleCommand] = []
        """All simple commands, also those that others run."""
        self._named: set[tuple[str, str | None]] = set()
        """The words that were checked, and the folders of their commands."""
        self._denials: list[str] = []
        self._questions: list[_Question] = []
        self._unreadable = ""
        self._read_repository = cache(list_hooks_and_remotes)

    def judge_command(self, command: str, folder: str) -> Judgement:
        self._split_text(command, folder, 0)
        misleading = explain_misleading(command)
        home = self._path_zones.user_home
        plain = None if misleading else read_only.read_plain_line(command, folder, home)
        for simple in self._commands:
            self._check_denials(simple)
            self._check_rules(simple)
            if reason := explain_lost_work(simple, self._path_zones):
                words = wrappers.simplify_command(simple.argv)
                exact = self._sandboxed and words[0] == "git" and len(words) > 2
                if not self._allows(words, 3):
                    self._ask(reason, words if exact else ())
        reads = not self._questions and self._reads_freely(plain)
        if self._sandboxed and self._unreadable and (name := find_hard_program(command)):
            self._ask(f"{self._unreadable}, and it may run {name}")
        elif not self._sandboxed and not reads:
            self._check_unconfined(plain, misleading)
        return self._build_judgement(self._find_acting(plain), reads=reads)

    def _build_judgement(self, acting: tuple[Argv, ...], *, reads: bool) -> Judgement:
        reasons = self._denials or [question.reason for question in self._questions]
        grants = [question.grant for question in self._questions]
        remembered = bool(grants) and all(grants) and not self._denials
        return Judgement(
            "deny" if self._denials else "ask" if reasons else "allow",
            tuple(dict.fromkeys(map(_shorten_reason, reasons)))[:_MAX_REASONS],
            tuple(_shorten_reason(q.reason) for q in self._questions if q.unconfined),
            tuple(display_argv(simple.argv) for simple in self._commands if simple.argv),
            reads and not reasons,
            tuple(dict.fromkeys(grants)) if remembered else (),
            not self._unreadable,
            any(writes_repository(simple.argv) for simple in self._commands),
            acting,
        )

    def _ask(self, reason: str, grant: Argv = (), *, unconfined: bool = False) -> None:
        reason = f"{reason}, and no sandbox confines it" if unconfined else reason
        grant = () if UNKNOWN in "".join(grant) else grant
        self._questions.append(_Question(reason, grant, unconfined))

    def _split_text(self, text: str, folder: str | None, layer: int) -> None:
        """Collect the simple commands of a text, and those that they run."""
        try:
            if layer > _MAX_LAYERS:
                raise types.TooComplexError("it has too many nested shells")
            reader = CommandReader(text, folder, self._path_zones.user_home)
        except types.TooComplexError as limit:
            self._unreadable = str(limit)
            return
        if reader.fork_bomb:
            self._denials.append("a fork bomb")
        if not reader.complete:
            self._unreadable = "its syntax is not understood"
        for simple in reader.commands:
            self._add_command(simple, layer)

    def _add_command(self, simple: SimpleCommand, layer: int) -> None:
        waiting, known = [simple], {simple.argv}
        while waiting:
            if len(self._commands) >= _MAX_COMMANDS or len(known) > _MAX_PROGRAMS:
                self._unreadable = "it has too many nested programs"
                return
            simple = waiting.pop()
            self._commands.append(simple)
            wrapped = wrappers.unwrap_command(simple.argv, simple.feed)
            folder = change_folder(("cd", wrapped.folder), simple.folder, "")
            fresh = [argv for argv in wrapped.commands if argv not in known]
            waiting += [SimpleCommand(argv, folder, feed=simple.feed) for argv in fresh]
            known.update(fresh)
            for script in wrapped.scripts:
                self._split_text(script, folder, layer + 1)

    def _check_denials(self, simple: SimpleCommand) -> None:
        zones, folder = self._path_zones, simple.folder
        reasons = [zones.explain_denied_write(word, folder) for word in simple.writes]
        argv = zones.expand_words(simple.argv)
        reasons.append(explain_denial(argv, folder, zones))
        named = {(word, folder) for word in (*argv, *simple.writes, *simple.reads)} - self._named
        self._named |= named
        if any(zones.touches_agent(*word) for word in named):
            reasons.append("it touches the agent's own files")
        if wrappers.program_name(simple.argv) == "hermes" and simple.argv[1:] != ("--version",):
            reasons.append("only the user may run hermes itself")
        self._denials += filter(None, reasons)

    def _check_rules(self, simple: SimpleCommand) -> None:
        rule = self._rules.find_rule(display_argv(wrappers.simplify_command(simple.argv)))
        if rule is None or rule.decision == "allow":
            return
        reason = rule.reason or f"your rule for {' '.join(map(str, rule.prefix))}"
        if rule.decision == "deny":
            self._denials.append(reason)
        else:
            self._ask(reason)

    def _allows(self, words: Argv, size: int = 1) -> bool:
        """Whether an allow rule covers at least this many words."""
        rule = self._rules.find_rule(display_argv(words))
        return rule is not None and rule.decision == "allow" and len(rule.prefix) >= size

    def _find_acting(self, plain: tuple[SimpleCommand, ...] | None) -> tuple[Argv, ...]:
        acting = [simple for simple in plain or () if not read_only.is_read_only(simple)]
        known = all(
            grant_prefix(wrappers.simplify_command(s.argv))
            and not (self._exceeds_rule(s) or s.writes or s.reads or UNKNOWN in "".join(s.argv))
            for s in acting
        )
        return tuple(wrappers.simplify_command(simple.argv) for simple in acting) if known else ()

    def _reads_freely(self, plain: tuple[SimpleCommand, ...] | None) -> bool:
        return bool(plain) and not any(
            not read_only.is_read_only(simple)
            or read_only.explain_private_read(simple, self._path_zones)
            for simple in plain or ()
        )

    def _check_unconfined(self, plain: tuple[SimpleCommand, ...] | None, misleading: str) -> None:
        if misleading:
            self._ask(misleading)
        if self._unreadable:
            self._ask(f"it cannot be checked: {self._unreadable}")
        for simple in plain or ():
            self._check_plain(simple)
        if plain is None:
            effects = filter(None, (_describe_effect(simple.argv) for simple in self._commands))
            unknown = any(UNKNOWN in "".join(simple.argv) for simple in self._commands)
            why = (
                "parts of it are known only at run time"
                if unknown
                else "it is not known to only read"
            )
            self._ask(next(effects, why), unconfined=True)

    def _check_plain(self, simple: SimpleCommand) -> None:
        if simple.writes:
            self._ask(f"it writes {simple.writes[0]}", unconfined=True)
        if read_only.is_read_only(simple):
            if reason := read_only.explain_private_read(simple, self._path_zones):
                self._ask(reason)
            return
        words = wrappers.simplify_command(simple.argv)
        harmless = words[0] in wrappers.HARMLESS_WRAPPERS
        wrapped = wrappers.unwrap_command(words).commands if harmless else ()
        if wrapped and not self._allows(words):
            for argv in wrapped:
                self._check_plain(SimpleCommand(argv, simple.folder))
        elif not self._allows(words):
            shown = " ".join(display_argv(words[: 2 if words[0] in _WITH_SUBCOMMAND else 1]))
            reason = _describe_effect(words) or f"{shown} may change files"
            self._ask(reason, grant_prefix(words), unconfined=True)
        elif reason := self._exceeds_rule(simple):
            self._ask(reason)

    def _exceeds_rule(self, simple: SimpleCommand) -> str:
        """Why a rule about this program does not cover this use of it; empty when it does."""
        words = wrappers.simplify_command(simple.argv)
        if words[0] != "git" or len(words) < 2:
            return ""
        runs = (_RUNS.fullmatch(w) or wrappers.abbreviates_option(w, *_GIT_OPTIONS) for w in words)
        if any(runs):
            return "git is given a program to run or a file to write"
        options = simple.argv[1 : 1 + len(simple.argv) - len(words)]
        if {*options} - {"--no-pager"} or not self._path_zones.is_workspace(simple.folder):
            return "git uses another repository, folder or setting than the project's own"
        found = self._read_repository(simple.folder or "", self._path_zones.user_home)
        hooks, remotes = found or (set(), set(words))  # git does nothing without a repository
        if hooks := hooks & _HOOKS.get(words[1], _HOOKS["*"]):
            return f"git runs the hook {min(hooks)}, which may run files that have changed"
        if words[1] in ("push", "pull", "fetch"):
            named = {*[word for word in words[2:] if not word.startswith("-")][:1]}
            by_address = any(re.match(r".*:/|.*@|[./~]", word) for word in words)
            if by_address or not named <= remotes:
                return "git exchanges commits with a repository that is no remote of the project"
        return ""


def _shorten_reason(reason: str) -> str:
    return reason if len(reason) <= _MAX_REASON else f"{reason[: _MAX_REASON - 1]}…"


def _describe_effect(argv: Argv) -> str:
    words = wrappers.simplify_command(argv)
    if read_only.is_reader(words[:1]) and UNKNOWN in "".join(words):
        return f"what {words[0]} reads is known only at run time"
    text = " ".join(words[:20])
    return next((effect for effect, *rest in _EFFECTS if re.match("|".join(rest), text)), "")


def grant_prefix(argv: Argv) -> Argv:
    """The words of a command that an answer of "session" or "always" allows: a known program and
    subcommand, else all of them; none where they do not say what happens."""
    if re.sub(r"(?<=.)-?[\d.]+$", "", argv[0]) in _NOT_REMEMBERED or "/" in argv[0]:
        return ()
    return next((argv[:size] for size in (1, 2) if argv[:size] in REMEMBERED_PREFIXES), argv)
