"""Looks a program up in the rules: the operator's, and the builtin ones."""

from __future__ import annotations

import re

from hermes.exec.command_policy.findings import Verdict
from hermes.exec.command_policy.programs.builtin_rules import (
    NETWORK,
    REMEMBERED,
    SENSITIVE,
    TWO_DEEP,
    VERSIONED,
    WITH_SUBCOMMAND,
    builtin,
)
from hermes.exec.command_policy.programs.wrappers import SHELLS
from hermes.exec.command_policy.rules import Rules
from hermes.exec.command_policy.shell.words import written
from hermes.exec.command_policy.types import Certainty, Finding

_VERSION = frozenset("--version -V -version --help".split())


def permitted(
    argv: tuple[str, ...], rules: Rules, verdict: Verdict, *, sandboxed: bool, suspect: bool
) -> bool:
    """Whether some rule knows it. `suspect`: something else was found about it."""
    reading, working = builtin()
    own = rules.decide(tuple(map(written, argv))) if rules.own else None
    quiet = any(rule.goes_on(argv) for rule in reading.get(argv[0], ()))
    asks_version = len(argv) == 2 and argv[1] in _VERSION
    quiet = quiet or (asks_version and argv[0] in VERSIONED)
    if quiet and own is None and not suspect:
        return True
    busy = any(rule.goes_on(argv) for rule in working.get(argv[0], ()))
    if not quiet or suspect:
        verdict.read_only = False
    if own is not None and own.decision != "allow":
        reason = own.reason or f"a rule says so about {' '.join(map(str, own.prefix))}"
        verdict.ruled(own.decision, reason)
    elif own is None and not quiet and not (sandboxed and (busy or asks_version)):
        _unknown(tuple(map(written, argv)), verdict, busy=busy or asks_version)
    return own is not None or quiet or busy or asks_version


def _unknown(argv: tuple[str, ...], verdict: Verdict, *, busy: bool) -> None:
    name = argv[0]
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
    verdict.add(Finding("ask", reason, prefix, Certainty.UNCERTAIN))


def remembered(argv: tuple[str, ...]) -> tuple[str, ...]:
    """What is remembered of a command: the program and what it is told to do."""
    name = argv[0]
    if name not in WITH_SUBCOMMAND:
        return _of_stranger(argv)
    size = 3 if name in TWO_DEEP else 2
    words = argv[:size]
    if len(words) < 2 or any(w.startswith("-") or "…" in w for w in words[1:]):
        return argv[:2] if len(argv) > 1 and not argv[1].startswith("-") and size == 3 else ()
    return words


def _of_stranger(argv: tuple[str, ...]) -> tuple[str, ...]:
    """Of a program nobody knows: all of it if it is given a text, which may be a program, else
    with the word that may say what it does."""
    if any(" " in word or "\n" in word for word in argv[1:]):
        return () if any("…" in word for word in argv) else argv
    return argv[:2] if len(argv) > 1 and re.fullmatch(r"[A-Za-z][\w:-]*", argv[1]) else argv[:1]
