"""Judges every simple command of a command line, and the commands nested inside it."""

from __future__ import annotations

import re
from itertools import chain, islice

from hermes.exec.command_policy.embedded_commands import (
    candidate_programs,
    collect_texts,
    contains_fork_bomb,
    decode_suspects,
    drop_empty_expansions,
    drop_messages,
    find_hard_commands,
    find_quoted_commands,
    find_suspects,
)
from hermes.exec.command_policy.file_checks import (
    AGENT_FILES,
    FileChecks,
    RunCodeChecks,
    WrittenFiles,
)
from hermes.exec.command_policy.findings import Findings
from hermes.exec.command_policy.hard_denials import explain_denial, locate_hard_programs
from hermes.exec.command_policy.paths import PathZones
from hermes.exec.command_policy.programs.call import ProgramCall
from hermes.exec.command_policy.programs.environment import explain_risky_variable
from hermes.exec.command_policy.programs.options import check_program
from hermes.exec.command_policy.programs.wrappers import WrappedCommands, unwrap_command
from hermes.exec.command_policy.rule_lookup import apply_rules
from hermes.exec.command_policy.rules import CommandRules
from hermes.exec.command_policy.shell.commands import CommandReader
from hermes.exec.command_policy.shell.grammar import parse_command
from hermes.exec.command_policy.shell.prescan import (
    avoid_parser_bugs,
    explain_misleading,
    join_lines,
    normalize_look,
)
from hermes.exec.command_policy.shell.scope import ShellScope
from hermes.exec.command_policy.shell.simple_command import SimpleCommand
from hermes.exec.command_policy.shell.words import (
    UNKNOWN,
    display_word,
    is_vague,
    literal_text,
    remove_marks,
)
from hermes.exec.command_policy.types import Certainty, Judgement, TooComplexError

_MAX_LAYERS = 5
_MAX_CALLS = 2000
_MAX_SEARCHES = 12
_MAX_SEARCHED = 200
_MAX_PIECES = 60
_MAX_SEARCHED_TEXT = 8000
_MAX_COMMANDS_READ = 100
_SYSTEM_BIN = re.compile(r"(?:/usr)?(?:/local)?/s?bin/[^/]+|/opt/homebrew/bin/[^/]+")
_ENVIRONMENTS = re.compile(r"(?:venv|env|\.tox|\.nox)[^/]*/bin/|node_modules/")
_WITHOUT_ARGUMENTS = {"yarn": ("yarn", "install")}
_HARMLESS_VARIABLES = frozenset(
    "LC_ALL LANG LC_CTYPE TZ NO_COLOR FORCE_COLOR TERM COLUMNS CI".split()
)
_TEST_FOLDERS = frozenset("tests test src docs".split())
_DECLARING = frozenset("export declare typeset local readonly".split())
_RENAMING = frozenset("alias hash enable".split())


