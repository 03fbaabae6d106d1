"""Removes secrets from text: known values in all their encodings, and tokens by their shape."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING

from hermes.core.text import compile_pattern

if TYPE_CHECKING:
    from hermes.core.redaction.pattern import SecretFamily

REDACTED = "[redacted]"
"""Replaces a known value; a token of a known shape is replaced by the name of its family."""
_SHORTEST = 8
"""Shorter values could be ordinary words."""
_RUN = 16
"""Every token and encoded value has at least this many characters of the kind below in a row."""
_WORD = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.+/="
_CLASSES = bytes(97 if byte in _WORD else 10 for byte in range(256))
_LONG = b"a" * _RUN


class Redactor:
    """Costs nothing until it is used. Text is searched for a few literals, most of them only in its
    long runs of token characters; patterns run only when a literal was found."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._values = tuple(values)

    def redact(self, text: str) -> str:
        runs = _find_runs(text)
        for forms in (*self._known_values, *_learned_values):
            text = forms.redact_value(text, runs)
        return _redact_shapes(text, runs)

    def find_beginning(self, text: str) -> int:
        """Where the end of the text may be the beginning of a known value; its length when it is
        none."""
        known = (*self._known_values, *_learned_values)
        return min((forms.find_beginning(text) for forms in known), default=len(text))

    @cached_property
    def _known_values(self) -> list[_KnownValue]:
        values = {value.strip() for value in self._values}
        # The longest first: a secret that contains another must be removed entirely.
        usable = sorted((v for v in values if len(v) >= _SHORTEST), key=lambda v: (-len(v), v))
        return [_KnownValue(value) for value in usable]


def learn_secret(value: str) -> None:
    """Have every Redactor of this process remove a secret that it was given while it runs."""
    if len(value.strip()) >= _SHORTEST:
        _learned_values.append(_KnownValue(value.strip()))


class _KnownValue:
    """One secret in all its encodings."""

    def __init__(self, value: str) -> None:
        self._plain = sorted(_plain_forms(value), key=len, reverse=True)
        self._coded = sorted(_coded_forms(value), key=len, reverse=True)
        # Output may be wrapped inside an encoding; then its first or second piece is still intact.
        self._pieces = {piece for form in self._coded for piece in _split_form(form)}
        self._short = any(len(form) < 2 * _RUN for form in self._coded)

    def redact_value(self, text: str, runs: str) -> str:
        for form in self._plain:
            if form in text:
                text = text.replace(form, REDACTED)
        where = text if self._short else runs
        if any(piece in where for piece in self._pieces):
            text = self._wrapped_forms.sub(REDACTED, text)
        return text

    def find_beginning(self, text: str) -> int:
        least = len(text)
        for form in self._plain:
            at = text.find(form[0], max(0, len(text) - len(form) + 1))
            while 0 <= at < least and not form.startswith(text[at:]):
                at = text.find(form[0], at + 1)
            if 0 <= at < least:
                least = at
        return least

    @cached_property
    def _wrapped_forms(self) -> re.Pattern[str]:
        brk = r"(?:\r?\n[ \t]*)?"
        return re.compile("|".join(brk.join(map(re.escape, form)) for form in self._coded))


_learned_values: list[_KnownValue] = []


def _find_runs(text: str) -> str:
    """The runs of at least `_RUN` token characters, one per line, each with the character before:
    it tells whether the run begins with the letter of an escape."""
    coded = text.encode("latin-1", "replace").translate(_CLASSES)  # a byte for a character
    found: list[str] = []
    at = coded.find(_LONG)
    while at >= 0:
        end = coded.find(b"\n", at + _RUN)
        if end < 0:
            end = len(coded)
        found.append(text[max(at - 1, 0) : end])
        at = coded.find(_LONG, end)
    return "\n".join(found)


def _redact_shapes(text: str, runs: str) -> str:
    for family in _find_hinted(text, runs):
        if family.apart:
            text = compile_pattern(family.pattern).sub(partial(_mark_match, family), text)
        elif compile_pattern(family.pattern).search(runs) is not None:
            text = "".join(_redact_tokens(family, text))
    return text


