"""Finds the tool that a model meant by an unknown name."""

from collections.abc import Collection, Iterator

_AFFIXES = frozenset(
    {"tool", "tools", "function", "functions", "default", "api", "call", "core"}
    | {"channel", "commentary", "json"}
)
"""Words that models and servers add to a name: `functions.x`, `default_api.x`, `x_tool`, `x:0`."""
_MAX_LENGTH = 200
_MIN_PREFIX = 4


def resolve_name(name: str, known: Collection[str]) -> str | None:
    """The only tool that `name` can mean, or None."""
    if name in known:
        return name
    if not name or len(name) > _MAX_LENGTH:
        return None
    folded: dict[str, list[str]] = {}
    for candidate in known:
        folded.setdefault("".join(_split_words(candidate)), []).append(candidate)
    for form in _list_forms(name):
        if hits := folded.get(form):
            return hits[0] if len(hits) == 1 else None
    start = "".join(_split_words(name))
    hits = [tool for form, tools in folded.items() if form.startswith(start) for tool in tools]
    return hits[0] if len(hits) == 1 and len(start) >= _MIN_PREFIX else None


def _list_forms(name: str) -> Iterator[str]:
    """The folded forms the name may stand for, the most literal first."""
    words = _split_words(name)
    wholes = ["".join(words)]
    while len(words) > 1 and words[0] in _AFFIXES:
        words = words[1:]
        wholes.append("".join(words))
    while len(words) > 1 and (words[-1] in _AFFIXES or words[-1].isdigit()):
        words = words[:-1]
        wholes.append("".join(words))
    yield from wholes
    for whole in wholes:
        once = _undouble_name(whole)
        yield once
        yield once.removesuffix("tool")


def _split_words(name: str) -> list[str]:
    """Lower-case words, split at whatever is no letter or digit."""
    return "".join([c if c.isalnum() else " " for c in name.casefold()]).split()


def _undouble_name(text: str) -> str:
    """`abcabc` -> `abc`: a stream that repeated the name in every chunk."""
    return text[: (text + text).find(text, 1)]
