"""Collects the findings about one command and turns them into a judgement."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hermes.exec.command_policy.types import Certainty, Decision, Finding, Judgement, ask_finding

_MAX_REASONS = 12
_MAX_REASON = 200


class Findings:
    """Findings can only make the judgement stricter."""

    def __init__(self) -> None:
        self.commands: list[tuple[str, ...]] = []
        self.downloads: list[Path] = []
        self.read_only = True
        self.understood = True
        self.dynamic = False
        """Part of the command is known only at run time: its text is searched for denials too."""
        self.commits = False
        self.denials_only = 0
        """While this is positive, only denials count."""
        self._certain_only = 0
        self._findings: list[Finding] = []

    @property
    def is_nested(self) -> bool:
        """Whether what is read now is not a command of the line itself."""
        return self.denials_only > 0 or self._certain_only > 0

    @property
    def counts_uncertain(self) -> bool:
        """Whether uncertain findings count; they do not inside existing workspace files."""
        return self._certain_only == 0

    @property
    def decision(self) -> Decision:
        found = {finding.decision for finding in self._findings}
        return "deny" if "deny" in found else "ask" if "ask" in found else "allow"

    def ask(self, reason: str, certainty: Certainty = Certainty.CERTAIN) -> None:
        self.add(ask_finding(reason, certainty))

    def add(self, finding: Finding) -> None:
        """Record a reason to ask, unless only what is denied, or certain, counts now."""
        self.read_only = False
        if not self.denials_only and (
            self.counts_uncertain or finding.certainty is Certainty.CERTAIN
        ):
            self._findings.append(finding)

    def deny(self, reason: str) -> None:
        self._findings.append(Finding("deny", reason))

    def add_rule_decision(self, decision: Decision, reason: str) -> None:
        """Record what a rule of the user decides."""
        if decision == "deny" or not self.denials_only:
            self._findings.append(Finding(decision, reason))

    def mark_not_understood(self, reason: str) -> None:
        self.understood = False
        self.ask(reason, Certainty.UNCERTAIN)

    @contextmanager
    def denials_only_scope(self) -> Iterator[None]:
        """Code read inside may not run at all, so only denials count."""
        understood, dynamic = self.understood, self.dynamic
        self.denials_only += 1
        try:
            yield
        finally:
            self.denials_only -= 1
            self.understood, self.dynamic = understood, dynamic

    @contextmanager
    def workspace_file_scope(self) -> Iterator[None]:
        """Code read inside is from existing workspace files: uncertain findings do not count."""
        understood, dynamic = self.understood, self.dynamic
        self._certain_only += 1
        try:
            yield
        finally:
            self._certain_only -= 1
            self.understood, self.dynamic = understood, dynamic

    def build_judgement(self) -> Judgement:
        decision = self.decision
        decisive = [f for f in self._findings if f.decision == decision]
        reasons = tuple(dict.fromkeys(shorten_reason(finding.reason) for finding in decisive))
        grants: tuple[tuple[str, ...], ...] = ()
        if decision == "ask" and all(finding.grant for finding in decisive):
            grants = tuple(dict.fromkeys(finding.grant for finding in decisive))
        return Judgement(
            decision,
            reasons[:_MAX_REASONS],
            tuple(self.commands),
            self.read_only and decision == "allow",
            grants,
            self.understood,
            tuple(dict.fromkeys(self.downloads)),
            self.commits,
        )


def shorten_reason(reason: str) -> str:
    return reason if len(reason) <= _MAX_REASON else reason[: _MAX_REASON - 1] + "…"
