"""Values of the command policy: rules, simple commands and judgements."""

from typing import Literal, TypeAlias

from msgspec import Struct

from hermes.core.escalation import Access

Decision: TypeAlias = Literal["allow", "ask", "deny"]
Argv: TypeAlias = tuple[str, ...]
STRICTNESS: dict[Decision, int] = {"allow": 0, "ask": 1, "deny": 2}


class CommandRule(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A decision about every simple command whose first words are `prefix`."""

    decision: Decision
    prefix: tuple[str | tuple[str, ...], ...]
    """Each element is a word, or a tuple of alternative words."""
    reason: str = ""
    match: tuple[str, ...] = ()
    """Commands the rule must apply to, checked when rules are loaded."""
    miss: tuple[str, ...] = ()
    """Commands it must not apply to."""
    escalate: Access | None = None
    """What these commands get beyond the walls of the sandbox; the rule is about nothing else."""
    exact: bool = False

    def matches_command(self, argv: Argv) -> bool:
        size = len(self.prefix)
        return (len(argv) == size or (len(argv) > size and not self.exact)) and all(
            word == want if isinstance(want, str) else word in want
            for word, want in zip(argv, self.prefix, strict=False)
        )


class SimpleCommand(Struct, frozen=True):
    """One program call without operators, with the words as far as they are literal."""

    argv: Argv
    folder: str | None
    """The folder it runs in; None when known only at run time."""
    writes: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    feed: str = ""
    """Its standard input, where that stands in the command line."""


class Judgement(Struct, frozen=True):
    """What may be done with one command, and why."""

    decision: Decision
    reasons: tuple[str, ...] = ()
    unconfined_reasons: tuple[str, ...] = ()
    """Those of the reasons that hold without a sandbox only."""
    commands: tuple[Argv, ...] = ()
    """The simple commands found; parts known only at run time are shown as `…`."""
    read_only: bool = False
    """Only known read-only programs, and nothing written: may run without a sandbox."""
    grants: tuple[Argv, ...] = ()
    """The prefixes that "session" and "always" would allow; empty: the answer counts once."""
    understood: bool = True
    """Whether every part was understood, so that the hard denials were checked completely."""
    commits: bool = False
    acting: tuple[Argv, ...] = ()
    """The commands that do more than read, where rules about escalation may cover them."""


class TooComplexError(Exception):
    """The command exceeds the limits of the analysis."""
