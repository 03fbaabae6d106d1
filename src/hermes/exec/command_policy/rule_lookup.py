"""Looks a program up in the rules: the operator's, and the builtin ones."""

from __future__ import annotations

import re

from hermes.exec.command_policy.findings import Findings
from hermes.exec.command_policy.programs.builtin_rules import (
    NETWORK_PROGRAMS,
    READ_ONLY_SUBCOMMANDS,
    SENSITIVE_PROGRAMS,
    VERSION_ASKABLE,
    WITH_SUBCOMMAND,
    WITH_TWO_SUBCOMMANDS,
    index_builtin_rules,
)
from hermes.exec.command_policy.programs.wrappers import SHELLS
from hermes.exec.command_policy.rules import CommandRules
from hermes.exec.command_policy.shell.words import display_word
from hermes.exec.command_policy.types import Certainty, Finding

_VERSION = frozenset("--version -V -version --help".split())


def apply_rules(
    argv: tuple[str, ...],
    rules: CommandRules,
    findings: Findings,
    *,
    sandboxed: bool,
    suspect: bool,
) -> bool:
    """Whether some rule knows it. `suspect`: something else was found about it."""
    reading, working = index_builtin_rules()
    own = rules.find_rule(tuple(map(display_word, argv))) if rules.rules else None
    quiet = any(rule.matches_rest(argv) for rule in reading.get(argv[0], ()))
    asks_version = len(argv) == 2 and argv[1] in _VERSION
    quiet = quiet or (asks_version and argv[0] in VERSION_ASKABLE)
    if quiet and own is None and not suspect:
        return True
    busy = any(rule.matches_rest(argv) for rule in working.get(argv[0], ()))
    if not quiet or suspect:
        findings.read_only = False
    if own is not None and own.decision != "allow":
        reason = own.reason or f"a rule says so about {' '.join(map(str, own.prefix))}"
        findings.add_rule_decision(own.decision, reason)
    elif own is None and not quiet and not (sandboxed and (busy or asks_version)):
        _ask_about_unknown(tuple(map(display_word, argv)), findings, busy=busy or asks_version)
    return own is not None or quiet or busy or asks_version


def _ask_about_unknown(argv: tuple[str, ...], findings: Findings, *, busy: bool) -> None:
    name = argv[0]
    if busy:
        reason = f"{name} changes things, and there is no sandbox"
    elif name in NETWORK_PROGRAMS:
        reason = f"{name} reaches other machines"
    elif name in SENSITIVE_PROGRAMS:
        reason = f"{name} reaches beyond the workspace"
    else:
        reason = f"no rule knows {' '.join(grant_prefix_of(argv) or argv[:1])}"
    prefix = grant_prefix_of(argv)
    looks = bool(READ_ONLY_SUBCOMMANDS & set(prefix))
    if name in NETWORK_PROGRAMS or name in SHELLS or (name in SENSITIVE_PROGRAMS and not looks):
        prefix = ()
    findings.add(Finding("ask", reason, prefix, Certainty.UNCERTAIN))


def grant_prefix_of(argv: tuple[str, ...]) -> tuple[str, ...]:
    """What is remembered of a command: the program and what it is told to do."""
    name = argv[0]
    if name not in WITH_SUBCOMMAND:
        return _prefix_of_unknown(argv)
    size = 3 if name in WITH_TWO_SUBCOMMANDS else 2
    words = argv[:size]
    if len(words) < 2 or any(w.startswith("-") or "…" in w for w in words[1:]):
        return argv[:2] if len(argv) > 1 and not argv[1].startswith("-") and size == 3 else ()
    return words


def _prefix_of_unknown(argv: tuple[str, ...]) -> tuple[str, ...]:
    """Of a program nobody knows: all of it if it is given a text, which may be a program, else
    with the word that may say what it does."""
    if any(" " in word or "\n" in word for word in argv[1:]):
        return () if any("…" in word for word in argv) else argv
    return argv[:2] if len(argv) > 1 and re.fullmatch(r"[A-Za-z][\w:-]*", argv[1]) else argv[:1]
