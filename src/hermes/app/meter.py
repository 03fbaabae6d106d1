"""Reserves every model call before it is made and settles it afterwards; enforces the budget."""

import asyncio
import random
import time
from collections.abc import Callable, Sequence

import msgspec
from msgspec import Struct, structs

from hermes.agent.compression.token_estimate import message_weight, text_weight
from hermes.agent.turn import CallTicket, ModelClient
from hermes.config.schema import BudgetSection
from hermes.core.events import Notice, TurnEvent
from hermes.core.ledger import Account, Cap, CapLevel, CapWarning, Entry, OverBudget, Unit
from hermes.core.message import Usage
from hermes.core.provider import Request
from hermes.core.store import Store
from hermes.llm.endpoints.model_facts import Prices
from hermes.llm.hosts import is_own_address
from hermes.llm.http.tape import note_choice

ESTIMATE_MARGIN = 1.25
"""Factor on token counts that were estimated, not reported."""
UNKNOWN_OUTPUT = 16_384
"""Tokens reserved for an answer whose limit is unknown; requested as its limit under a cap."""
USUAL_OUTPUT = 2_048
"""Tokens an uncapped call is assumed to have written if its process is killed."""
OUTPUT_SHARE = 8
"""Without a configured limit one answer may take this fraction of the remaining budget."""
FAIR_OUTPUT = 4_096
"""An answer is not shortened below this to leave room for others."""
LEAST_OUTPUT = 1_024
"""A call whose answer cannot be at least this long is not made."""
RETRY_WAITS = (0.02, 0.05, 0.1, 0.25, 0.5, *[1.0] * 60)
"""Seconds between checks of a cap that is only exhausted by running calls."""
_NO_CAPS = BudgetSection()
_TENANT_CAPS = ("tenant", "month")
_UNITS: tuple[Unit, ...] = ("usd", "tokens")
_CAP_WORDS = {
    "daily": "today's budget",
    "session": "the budget of this session",
    "user": "today's budget of this user",
    "job": "today's budget of this job",
    "tenant": "today's budget of this tenant",
    "month": "this month's budget of this tenant",
}


class TenantBudget(BudgetSection, frozen=True):
    """The budget of a tenant's sessions: what the configuration says, and what the tenant may
    spend."""

    tenant_usd: float | None = None
    month_usd: float | None = None


