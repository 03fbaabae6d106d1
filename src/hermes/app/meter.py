"""Reserves every model call before it is made and settles it afterwards; enforces the budget."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Struct, structs

from hermes.agent.compression.token_estimate import message_weight, text_weight
from hermes.agent.turn import CallTicket, ModelClient
from hermes.config.schema import Budget
from hermes.core.events import Notice, TurnEvent
from hermes.core.ledger import Account, Cap, CapLevel, CapWarning, Entry, OverBudget, Unit
from hermes.core.message import Usage
from hermes.core.provider import Request
from hermes.core.store import Store
from hermes.llm.endpoints.model_facts import Prices
from hermes.llm.hosts import is_own_address

MARGIN = 1.25
"""On what was estimated and not reported."""
UNKNOWN_OUTPUT = 16_384
"""Tokens of an answer where nobody says how long one may be; asked for where a cap must hold."""
USUAL_OUTPUT = 2_048
"""Tokens a call without a cap is taken to have written if its process is killed."""
SHARE = 8
"""Where nobody set a limit, one answer may take an eighth of what is left, and no less than: """
FAIR_OUTPUT = 4_096
LEAST_OUTPUT = 1_024
"""An answer that may not even be this long is not asked for."""
WAITS = (0.02, 0.05, 0.1, 0.25, 0.5, *[1.0] * 60)
"""Seconds between looks at a cap that only running calls keep full."""
_NO_CAPS = Budget()
_UNITS: tuple[Unit, ...] = ("usd", "tokens")
_CAP_WORDS = {
    "daily": "today's budget",
    "session": "the budget of this session",
    "user": "today's budget of this user",
    "job": "today's budget of this job",
}


class Meter:
    """One session's, or one job's of it. `once` returns a text unless this process has said it."""

    __slots__ = ("_account", "_budget", "_emit", "_ledger", "_once", "_store")

    def __init__(
        self,
        store: Store,
        budget: Budget,
        account: Account,
        emit: Callable[[TurnEvent], None],
        once: Callable[[str], str],
    ) -> None:
        self._store = store
        self._ledger = store.ledger
        self._budget = budget
        self._account = account
        self._emit = emit
        self._once = once

    def for_purpose(self, purpose: str) -> Meter:
        """The same account, other work."""
        account = structs.replace(self._account, purpose=purpose)
        return Meter(self._store, self._budget, account, self._emit, self._once)

    async def reserve_call(self, endpoint: ModelClient, request: Request) -> CallTicket:
        """OverBudget when a cap forbids the call."""
        now = time.time()
        began = time.monotonic()
        day = time.strftime("%Y-%m-%d", time.localtime(now))
        if not self._account.root:
            root = await root_of(self._store, self._account.session)
            self._account = structs.replace(self._account, root=root)
        target, prices = endpoint.target, endpoint.endpoint.facts.prices
        prompt, cached = expect_prompt(request)
        blank = Entry(
            id=(int(now * 1e9) & ~0xFFFF) | secrets.randbelow(0x10000),
            day=day,
            account=self._account,
            provider=target.provider,
            model=target.model,
            input=prompt,
            estimated=True,
        )
        caps = caps_of(self._budget, blank)
        if not self._countable(caps, endpoint):
            output = min(request.settings.max_output or USUAL_OUTPUT, USUAL_OUTPUT)
            if caps and not is_own_address(endpoint.endpoint.base_url):
                # Some say afterwards what a call cost: past a cap nobody is asked again.
                offer = _Offer(blank, prices, cached, output, free=False)
                return CallTicket(request, await self._admitted(caps, offer), caps, prices, began)
            entry = _worst_case(blank, prices, output)
            self._ledger.begin_call(entry)
            return CallTicket(request, entry, (), prices, began)
        offer = _Offer(
            blank,
            prices,
            cached,
            _longest_output(endpoint, request),
            free=_may_shorten(endpoint, request),
        )
        entry = await self._admitted(caps, offer)
        return CallTicket(
            _limit_output(request, endpoint, entry.output), entry, caps, prices, began
        )

    def settle_call(
        self, ticket: CallTicket, usage: Usage, outcome: str, tools: Sequence[str]
    ) -> Usage:
        """What the call cost, added to what the provider reported. Never waits, never fails."""
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
        self._ledger.settle_call(entry, ticket.caps, self._warn)
        return usage

    # -- inside ----------------------------------------------------------------------------

    def _countable(self, caps: tuple[Cap, ...], endpoint: ModelClient) -> tuple[Cap, ...]:
        """Without a price money cannot be counted beforehand; said once, and tokens still are."""
        if endpoint.endpoint.facts.prices is not None:
            return caps
        counted = tuple(c for c in caps if c.unit == "tokens")
        name = f"{endpoint.target.provider}:{endpoint.target.model}"
        if len(counted) < len(caps) and self._once(name):
            self._emit(Notice("budget", describe_unpriced(name, tokens=bool(counted))))
        return counted

    async def _admitted(self, caps: tuple[Cap, ...], offer: _Offer) -> Entry:
        """Running calls are taken at their worst; when only they are in the way, wait for them."""
        for wait in (*WAITS, 0.0):
            entry, levels = await self._ledger.reserve_call(caps, offer.entry)
            if entry is not None:
                return entry
            blocked = [x for x in levels if not offer.fits(x.cap.unit, x.remaining, offer.least)]
            hopeless = [
                x for x in blocked if not offer.fits(x.cap.unit, x.cap.limit - x.spent, offer.least)
            ]
            if hopeless or not wait:
                raise OverBudget(describe_refusal((hopeless or blocked)[0], time.time()))
            await asyncio.sleep(wait)
        raise AssertionError("unreachable")

    def _warn(self, warned: Sequence[CapWarning]) -> None:
        for each in warned:
            self._emit(Notice("budget", describe_warning(each, time.time())))


class _Offer(Struct, frozen=True):
    """What a call needs, in the units of caps."""

    blank: Entry
    prices: Prices | None
    cached: int
    """Prompt tokens that likely come from a cache."""
    ceiling: int
    """The longest answer it can have."""
    free: bool
    """Nobody asked for that length: it may be shortened to leave room for others."""

    @property
    def least(self) -> int:
        return min(LEAST_OUTPUT, self.ceiling)

    def entry(self, levels: Sequence[CapLevel]) -> Entry | None:
        """Reserved is the worst; what is likely must fit. So all calls together overstep a cap by
        less than one of them reserved."""
        output = self.ceiling
        fair = min(FAIR_OUTPUT, self.ceiling)
        while self.free and output > fair and not self._all(levels, output, SHARE):
            output = max(fair, _halve(output))
        while output > self.least and not self._all(levels, output, 1):
            output = max(self.least, _halve(output))
        if not self._all(levels, output, 1):
            return None
        return _worst_case(self.blank, self.prices, output)

    def fits(self, unit: str, room: float, output: int) -> bool:
        if unit == "usd" and self.prices is None:
            return room > 0
        return self._likely(unit, output) <= room

    def _all(self, levels: Sequence[CapLevel], output: int, share: int) -> bool:
        return all(self.fits(x.cap.unit, x.remaining / share, output) for x in levels)

    def _likely(self, unit: str, output: int) -> float:
        prompt = self.blank.input
        if unit == "tokens":
            return prompt + output
        assert self.prices is not None
        return self.prices.cost_of(Usage(prompt, output, cache_read=min(self.cached, prompt)))


async def root_of(store: Store, session_id: str) -> str:
    """Where a chain of compressed or delegated sessions began: they share one cap."""
    seen = {session_id}
    while (meta := await store.sessions.get_meta(session_id)) is not None and meta.parent:
        if meta.parent in seen:
            break
        session_id = meta.parent
        seen.add(session_id)
    return session_id


def _halve(output: int) -> int:
    """To the next power of two below: the head of a request is encoded once per limit."""
    return int(1 << (output - 1).bit_length() - 1)


def _worst_case(blank: Entry, prices: Prices | None, output: int) -> Entry:
    cost = None if prices is None else prices.max_cost(blank.input, output)
    return structs.replace(blank, output=output, cost=cost)


def _longest_output(endpoint: ModelClient, request: Request) -> int:
    asked = request.settings.max_output or endpoint.endpoint.default_output
    return asked or endpoint.endpoint.facts.output or UNKNOWN_OUTPUT


def _may_shorten(endpoint: ModelClient, request: Request) -> bool:
    return not (request.settings.max_output or endpoint.endpoint.default_output)


def _limit_output(request: Request, endpoint: ModelClient, output: int) -> Request:
    """A limit is sent only when it is lower than what holds anyway."""
    holds = (
        request.settings.max_output
        or endpoint.endpoint.default_output
        or endpoint.endpoint.facts.output
    )
    if holds is not None and output >= holds:
        return request
    settings = structs.replace(request.settings, max_output=output)
    return structs.replace(request, settings=settings)


def expect_prompt(request: Request) -> tuple[int, int]:
    """Tokens of the prompt, and how many of them a cache likely holds: the last report and what
    was added since, which is little however long the history is."""
    reported = cached = since = 0
    for message in reversed(request.history.messages):
        usage = message.usage
        if usage is not None and usage.input:
            reported = usage.input + usage.output
            cached = usage.input if usage.cache_read else 0
            break
        since += message_weight(message)
    else:
        since += text_weight(request.system) + _encoded_size(request.tools) // 4
    since += sum(message_weight(m) for m in request.tail)
    return reported + int(since * MARGIN), cached


def _encoded_size(value: Any) -> int:
    return len(msgspec.json.encode(value))


# Which caps concern a call, and how they are spoken of


def caps_of(budget: Budget, entry: Entry) -> tuple[Cap, ...]:
    """In the order in which they are named when several are reached."""
    if budget == _NO_CAPS:
        return ()
    day, session, *others = entry.scopes
    scopes = {"daily": day, "session": session}
    scopes |= {scope.partition(":")[0]: scope for scope in others}
    found = []
    for kind, scope in scopes.items():
        for unit in _UNITS:
            name = f"{kind}_{unit}"
            limit = getattr(budget, name)
            if limit is not None:
                found.append(Cap(scope, name, unit, limit))
    return tuple(found)


def describe_warning(warned: CapWarning, now: float) -> str:
    cap = warned.cap
    return (
        f"{warned.percent} % of {_name_cap(cap)} is used: {format_amount(warned.spent, cap.unit)} "
        f"of {format_amount(cap.limit, cap.unit)} (budget.{cap.name}). {_describe_reset(cap, now)}"
    )


def describe_refusal(level: CapLevel, now: float) -> str:
    cap = level.cap
    running = ""
    if level.running > 0:
        running = f", {format_amount(level.running, cap.unit)} reserved by calls that run"
    return (
        f"Budget reached: {_name_cap(cap)} is {format_amount(cap.limit, cap.unit)}, "
        f"{format_amount(level.spent, cap.unit)} spent{running}; the next call does not fit. "
        f"Nothing was lost. {_describe_reset(cap, now)} To raise it: hermes config set "
        f"budget.{cap.name} {_suggest_limit(cap)}"
    )


def describe_unpriced(model: str, *, tokens: bool) -> str:
    rest = "Its tokens count." if tokens else "Set a cap in tokens (budget.daily_tokens)"
    return (
        f"The price of {model} is not known: to the budget in dollars counts only what the "
        f"endpoint itself says a call cost. {rest}"
        + ("" if tokens else ", or its price (providers.NAME.models.MODEL.price).")
    )


def format_amount(value: float, unit: str) -> str:
    if unit == "tokens":
        return f"{value:,.0f} tokens"
    return f"${value:,.2f}" if value >= 0.1 or value == 0 else f"${value:.4f}"


def _name_cap(cap: Cap) -> str:
    return _CAP_WORDS[cap.name.partition("_")[0]]


def _describe_reset(cap: Cap, now: float) -> str:
    if cap.name.startswith("session"):
        return "A new session begins at zero."
    at = time.localtime(now)
    minutes = 24 * 60 - at.tm_hour * 60 - at.tm_min
    return f"It resets at midnight, in {minutes // 60} h {minutes % 60} min."


def _suggest_limit(cap: Cap) -> str:
    return f"{max(cap.limit * 2, 1):g}" if cap.unit == "usd" else f"{max(cap.limit * 2, 1000):.0f}"
