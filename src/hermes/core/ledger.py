"""The values of the ledger: what a model call may cost and did cost, and what caps it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from hermes.core.errors import HermesError

Unit: TypeAlias = Literal["usd", "tokens"]
WARN_AT = (50, 75, 90)
"""Per cent of a cap."""


class Account(Struct, frozen=True):
    """Whom a call is charged to."""

    session: str = ""
    root: str = ""
    """The session whose cap it counts to: a child shares the cap of the one it came from."""
    user: str = ""
    job: str = ""
    """A scheduled job."""
    purpose: str = "main"
    """main, subagent, cron, or auxiliary/JOB."""


class Entry(Struct, frozen=True, omit_defaults=True):
    """One model call: while it runs as it may turn out at most, afterwards as it was."""

    id: int
    """The time it began, in nanoseconds, with some chance in it: nobody else has it."""
    day: str
    """Of its beginning, here: 2026-01-31."""
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
    """Why it failed; empty: it did not."""
    tools: tuple[str, ...] = ()
    """What the answer asked for, one name per tool call."""

    @property
    def tokens(self) -> int:
        return self.input + self.output

    @property
    def scopes(self) -> tuple[str, ...]:
        """What it counts to."""
        account = self.account
        found = [f"day:{self.day}", f"session:{account.root or account.session}"]
        if account.user:
            found.append(f"user:{self.day}:{account.user}")
        if account.job:
            found.append(f"job:{self.day}:{account.job}")
        return tuple(found)


class Cap(Struct, frozen=True):
    """At most so much of a unit in a scope. `name` is its key in the configuration."""

    scope: str
    name: str
    unit: Unit
    limit: float


class CapLevel(Struct, frozen=True):
    """How far a cap is used: by calls that ended, and at most by those that run."""

    cap: Cap
    spent: float
    running: float

    @property
    def remaining(self) -> float:
        return self.cap.limit - self.spent - self.running


class CapWarning(Struct, frozen=True):
    """A cap was used to that per cent for the first time."""

    cap: Cap
    percent: int
    spent: float


Decide: TypeAlias = Callable[[Sequence[CapLevel]], Entry | None]
"""What to reserve, seeing how far the caps are used; None: nothing. Pure and quick."""


class OverBudget(HermesError):
    """A call was not made because a cap forbids it: one sentence for the user."""


class UsageRow(Struct, frozen=True):
    """Calls that have something in common, added up."""

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


By: TypeAlias = Literal["day", "model", "provider", "purpose", "tool", "session", "user", "job"]


class Ledger(Protocol):
    """Every model call of every process of this home."""

    async def reserve_call(
        self, caps: Sequence[Cap], decide: Decide
    ) -> tuple[Entry | None, list[CapLevel]]:
        """Look at the caps and reserve, in one transaction: durable when it returns. With how far
        they were used before."""
        ...

    def begin_call(self, entry: Entry) -> None:
        """A call that no cap concerns has begun; written soon, with something else."""
        ...

    def settle_call(
        self,
        entry: Entry,
        caps: Sequence[Cap] = (),
        on_warnings: Callable[[Sequence[CapWarning]], None] | None = None,
    ) -> None:
        """How it ended. Written at the latest with the next message; never waits."""
        ...

    async def sum_calls(self, by: By, since: float) -> list[UsageRow]: ...