class Meter:
    """The meter of one session, or of one of its auxiliary jobs. `say_once` returns a text, or
    nothing if this process has already said it."""

    __slots__ = ("_account", "_budget", "_emit", "_say_once", "_store")

    def __init__(
        self,
        store: Store,
        budget: BudgetSection,
        account: Account,
        emit: Callable[[TurnEvent], None],
        say_once: Callable[[str], str],
    ) -> None:
        self._store = store
        self._budget = budget
        self._account = account
        self._emit = emit
        self._say_once = say_once

    def for_purpose(self, purpose: str) -> "Meter":
        """A meter for other work on the same account."""
        account = structs.replace(self._account, purpose=purpose)
        return Meter(self._store, self._budget, account, self._emit, self._say_once)

    async def reserve_call(self, client: ModelClient, request: Request) -> CallTicket:
        """Admit a call and reserve its worst case; OverBudget when a cap forbids it."""
        now, began = time.time(), time.monotonic()
        if not self._account.root:
            root = await find_root_session(self._store, self._account.session)
            self._account = structs.replace(self._account, root=root)
        endpoint, prices = client.endpoint, client.endpoint.facts.prices
        prompt, cached = estimate_prompt(request)
        draft = Entry(
            id=(int(now * 1e9) & ~0xFFFF) | random.getrandbits(16),
            day=time.strftime("%Y-%m-%d", time.localtime(now)),
            account=self._account,
            provider=client.target.provider,
            model=client.target.model,
            input=prompt,
            estimated=True,
        )
        caps = list_caps(self._budget, draft)
        if not self._drop_uncountable(caps, client):
            output = min(request.settings.max_output or USUAL_OUTPUT, USUAL_OUTPUT)
            if caps and not is_own_address(endpoint.base_url):
                # The endpoint may report costs afterwards, so a cap that is reached still stops it.
                estimate = _CallEstimate(draft, prices, cached, output, shortenable=False)
                entry = await self._admit_call(caps, estimate)
                return CallTicket(request, entry, caps, prices, began)
            entry = _reserve_worst_case(draft, prices, output)
            self._store.ledger.begin_call(entry)
            return CallTicket(request, entry, (), prices, began)
        asked = request.settings.max_output or endpoint.default_output
        limit = asked or endpoint.facts.output
        output = limit or UNKNOWN_OUTPUT
        estimate = _CallEstimate(draft, prices, cached, output, shortenable=not asked)
        entry = await self._admit_call(caps, estimate)
        if limit is None or entry.output < limit:
            note_choice("max_output", entry.output)
            settings = structs.replace(request.settings, max_output=entry.output)
            request = structs.replace(request, settings=settings)
        return CallTicket(request, entry, caps, prices, began)

    def settle_call(
        self, ticket: CallTicket, usage: Usage, outcome: str, tools: Sequence[str]
    ) -> Usage:
        """Book how the call ended; returns its usage with the cost. Never waits, never fails."""
        if usage.cost is None and ticket.prices is not None:
            usage = structs.replace(usage, cost=ticket.prices.cost_of(usage))
        known = usage.cost is not None or not (usage.input or usage.output)
        entry = structs.replace(
            ticket.entry,
            input=usage.input,
            output=usage.output,
            cache_read=usage.cache_read,
            cache_write=usage.cache_write,
            reasoning=usage.reasoning,
            cost=(usage.cost or 0.0) if known else None,
            estimated=usage.estimated,
            seconds=round(time.monotonic() - ticket.began, 4),
            outcome=outcome,
            tools=tuple(tools),
        )
        self._store.ledger.settle_call(entry, ticket.caps, self._emit_warnings)
        return usage

    def _drop_uncountable(self, caps: tuple[Cap, ...], client: ModelClient) -> tuple[Cap, ...]:
        """The caps that can be checked in advance: without a price those in dollars cannot, which
        is said once."""
        if client.endpoint.facts.prices is not None:
            return caps
        counted = tuple(c for c in caps if c.unit == "tokens")
        name = f"{client.target.provider}:{client.target.model}"
        if len(counted) < len(caps) and self._say_once(name):
            self._emit(Notice("budget", describe_unpriced(name, tokens=bool(counted))))
        return counted

    async def _admit_call(self, caps: tuple[Cap, ...], estimate: "_CallEstimate") -> Entry:
        """Reserve the call. Running calls count at their worst case; when only they are in the way,
        wait for them."""
        for wait in (*RETRY_WAITS, 0.0):
            entry, levels = await self._store.ledger.reserve_call(caps, estimate.fit_entry)
            if entry is not None:
                return entry
            blocked = [x for x in levels if not estimate.fits_room(x.cap.unit, x.remaining)]
            hopeless = [
                x for x in blocked if not estimate.fits_room(x.cap.unit, x.cap.limit - x.spent)
            ]
            if hopeless or not wait:
                refusal = describe_refusal((hopeless or blocked)[0], time.time())
                note_choice("over_budget", refusal)
                raise OverBudget(refusal)
            await asyncio.sleep(wait)
        raise AssertionError("unreachable")

    def _emit_warnings(self, warned: Sequence[CapWarning]) -> None:
        for warning in warned:
            self._emit(Notice("budget", describe_warning(warning, time.time())))


class _CallEstimate(Struct, frozen=True):
    """What a call is expected to use, in the units of caps."""

    draft: Entry
    prices: Prices | None
    cached: int
    """Prompt tokens that likely come from a cache."""
    max_output: int
    """The longest possible answer."""
    shortenable: bool
    """Nobody asked for that length, so it may be shortened to leave room for other calls."""

    @property
    def min_output(self) -> int:
        return min(LEAST_OUTPUT, self.max_output)

    def fit_entry(self, levels: Sequence[CapLevel]) -> Entry | None:
        """A reservation that all caps admit. It reserves the worst case, but only the likely case
        must fit, so all calls together exceed a cap by less than one reservation."""
        output = self.max_output
        fair = min(FAIR_OUTPUT, self.max_output)
        while (
            self.shortenable
            and output > fair
            and not self._fits_levels(levels, output, OUTPUT_SHARE)
        ):
            output = max(fair, _halve_output(output))
        while output > self.min_output and not self._fits_levels(levels, output, 1):
            output = max(self.min_output, _halve_output(output))
        if not self._fits_levels(levels, output, 1):
            return None
        return _reserve_worst_case(self.draft, self.prices, output)

    def fits_room(self, unit: str, room: float, output: int | None = None) -> bool:
        """Whether a call with so long an answer, the shortest by default, likely fits."""
        if unit == "usd" and self.prices is None:
            return room > 0
        return self._estimate_spend(unit, output or self.min_output) <= room

    def _fits_levels(self, levels: Sequence[CapLevel], output: int, share: int) -> bool:
        return all(self.fits_room(x.cap.unit, x.remaining / share, output) for x in levels)

    def _estimate_spend(self, unit: str, output: int) -> float:
        prompt = self.draft.input
        if unit == "tokens":
            return prompt + output
        assert self.prices is not None
        return self.prices.cost_of(Usage(prompt, output, cache_read=min(self.cached, prompt)))


