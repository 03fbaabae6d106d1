"""Secrets taken out of text: known values in the forms they travel in, and the usual key shapes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property

MARK = "[redacted]"
_SHORTEST = 8
"""Shorter values are words: they would be blanked out of everything."""

SHAPES = (
    r"sk-(?:ant-|or-|proj-|svcacct-|admin-)?[A-Za-z0-9_\-]{16,}",
    r"(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{16,}",
    r"AIza[A-Za-z0-9_\-]{30,}",
    r"ya29\.[A-Za-z0-9_\-.]{20,}",
    r"(?:gsk|hf|fw|r8|nvapi|csk|tgp)[_\-][A-Za-z0-9_\-]{20,}",
    r"(?:xai|pplx|tvly|pcsk)-[A-Za-z0-9_\-]{20,}",
    r"gh[pousr]_[A-Za-z0-9]{20,}",
    r"github_pat_[A-Za-z0-9_]{20,}",
    r"glpat-[A-Za-z0-9_\-]{16,}",
    r"xox[abposr]-[A-Za-z0-9\-]{10,}",
    r"xapp-[A-Za-z0-9\-]{10,}",
    r"(?:AKIA|ASIA)[A-Z0-9]{16}",
    r"ABSK[A-Za-z0-9+/=]{40,}",
    r"eyJ[A-Za-z0-9_\-]{8,}\.eyJ[A-Za-z0-9_\-]{8,}(?:\.[A-Za-z0-9_\-]*)?",
)
_BEARER = r"(?i:\b(bearer|basic)\s+)(?!\[)[A-Za-z0-9._~+/=\-]{8,}"
_IN_URL = r"(://[^/\s:@]{1,256}:)[^/\s@]{1,256}@"


class Redactor:
    """Costs nothing until it is used. `clean` never lengthens a secret's neighbourhood: whatever
    matches becomes one mark."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._values = tuple(values)

    def clean(self, text: str) -> str:
        if self._known is not None:
            text = self._known.sub(MARK, text)
        text = _shapes().sub(MARK, text)
        text = _bearer().sub(rf"\1 {MARK}", text)
        return _userinfo().sub(rf"\1{MARK}@", text)

    @cached_property
    def _known(self) -> re.Pattern[str] | None:
        forms: set[str] = set()
        for value in self._values:
            if len(value.strip()) >= _SHORTEST:
                forms |= _forms(value.strip())
        if not forms:
            return None
        # The longest first: a secret that contains another must not leave its tail behind.
        return re.compile("|".join(map(re.escape, sorted(forms, key=len, reverse=True))))


def _forms(value: str) -> set[str]:
    """The value plain, percent-encoded and inside base64 at each of the three offsets."""
    from base64 import b64encode
    from urllib.parse import quote, quote_plus

    raw = value.encode("utf-8", "surrogatepass")
    forms = {value, quote_plus(value, errors="replace")}
    forms |= {quote(value, safe=safe, errors="replace") for safe in ("", "/")}
    for skew in range(3):
        # Only characters made of the value's own bits: its neighbours decide the others.
        coded = b64encode(b"\0" * skew + raw).decode()
        whole = (skew + len(raw)) // 3 * 4
        inner = coded[(0, 2, 3)[skew] : whole]
        if len(inner) >= _SHORTEST:
            forms |= {inner, inner.replace("+", "-").replace("/", "_")}
    return forms


_compiled: dict[str, re.Pattern[str]] = {}


def _pattern(source: str) -> re.Pattern[str]:
    found = _compiled.get(source)
    if found is None:
        found = _compiled[source] = re.compile(source)
    return found


def _shapes() -> re.Pattern[str]:
    return _pattern(r"(?<![A-Za-z0-9])(?:" + "|".join(SHAPES) + ")")


def _bearer() -> re.Pattern[str]:
    return _pattern(_BEARER)


def _userinfo() -> re.Pattern[str]:
    return _pattern(_IN_URL)
