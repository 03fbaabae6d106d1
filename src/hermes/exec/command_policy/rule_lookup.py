"""Looks a program up in the rules: the user's and the built-in ones."""

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
_PUBLISHES = "publishes a package"
_EFFECTS: dict[tuple[str, ...], str] = {
    ("git", "push"): "publishes commits to another machine",
    ("git", "send-email"): "sends commits by mail",
    **{(name, "publish"): _PUBLISHES for name in ("npm", "pnpm", "yarn", "cargo", "uv", "poetry")},
    ("gem", "push"): _PUBLISHES,
    ("terraform", "apply"): "changes infrastructure",
    ("terraform", "destroy"): "deletes infrastructure",
}
"""What commands do that no built-in rule allows, by their first words."""


def apply_rules(
    argv: tuple[str, ...],
    rules: CommandRules,
    findings: Findings,
    *,
    sandboxed: bool,
    suspect: bool,
) -> bool:
    """Record what the rules say about a command; True when one covers it. `suspect`: a check has
    found something about it."""
    reading, working = index_builtin_rules()
    own = rules.find_rule(tuple(map(display_word, argv))) if rules.rules else None
    reads_only = any(rule.matches_rest(argv) for rule in reading.get(argv[0], ()))
    asks_version = len(argv) == 2 and argv[1] in _VERSION
    reads_only = reads_only or (asks_version and argv[0] in VERSION_ASKABLE)
    if reads_only and own is None and not suspect:
        return True
    allowed_in_sandbox = any(rule.matches_rest(argv) for rule in working.get(argv[0], ()))
    if not reads_only or suspect:
        findings.read_only = False
    if own is not None and own.decision != "allow":
        reason = own.reason or f"your rule for {' '.join(map(str, own.prefix))}"
        findings.add_rule_decision(own.decision, reason)
    elif (
        own is None and not reads_only and not (sandboxed and (allowed_in_sandbox or asks_version))
    ):
        _ask_about_unknown(
            tuple(map(display_word, argv)),
            findings,
            allowed_in_sandbox=allowed_in_sandbox or asks_version,
        )
    return own is not None or reads_only or allowed_in_sandbox or asks_version


def _ask_about_unknown(
    argv: tuple[str, ...], findings: Findings, *, allowed_in_sandbox: bool
) -> None:
    name, prefix = argv[0], grant_prefix_of(argv)
    if allowed_in_sandbox:
        reason = f"{name} may change files (no sandbox)"
    elif name in NETWORK_PROGRAMS:
        reason = f"{name} connects to other machines"
    elif name in SENSITIVE_PROGRAMS:
        reason = f"{name} affects more than the project folder"
    else:
        shown = " ".join(prefix or argv[:1])
        effect = _EFFECTS.get(prefix[:2])
        reason = f"{shown} {effect} (no rule covers it)" if effect else f"no rule covers {shown}"
    looks = bool(READ_ONLY_SUBCOMMANDS & set(prefix))
    if name in NETWORK_PROGRAMS or name in SHELLS or (name in SENSITIVE_PROGRAMS and not looks):
        prefix = ()
    findings.add(Finding("ask", reason, prefix, Certainty.UNCERTAIN))


def grant_prefix_of(argv: tuple[str, ...]) -> tuple[str, ...]:
    """The words of a command that an answer of "session" or "always" allows: the program and its
    subcommand."""
    name = argv[0]
    if name not in WITH_SUBCOMMAND:
        return _prefix_of_unknown(argv)
    size = 3 if name in WITH_TWO_SUBCOMMANDS else 2
    words = argv[:size]
    if len(words) < 2 or any(w.startswith("-") or "…" in w for w in words[1:]):
        return argv[:2] if len(argv) > 1 and not argv[1].startswith("-") and size == 3 else ()
    return words


def _prefix_of_unknown(argv: tuple[str, ...]) -> tuple[str, ...]:
    """The prefix for an unknown program: the whole command if an argument contains blanks, which
    may be code; else the program and what may be a subcommand."""
    if any(" " in word or "\n" in word for word in argv[1:]):
        return () if any("…" in word for word in argv) else argv
    return argv[:2] if len(argv) > 1 and re.fullmatch(r"[A-Za-z][\w:-]*", argv[1]) else argv[:1]