async def find_root_session(store: Store, session_id: str) -> str:
    """The first of a chain of compressed or delegated sessions, which share one cap."""
    seen = {session_id}
    while (meta := await store.sessions.get_meta(session_id)) is not None and meta.parent:
        if meta.parent in seen:
            break
        session_id = meta.parent
        seen.add(session_id)
    return session_id


def _halve_output(output: int) -> int:
    """The next lower power of two: few limits, because a request's head is encoded per limit."""
    return int(1 << (output - 1).bit_length() - 1)


def _reserve_worst_case(draft: Entry, prices: Prices | None, output: int) -> Entry:
    cost = None if prices is None else prices.max_cost(draft.input, output)
    return structs.replace(draft, output=output, cost=cost)


def estimate_prompt(request: Request) -> tuple[int, int]:
    """Tokens of the prompt, and how many of them are likely cached: the last report plus what was
    added since, so the work does not grow with the history."""
    reported = cached = since = 0
    for message in reversed(request.history.messages):
        usage = message.usage
        if usage is not None and usage.input:
            reported = usage.input + usage.output
            cached = usage.input if usage.cache_read else 0
            break
        since += message_weight(message)
    else:
        since += text_weight(request.system) + len(msgspec.json.encode(request.tools)) // 4
    since += sum(message_weight(m) for m in request.tail)
    return reported + int(since * ESTIMATE_MARGIN), cached


def list_caps(budget: BudgetSection, entry: Entry) -> tuple[Cap, ...]:
    """The caps that apply to a call, in the order in which refusals name them."""
    if budget == _NO_CAPS:
        return ()
    day, session, *others = entry.scopes
    scopes = {"daily": day, "session": session}
    scopes |= {scope.partition(":")[0]: scope for scope in others}
    return tuple(
        Cap(scope, name, unit, limit)
        for kind, scope in scopes.items()
        for unit in _UNITS
        if (limit := getattr(budget, name := f"{kind}_{unit}", None)) is not None
    )


def describe_warning(warned: CapWarning, now: float) -> str:
    cap = warned.cap
    key = "" if cap.name.startswith(_TENANT_CAPS) else f" (budget.{cap.name})"
    return (
        f"{warned.percent} % of {_name_cap(cap)} is used: {format_amount(warned.spent, cap.unit)} "
        f"of {format_amount(cap.limit, cap.unit)}{key}. {_describe_reset(cap, now)}"
    )


def describe_refusal(level: CapLevel, now: float) -> str:
    cap = level.cap
    running = ""
    if level.running > 0:
        running = f", {format_amount(level.running, cap.unit)} reserved by running calls"
    return (
        f"Budget reached: {_name_cap(cap)} is {format_amount(cap.limit, cap.unit)}, "
        f"{format_amount(level.spent, cap.unit)} spent{running}; the next call does not fit. "
        f"Everything so far is kept. {_describe_reset(cap, now)} {_explain_raise(cap)}"
    )


def _explain_raise(cap: Cap) -> str:
    if cap.name.startswith(_TENANT_CAPS):
        return "The operator of the server can raise it (hermes tenants set)."
    return f"To raise it: hermes config set budget.{cap.name} {_suggest_limit(cap)}"


def describe_unpriced(model: str, *, tokens: bool) -> str:
    unset = (
        "Set a cap in tokens (budget.daily_tokens), or its price "
        "(providers.NAME.models.MODEL.price)."
    )
    return (
        f"The price of {model} is not known: caps in dollars count only the costs that the "
        f"endpoint itself reports. {'Caps in tokens still apply.' if tokens else unset}"
    )


def format_amount(value: float, unit: str) -> str:
    if unit == "tokens":
        return f"{value:,.0f} tokens"
    return f"${value:,.2f}" if value >= 0.1 or value == 0 else f"${value:.4f}"


def _name_cap(cap: Cap) -> str:
    return _CAP_WORDS[cap.name.partition("_")[0]]


def _describe_reset(cap: Cap, now: float) -> str:
    if cap.name.startswith("session"):
        return "A new session starts at zero."
    if cap.name.startswith("month"):
        return "It resets on the first of the month."
    at = time.localtime(now)
    minutes = 24 * 60 - at.tm_hour * 60 - at.tm_min
    return f"It resets at midnight, in {minutes // 60} h {minutes % 60} min."


def _suggest_limit(cap: Cap) -> str:
    return f"{max(cap.limit * 2, 1):g}" if cap.unit == "usd" else f"{max(cap.limit * 2, 1000):.0f}"
