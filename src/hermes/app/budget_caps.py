"""Which caps concern a call, and how they are spoken of."""

from __future__ import annotations

import time

from hermes.config.schema import Budget
from hermes.core.ledger import Cap, Entry, Level, Unit, Warned

_WHOSE = {
    "daily": "today's budget",
    "session": "the budget of this session",
    "user": "today's budget of this user",
    "job": "today's budget of this job",
}


def caps_of(budget: Budget, entry: Entry) -> tuple[Cap, ...]:
    """In the order in which they are named when several are reached."""
    if budget == _NONE:
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


_NONE = Budget()
_UNITS: tuple[Unit, ...] = ("usd", "tokens")


def warning(warned: Warned, now: float) -> str:
    cap = warned.cap
    return (
        f"{warned.percent} % of {_whose(cap)} is used: {amount(warned.spent, cap.unit)} of "
        f"{amount(cap.limit, cap.unit)} (budget.{cap.name}). {_resets(cap, now)}"
    )


def refusal(level: Level, now: float) -> str:
    cap = level.cap
    running = ""
    if level.running > 0:
        running = f", {amount(level.running, cap.unit)} reserved by calls that run"
    return (
        f"Budget reached: {_whose(cap)} is {amount(cap.limit, cap.unit)}, "
        f"{amount(level.spent, cap.unit)} spent{running}; the next call does not fit. Nothing was "
        f"lost. {_resets(cap, now)} To raise it: hermes config set budget.{cap.name} "
        f"{_more(cap)}"
    )


def uncountable(model: str, *, tokens: bool) -> str:
    rest = "Its tokens count." if tokens else "Set a cap in tokens (budget.daily_tokens)"
    return (
        f"The price of {model} is not known: to the budget in dollars counts only what the "
        f"endpoint itself says a call cost. {rest}"
        + ("" if tokens else ", or its price (providers.NAME.models.MODEL.price).")
    )


def amount(value: float, unit: str) -> str:
    if unit == "tokens":
        return f"{value:,.0f} tokens"
    return f"${value:,.2f}" if value >= 0.1 or value == 0 else f"${value:.4f}"


def _whose(cap: Cap) -> str:
    return _WHOSE[cap.name.partition("_")[0]]


def _resets(cap: Cap, now: float) -> str:
    if cap.name.startswith("session"):
        return "A new session begins at zero."
    at = time.localtime(now)
    minutes = 24 * 60 - at.tm_hour * 60 - at.tm_min
    return f"It resets at midnight, in {minutes // 60} h {minutes % 60} min."


def _more(cap: Cap) -> str:
    return f"{max(cap.limit * 2, 1):g}" if cap.unit == "usd" else f"{max(cap.limit * 2, 1000):.0f}"