class CommandAnalyzer:
    """Judges one command line."""

    def __init__(self, path_zones: PathZones, rules: CommandRules, *, sandboxed: bool) -> None:
        self._path_zones = path_zones
        self._rules = rules
        self._sandboxed = sandboxed
        self._findings = Findings()
        self._files = FileChecks(path_zones, self._findings, sandboxed=sandboxed)
        self._written_files = WrittenFiles(path_zones)
        self._run_code = RunCodeChecks(
            path_zones,
            self._written_files,
            self._findings,
            self._judge_shell_text,
            self._contains_denied,
        )
        self._calls = 0
        self._layers = 0
        self._searches = 0
        self._seen: set[tuple[SimpleCommand, int, bool]] = set()
        self._commands_read: list[SimpleCommand] = []
        self._searched_bytes = 0
        self._searched_texts: set[str] = set()
        self._judged_texts: set[str] = set()
        """Texts that have already been judged."""
        self._unknown_calls: list[tuple[tuple[str, ...], SimpleCommand]] = []
        """Calls of programs that are unknown, or known only at run time."""

    def judge_command(self, command: str, folder: str) -> Judgement:
        scope = ShellScope(folder, self._path_zones.user_home)
        if reason := explain_misleading(command):
            self._findings.ask(reason)
            self._search_denials(normalize_look(command), scope.copy())
        self._judge_script(command, scope)
        findings = self._findings
        if findings.decision != "deny" and (findings.dynamic or not findings.understood):
            self._search_unreadable(command, ShellScope(folder, self._path_zones.user_home))
        return findings.build_judgement()

    def _search_unreadable(self, command: str, scope: ShellScope) -> None:
        """Search for denials in the whole text, in decoded texts, and behind unknown names."""
        self._search_denials(command, scope)
        if (shorter := drop_empty_expansions(command)) != command:
            self._search_denials(shorter, scope)
        for text in islice(
            decode_suspects((*collect_texts(self._commands_read), command)), _MAX_SEARCHES
        ):
            if text != command:
                self._search_denials(text, scope, whole=True)
        names = dict.fromkeys(
            name for _, name in islice(locate_hard_programs(command), _MAX_SEARCHES)
        )
        for name in names if self._unknown_calls else ():
            for argv, simple in self._unknown_calls[:_MAX_SEARCHES]:
                if reason := explain_denial((name, *argv[1:]), simple.folders, self._path_zones):
                    self._findings.deny(reason)

    # Scripts

    def _judge_script(self, text: str, scope: ShellScope) -> None:
        """Judge a command line, or a text that a shell inside it would run."""
        if self._layers > _MAX_LAYERS:
            self._findings.mark_not_understood("too complex: too many nested shells")
            return
        whole = join_lines(text)
        if whole != text:
            self._findings.ask("a line break splits a word", Certainty.UNCERTAIN)
            self._parse_and_judge(whole, scope.copy())
        self._parse_and_judge(text, scope)

    def _parse_and_judge(self, text: str, scope: ShellScope) -> None:
        if self._findings.denials_only:
            if text in self._judged_texts or self._searched_bytes > _MAX_SEARCHED_TEXT:
                return
            self._searched_bytes += len(text)
        self._judged_texts.add(text)
        self._layers += 1
        try:
            root, source = parse_command(remove_marks(avoid_parser_bugs(text)))
            reader = CommandReader(root, source, scope, depth=self._layers * 6)
        except TooComplexError as limit:
            self._findings.mark_not_understood(f"too complex: {limit}")
        else:
            self._judge_commands(reader)
        finally:
            self._layers -= 1

    def _search_denials(self, text: str, scope: ShellScope, *, whole: bool = False) -> None:
        """Search for denials in a text that cannot be fully understood."""
        with self._findings.denials_only_scope():
            pieces = [text] if whole else []
            for piece in islice(chain(pieces, find_suspects(text)), _MAX_PIECES):
                self._parse_and_judge(piece, scope.copy())
        self._search_text_denials(text, scope)

    def _judge_commands(self, reader: CommandReader) -> None:
        self._findings.dynamic = self._findings.dynamic or bool(reader.doubts)
        for reason in reader.doubts:
            self._findings.ask(reason, Certainty.UNCERTAIN)
        self._findings.understood = self._findings.understood and reader.complete
        for reason in reader.bombs:
            self._findings.deny(reason)
        for simple in reader.commands:
            self._judge_simple(simple)
        for text, folder in reader.hidden:
            self._judge_script(text, ShellScope(folder, self._path_zones.user_home))

    # Simple commands

    def _judge_simple(self, simple: SimpleCommand) -> None:
        findings = self._findings
        key = (simple, len(self._path_zones.tainted) + len(self._written_files), findings.is_nested)
        known = len(self._seen)
        self._seen.add(key)
        if len(self._seen) == known:
            return
        reads_lines = simple.argv[:1] in (("read",), ("mapfile",), ("readarray",))
        for name, value in simple.assigned:
            if not (reads_lines and name == "IFS"):
                self._judge_variable(name, value, inherited=bool(simple.argv))
        for word in simple.writes:
            self._files.check_write(word, simple)
        for word in simple.reads:
            self._files.check_read(word, simple.folders)
        self._written_files.record_command(simple)
        if not findings.is_nested and len(self._commands_read) < _MAX_COMMANDS_READ:
            self._commands_read.append(simple)
        if not simple.argv:
            return
        if not findings.is_nested:
            findings.commands.append(tuple(map(display_word, simple.argv)))
        self._judge_argv(simple.argv, simple)
        if simple.likely and findings.counts_uncertain:
            with findings.denials_only_scope():
                self._judge_argv(simple.likely, simple)

    def _judge_variable(self, name: str, value: str, *, inherited: bool) -> None:
        findings = self._findings
        if (inherited or name == "PATH") and name not in _HARMLESS_VARIABLES:
            findings.read_only = False
            if not self._sandboxed:
                reason = f"{name} may change what programs do (no sandbox)"
                findings.ask(reason, _certainty_of(name))
        if reason := explain_risky_variable(name, value):
            findings.ask(reason, _certainty_of(name.partition("[")[0]))
            findings.dynamic = True
        if self._files.is_agent_path(value):
            findings.deny(f"{name} {AGENT_FILES}")

    def _judge_argv(self, argv: tuple[str, ...], simple: SimpleCommand) -> None:
        if not argv:
            return
        self._layers += 1
        try:
            self._calls += 1
            if self._layers > _MAX_LAYERS * 3 or self._calls > _MAX_CALLS:
                self._findings.mark_not_understood("too complex: too many nested programs")
            else:
                self._judge_call(argv, simple)
        finally:
            self._layers -= 1

    def _judge_call(self, argv: tuple[str, ...], simple: SimpleCommand) -> None:
        for word in argv[1:]:
            if "/" in word or "=" in word or word[:1] == ".":
                self._files.check_argument(word, argv[0], simple.folders)
        if is_vague(argv[0]):
            reason = "which program runs is known only at run time"
            self._findings.ask(reason, Certainty.UNCERTAIN)
            self._findings.dynamic = True
            self._search_arguments(argv, simple)
            self._deny_disguised(argv, simple)
            self._unknown_calls.append((argv, simple))
            return
        if reason := explain_denial(argv, simple.folders, self._path_zones):
            self._findings.deny(reason)
        inner = unwrap_command(argv, simple.feed)
        if inner is not None:
            self._judge_wrapped(inner, simple)
            if inner.ask:
                self._search_arguments(argv, simple)
            if inner.pure:
                return
        if simple.function and argv == simple.argv:
            return
        self._judge_program(argv, simple)

    def _judge_wrapped(self, inner: WrappedCommands, simple: SimpleCommand) -> None:
        findings = self._findings
        if inner.ask:
            findings.ask(inner.ask, inner.certainty)
            findings.dynamic = findings.dynamic or not inner.commands
        for name, value in inner.assigned:
            self._judge_variable(name, value, inherited=True)
        for command in inner.commands:
            self._judge_argv(command, simple)
        maybe = inner.passed_on
        if maybe and not self._is_file_or_test(maybe[0], simple):
            self._judge_argv(maybe, simple)
        for command in (maybe, *inner.likely):
            with findings.denials_only_scope():
                self._judge_argv(command, simple)
        for script in inner.scripts:
            if is_vague(script):
                reason = "the shell code is known only at run time"
                findings.ask(reason, Certainty.UNCERTAIN)
                findings.dynamic = True
            folder = simple.folders[0]
            scope = ShellScope(folder or "/", self._path_zones.user_home, inner.arguments)
            scope.feed = None if inner.fed else simple.feed
            self._judge_script(literal_text(script).replace(UNKNOWN, "").replace("\x1e", ""), scope)

    def _is_file_or_test(self, word: str, simple: SimpleCommand) -> bool:
        """Whether a word is a file or the name of a test, and therefore not a command."""
        text = literal_text(word)
        if re.search(r"[/.:]", text):
            return self._path_zones.classify_word(word, simple.folders, follow=False) <= {
                "inside",
                "top",
            }
        paths = self._path_zones.resolve_paths(word, simple.folders)
        return text in _TEST_FOLDERS or any(p and self._path_zones.exists(p) for p in paths)

    def _judge_program(self, argv: tuple[str, ...], simple: SimpleCommand) -> None:
        findings = self._findings
        name = self._resolve_program(literal_text(argv[0]), simple)
        if not name:
            return
        if name == "hermes" and argv[1:2] not in (("--version",), ("--help",)):
            findings.deny("only the user may run hermes itself")
            return
        if name in _DECLARING:  # as in `command export A=b`, which is no assignment to the parser
            for word in argv[1:]:
                variable, equals, value = word.partition("=")
                if equals:
                    self._judge_variable(variable, value, inherited=True)
        call = ProgramCall(name, argv[1:], simple, self._path_zones, sandboxed=self._sandboxed)
        objections = list(check_program(call))
        for finding in objections:
            findings.add(finding)
        if objections:
            unread = simple.feed is not None and simple.feed.startswith("\x02")
            findings.dynamic = findings.dynamic or name in _RENAMING or unread
            self._search_arguments(argv, simple)
        self._run_code.check_call(call, simple)
        findings.commits = findings.commits or call.commits
        for path in call.downloads:
            self._files.mark_download(path)
        if call.alters and not self._sandboxed:
            findings.ask(f"{name} changes files (no sandbox)")
        known = (name, *call.words) if call.words else _WITHOUT_ARGUMENTS.get(name, (name,))
        suspect = bool(objections) or call.alters
        if not apply_rules(
            known, self._rules, findings, sandboxed=self._sandboxed, suspect=suspect
        ):
            self._search_arguments(argv, simple)
            self._unknown_calls.append((argv, simple))
            if findings.dynamic and not findings.denials_only:
                self._deny_disguised(argv, simple)

    def _resolve_program(self, word: str, simple: SimpleCommand) -> str:
        """The program's name; empty when it is a file, which is judged here."""
        findings = self._findings
        if "=" in word:
            findings.ask(f"{display_word(word)} is not the name of a program")
            return ""
        if "/" not in word:
            if not word.isascii():
                findings.ask(f"the name {word!r} is not plain ASCII")
                self._deny_disguised((word, *simple.argv[1:]), simple)
                return ""
            return word
        if _SYSTEM_BIN.fullmatch(word):
            return word.rpartition("/")[2]
        if self._path_zones.classify_word(word, simple.folders, follow=False) <= {"inside"}:
            if self._run_code.check_file(word, simple):
                self._deny_disguised((word, *simple.argv[1:]), simple)
            self._files.check_execution(word, simple)
            findings.read_only = False
            if not self._sandboxed:
                findings.ask(f"{display_word(word)} may change files (no sandbox)")
            return word.rpartition("/")[2] if _ENVIRONMENTS.search(word) else ""
        reason = f"runs {display_word(word)}, a program outside the project folder"
        findings.ask(reason, Certainty.UNCERTAIN)
        self._deny_disguised((word, *simple.argv[1:]), simple)
        return ""

    # Denials in what cannot be understood

    def _search_arguments(self, argv: tuple[str, ...], simple: SimpleCommand) -> None:
        """Search the arguments of a program that runs text, or is unknown, for denials, which hold
        even where nobody is asked."""
        self._searches += 1
        findings = self._findings
        if self._searches > _MAX_SEARCHES or findings.denials_only or not findings.counts_uncertain:
            return
        words = tuple(map(literal_text, drop_messages(argv[:_MAX_SEARCHED])))
        fed = simple.feed if simple.feed and not simple.feed.startswith("\x02") else ""
        text = "\n".join((*words, fed))
        if self._path_zones.mentions_agent_home(text):
            self._findings.deny(f"code in it {AGENT_FILES}")
        with self._findings.denials_only_scope():
            for inner in find_hard_commands((argv[0], *drop_messages(argv))):
                self._judge_argv(inner, simple)
        scope = ShellScope(simple.folders[0] or "/", self._path_zones.user_home)
        self._search_text_denials(text, scope)
        for word in decode_suspects(word for word in words if len(word) > 7):
            self._search_text_denials(word, scope)
            with self._findings.denials_only_scope():
                self._parse_and_judge(word, scope.copy())

    def _search_text_denials(self, text: str, scope: ShellScope) -> None:
        if text in self._searched_texts:
            return
        self._searched_texts.add(text)
        if contains_fork_bomb(text):
            self._findings.deny("a fork bomb")
        with self._findings.denials_only_scope():
            for piece in find_quoted_commands(text):
                self._parse_and_judge(piece, scope.copy())

    def _deny_disguised(self, argv: tuple[str, ...], simple: SimpleCommand) -> None:
        """Deny what no program may do with these arguments, since an unknown name may be any."""
        for name in (
            candidate_programs(literal_text(argv[0])) if self._findings.counts_uncertain else ()
        ):
            if reason := explain_denial((name, *argv[1:]), simple.folders, self._path_zones):
                self._findings.deny(reason)

    # Code that is run

    def _judge_shell_text(self, text: str, simple: SimpleCommand) -> None:
        """Judge text that a shell reads from a file, a pipe or a substitution."""
        self._judge_script(text, ShellScope(simple.folders[0] or "/", self._path_zones.user_home))

    def _contains_denied(self, text: str, simple: SimpleCommand) -> bool:
        """Whether a text in another language contains a command that is always denied."""
        analyzer = CommandAnalyzer(self._path_zones, self._rules, sandboxed=self._sandboxed)
        analyzer._search_text_denials(
            text, ShellScope(simple.folders[0] or "/", self._path_zones.user_home)
        )
        return analyzer._findings.decision == "deny"


def _certainty_of(variable: str) -> Certainty:
    """Scripts set IFS all the time, to split what they read themselves."""
    return Certainty.UNCERTAIN if variable == "IFS" else Certainty.CERTAIN
