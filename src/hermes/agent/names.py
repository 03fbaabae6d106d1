"""Finds the tool a model meant when it wrote a name the registry does not know."""

from __future__ import annotations

from collections.abc import Collection

_AFFIXES = ("tool", "function", "functions", "default", "api", "call", "core")
_MAX_LENGTH = 200


def resolve(name: str, known: Collection[str]) -> str | None:
    """The one known tool that `name` can only mean, or None."""
    if name in known:
        return name
    if not name or len(name) > _MAX_LENGTH:
        return None
    folded: dict[str, list[str]] = {}
    for candidate in known:
        folded.setdefault(_fold(candidate), []).append(candidate)
    for form in _forms(name):
        if hits := folded.get(form):
            return hits[0] if len(hits) == 1 else None
    return None


def _forms(name: str) -> list[str]:
    """What the name may stand for, most literal first."""
    words = _words(name)
    forms = ["".join(words)]
    while len(words) > 1 and words[0] in _AFFIXES:
        words = words[1:]
        forms.append("".join(words))
    whole = words
    while len(words) > 1 and words[-1] in _AFFIXES:
        words = words[:-1]
        forms.append("".join(words))
    if len(whole[-1]) > 4 and whole[-1].endswith("tool"):
        forms.append("".join(whole)[: -len("tool")])
    return forms + [half for form in forms if (half := _unrepeated(form))]


def _words(name: str) -> list[str]:
    """Lower-case words, split at punctuation; `ReadFile` needs no split, folding joins them."""
    spaced = "".join([c if c.isalnum() else " " for c in name.casefold()])
    return spaced.split() or [""]


def _fold(name: str) -> str:
    return "".join(_words(name))


def _unrepeated(text: str) -> str:
    """`abcabc` -> `abc`: a name repeated in every chunk of a stream."""
    at = (text + text).find(text, 1)
    return text[:at] if 0 < at < len(text) else ""
