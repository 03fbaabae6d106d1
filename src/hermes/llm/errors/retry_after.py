"""How long a provider asks to wait: from its headers, else from its message."""

import re
import time
from collections.abc import Mapping
from datetime import datetime

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SPAN = r"((?:\d+(?:\.\d+)?\s*(?:ms|s|m|h|d|sec|min|hour|day)\w*\s*)+)"
_WORDS = (
    r"retry.?delay\W+" + _SPAN,
    r"(?:try again|retry|available|reset\w*) (?:in|after)[:\s]+(?:about )?" + _SPAN,
    r"wait (?:for )?" + _SPAN,
    r"(?:retry.?after|resets_in_seconds)\W+(\d+(?:\.\d+)?)",
)
_MOMENTS = (
    r"resets?_at\W+(\d{10,13})\b",
    r"\b(?:reset|renew|available|again|until)\w*\b[^\n]{0,40}?"
    r"(\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:?\d\d))",
)
"""Patterns that state a point in time."""
_COUNTED = ("requests", "tokens", "input-tokens", "output-tokens")


def retry_after(headers: Mapping[str, str], message: str) -> float | None:
    """Seconds to wait; None: not stated, or in the past."""
    low = {k.lower(): v.strip() for k, v in headers.items()}
    now = _parse_date(low.get("date", "")) or time.time()
    stated = low.get("retry-after", "")
    if (ms := _parse_float(low.get("retry-after-ms"))) is not None:
        found: float | None = ms / 1000
    elif (found := _parse_float(stated)) is None and (when := _parse_date(stated)):
        found = when - now
    if found is None:
        found = _search_words(message, now)
    if found is None:
        found = _reset_wait(low, now)
    return found if found is not None and 0 <= found < 10_000_000 else None


def _reset_wait(low: Mapping[str, str], now: float) -> float | None:
    """The longest wait for a limit that is used up; the others do not matter."""
    names = ["x-ratelimit-{}", *(f"x-ratelimit-{{}}-{w}" for w in _COUNTED)]
    names += [f"anthropic-ratelimit-{w}-{{}}" for w in _COUNTED]
    used_up = [
        low.get(n.format("reset"), "") for n in names if low.get(n.format("remaining")) == "0"
    ]
    waits = [wait for text in used_up if (wait := _parse_moment(text, now)) is not None]
    return max(waits, default=None)


def _parse_moment(text: str, now: float) -> float | None:
    """Seconds from now for a span (`6m0s`), seconds, an epoch (also in milliseconds) or a date."""
    number = _parse_float(text)
    if number is not None:
        if number > 1e12:
            return number / 1000 - now
        return number - now if number > 1e9 else number
    if (span := _parse_span(text)) is not None:
        return span
    when = _parse_date(text)
    return when - now if when else None


def _search_words(message: str, now: float) -> float | None:
    for pattern in _WORDS:
        if match := re.search(pattern, message, re.IGNORECASE):
            number = _parse_float(match[1])
            return number if number is not None else _parse_span(match[1])
    for pattern in _MOMENTS:
        if match := re.search(pattern, message, re.IGNORECASE):
            return _parse_moment(match[1], now)
    return None


def _parse_span(text: str) -> float | None:
    pieces = re.findall(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)", text, re.IGNORECASE)
    return sum(float(n) * _UNITS[unit.lower()] for n, unit in pieces) if pieces else None


def _parse_float(text: str | None) -> float | None:
    return float(text) if text and re.fullmatch(r"[+-]?\d+(?:\.\d+)?", text) else None


def _parse_date(text: str) -> float | None:
    if not text:
        return None
    from email.utils import parsedate_to_datetime

    iso = re.match(r"\d{4}-\d\d-\d\dT", text)
    try:
        return (datetime.fromisoformat if iso else parsedate_to_datetime)(text).timestamp()
    except ValueError:
        return None
