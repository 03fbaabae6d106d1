"""The ledger of model calls: entries, caps, and the protocol to reserve and settle calls."""

from collections.abc import Callable, Sequence
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from hermes.core.errors import HermesError

Unit: TypeAlias = Literal["usd", "tokens"]
WARN_AT = (50, 75, 90)
"""Per cent of a cap."""


class Account(Struct, frozen=True):
    """What a call is charged to."""

    session: str = ""
    root: str = ""
    """The session whose cap applies: a child session shares its parent's."""
    user: str = ""
    job: str = ""
    """A scheduled job."""
    purpose: str = "main"
    """main, subagent, cron, or auxiliary/JOB."""
    tenant: str = ""
    """Who pays for it in a cluster; empty: the operator."""


class Entry(Struct, frozen=True, omit_defaults=True):
    """One model call: while it runs, the most it can cost; afterwards, what it cost."""

    id: int
    """Its start time in nanoseconds with a random part, hence unique."""
    day: str
    """The local date of its start: 2026-01-31."""
    account: Account
    provider: str
    model: str
    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    cost: float | None = None
    """Dollars; None: not known."""
    estimated: bool = False
    seconds: float = 0.0
    outcome: str = ""
    """Why it failed; empty: it succeeded."""
    tools: tuple[str, ...] = ()
    """The tools that the answer called, one name per call."""

    @property
    def tokens(self) -> int:
        return self.input + self.output

    @property
    def scopes(self) -> tuple[str, ...]:
        """The scopes it counts towards."""
        account = self.account
        found = [f"day:{self.day}", f"session:{account.root or account.session}"]
        if account.user:
            found.append(f"user:{self.day}:{account.user}")
        if account.job:
            found.append(f"job:{self.day}:{account.job}")
        if account.tenant:
            found += [f"tenant:{self.day}:{account.tenant}", f"month:{self.day[:7]}"]
        return tuple(found)


class Cap(Struct, frozen=True):
    """At most so much of a unit in a scope. `name` is its key in the configuration."""

    scope: str
    name: str
    unit: Unit
    limit: float


class CapLevel(Struct, frozen=True):
    """How much of a cap is used by finished calls, and at most by running ones."""

    cap: Cap
    spent: float
    running: float

    @property
    def remaining(self) -> float:
        return self.cap.limit - self.spent - self.running


class CapWarning(Struct, frozen=True):
    """A cap has reached that percentage for the first time."""

    cap: Cap
    percent: int
    spent: float


Decide: TypeAlias = Callable[[Sequence[CapLevel]], Entry | None]
"""Decides from the cap levels what to reserve; None: nothing. Must be pure and fast."""


class OverBudget(HermesError):
    """A cap forbids the call; the message is one sentence for the user."""


class UsageRow(Struct, frozen=True):
    """Totals of a group of calls."""

    key: str
    calls: int = 0
    failed: int = 0
    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    cost: float = 0.0
    unpriced: int = 0
    """Calls whose cost is not known."""
    estimated: int = 0
    seconds: float = 0.0
    uses: float = 0.0
    """Tool calls."""


class CallRecord(Struct, frozen=True):
    """One model call that has ended."""

    started: float
    """Unix seconds."""
    provider: str
    model: str
    purpose: str
    input: int
    cached: int
    output: int
    cost: float | None
    seconds: float
    outcome: str
    """Why it failed; empty: it succeeded."""


By: TypeAlias = Literal["day", "model", "provider", "purpose", "tool", "session", "user", "job"]


class Ledger(Protocol):
    """Every model call of every process of this home."""

    async def reserve_call(
        self, caps: Sequence[Cap], decide: Decide
    ) -> tuple[Entry | None, list[CapLevel]]:
        """Check the caps and reserve in one transaction, durable when it returns. Also returns the
        levels before."""

    def begin_call(self, entry: Entry) -> None:
        """Note the start of a call that no cap concerns; written later, with something else."""

    def settle_call(
        self,
        entry: Entry,
        caps: Sequence[Cap] = (),
        on_warnings: Callable[[Sequence[CapWarning]], None] | None = None,
    ) -> None:
        """Note how a call ended. Written at the latest with the next message; never waits."""

    async def sum_calls(
        self, by: By, since: float, until: float | None = None
    ) -> list[UsageRow]: ...

    async def split_calls(
        self, by: By, split: By, since: float, until: float | None = None
    ) -> list[tuple[str, UsageRow]]:
        """The totals of each group, divided by another property: key and part."""

    async def list_calls(self, session: str, since: float) -> list[CallRecord]:
        """The calls of a session from this moment on, in order."""

    async def find_last_calls(self) -> dict[str, tuple[float, str]]:
        """By provider: when it was last called, and why that call failed (empty: it did not)."""