def _find_hinted(text: str, runs: str) -> list[SecretFamily]:
    """The families that may occur in the text, in their order; searches for each literal once."""
    families, apart, inside = _index_hints()
    picked = {place for hint, places in apart.items() if hint in text for place in places}
    if runs:
        picked |= {place for hint, places in inside.items() if hint in runs for place in places}
    return [families[place] for place in sorted(picked)]


@cache
def _index_hints() -> tuple[list[SecretFamily], dict[str, list[int]], dict[str, list[int]]]:
    """All families, and the indexes of those that a literal hints at: in the whole text, and in its
    runs. A family without a hint is always tried."""
    from hermes.core.redaction.context_patterns import CONTEXT_FAMILIES
    from hermes.core.redaction.token_patterns import TOKEN_FAMILIES

    families = [*TOKEN_FAMILIES, *CONTEXT_FAMILIES]
    hints: tuple[dict[str, list[int]], dict[str, list[int]]] = {}, {}
    for place, family in enumerate(families):
        for hint in dict.fromkeys(family.hints or ("",)):
            hints[not family.apart].setdefault(hint, []).append(place)
    return families, *hints


def _redact_tokens(family: SecretFamily, text: str) -> Iterator[str]:
    """Only what begins like a token. That is asked last: a search that starts with the family's
    own letters is ten times faster."""
    from hermes.core.redaction.pattern import BEGIN

    anywhere, begun = compile_pattern(family.pattern), compile_pattern(BEGIN + family.pattern)
    at = kept = 0
    while rough := anywhere.search(text, at):
        at = rough.end()
        if found := begun.search(text, rough.start(), at):
            yield text[kept : found.start()]
            yield _mark_match(family, found)
            kept = found.end()
    yield text[kept:]


def _mark_match(family: SecretFamily, found: re.Match[str]) -> str:
    group = 1 if found.re.groups else 0
    if found[group] is None or (family.check is not None and not family.check(found[group])):
        return found[0]
    start, end = found.span(group)
    before, after = found.string[found.start() : start], found.string[end : found.end()]
    return f"{before}[redacted:{family.name}]{after}"


def _plain_forms(value: str) -> set[str]:
    from json import dumps
    from urllib.parse import quote, quote_plus

    forms = {value, value.replace("/", r"\/"), value.replace("&", "&amp;")}
    forms |= {dumps(value)[1:-1], dumps(value, ensure_ascii=False)[1:-1]}
    for quoted in (
        quote(value, safe="", errors="replace"),
        quote(value, safe="/", errors="replace"),
        quote_plus(value, errors="replace"),
    ):
        forms |= {quoted, re.sub("%..", lambda m: m[0].lower(), quoted)}
    pairs = value.encode("utf-8", "surrogatepass").hex(" ").split()
    for sign in ("%", "\\x", " ", ":"):  # every byte written out
        spelt = sign.join(["", *pairs] if sign in ("%", "\\x") else pairs)
        forms |= {spelt, spelt.replace(sign, "\0").upper().replace("\0", sign)}
    return forms


def _coded_forms(value: str) -> set[str]:
    """The value in hex, and inside base64 at each of the three offsets."""
    from base64 import b64encode

    raw = value.encode("utf-8", "surrogatepass")
    forms = {raw.hex(), raw.hex().upper()}
    for skew in range(3):
        # Only characters made of the value's own bits: its neighbours decide the others.
        coded = b64encode(b"\0" * skew + raw).decode()
        whole = (skew + len(raw)) // 3 * 4
        inner = coded[(0, 2, 3)[skew] : whole]
        if len(inner) >= _SHORTEST:
            forms |= {inner, inner.replace("+", "-").replace("/", "_")}
    return forms


def _split_form(form: str) -> tuple[str, ...]:
    size = 12 if len(form) >= 24 else len(form) // 2 if len(form) >= _RUN else len(form)
    return form[:size], form[size : 2 * size] or form
