"""What the gate takes and gives: rules, judgements, and the strictness of decisions."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct

Decision: TypeAlias = Literal["allow", "ask", "deny"]


class Certainty(Enum):
    """Whether a finding holds whatever the values at run time turn out to be."""

    CERTAIN = "certain"
    UNCERTAIN = "uncertain"


STRICTNESS: dict[Decision, int] = {"allow": 0, "ask": 1, "deny": 2}


class CommandRule(Struct, frozen=True, forbid_unknown_fields=True):
    """A decision about every simple command whose first words are `prefix`."""

    decision: Decision
    prefix: tuple[str | tuple[str, ...], ...]
    """Each element is a word, or a tuple of words any of which will do."""
    reason: str = ""
    match: tuple[str, ...] = ()
    """Commands the rule must apply to, checked when rules are loaded."""
    miss: tuple[str, ...] = ()
    """Commands it must not apply to."""

    def matches_command(self, argv: tuple[str, ...]) -> bool:
        return self.matches_rest(argv, 0)

    def matches_rest(self, argv: tuple[str, ...], start: int = 1) -> bool:
        """The same, when the words before `start` are known to match."""
        if len(argv) < len(self.prefix):
            return False
        for at in range(start, len(self.prefix)):
            want = self.prefix[at]
            if argv[at] != want if isinstance(want, str) else argv[at] not in want:
                return False
        return True


class Judgement(Struct, frozen=True):
    """What may be done with one command, and why."""

    decision: Decision
    reasons: tuple[str, ...] = ()
    commands: tuple[tuple[str, ...], ...] = ()
    """The simple commands found. A part that is only known when it runs is shown as `…`."""
    read_only: bool = False
    """Nothing but known read-only programs, and nothing written: may run without a sandbox."""
    grants: tuple[tuple[str, ...], ...] = ()
    """The prefixes that "session" and "always" would allow; empty when the answer must not be
    remembered."""
    understood: bool = True
    """Every part was read. Otherwise the hard list could not be checked in full: where nobody is
    asked (yolo), it must not run if it names a program of that list (`blocks.named`)."""
    downloads: tuple[Path, ...] = ()
    """Files the command writes from the network: `tainted_files` of later judgements."""
    commits: bool = False
    """Git is told to write to the repository."""


class Finding(Struct, frozen=True):
    """One reason to ask or deny."""

    decision: Decision
    reason: str
    grant: tuple[str, ...] = ()
    """The prefix that would have made it unnecessary; empty: no rule can."""
    certainty: Certainty = Certainty.CERTAIN


def ask_finding(reason: str, certainty: Certainty = Certainty.CERTAIN) -> Finding:
    """Why a command needs approval."""
    return Finding("ask", reason, certainty=certainty)


class TooComplexError(Exception):
    """The command cannot be understood within the limits."""
