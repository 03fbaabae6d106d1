"""Values of the command policy: rules, findings, judgements, and the strictness of decisions."""

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
    """Each element is a word, or a tuple of alternative words."""
    reason: str = ""
    match: tuple[str, ...] = ()
    """Commands the rule must apply to, checked when rules are loaded."""
    miss: tuple[str, ...] = ()
    """Commands it must not apply to."""

    def matches_command(self, argv: tuple[str, ...]) -> bool:
        return self.matches_rest(argv, 0)

    def matches_rest(self, argv: tuple[str, ...], start: int = 1) -> bool:
        """Whether the words from `start` on match; those before are known to."""
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
    """The simple commands found; parts known only at run time are shown as `…`."""
    read_only: bool = False
    """Only known read-only programs, and nothing written: may run without a sandbox."""
    grants: tuple[tuple[str, ...], ...] = ()
    """The prefixes that "session" and "always" would allow; empty when the answer must not be
    remembered."""
    understood: bool = True
    """Whether every part was understood. If not, the hard denials could not be checked completely:
    where nobody is asked (yolo), the command must not run if it names one of their programs
    (`hard_denials.find_hard_program`)."""
    downloads: tuple[Path, ...] = ()
    """Files the command writes from the network: `tainted_files` of later judgements."""
    commits: bool = False
    """Whether git writes to the repository."""


class Finding(Struct, frozen=True):
    """One reason to ask or deny."""

    decision: Decision
    reason: str
    grant: tuple[str, ...] = ()
    """The prefix whose rule would have made it unnecessary; empty: no rule can."""
    certainty: Certainty = Certainty.CERTAIN


def ask_finding(reason: str, certainty: Certainty = Certainty.CERTAIN) -> Finding:
    """Why a command needs approval."""
    return Finding("ask", reason, certainty=certainty)


class TooComplexError(Exception):
    """The command exceeds the limits of the analysis."""
