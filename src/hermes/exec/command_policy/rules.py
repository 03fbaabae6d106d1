"""The rules of one session: the builtin ones and the operator's, checked when they are loaded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from hermes.core.errors import ConfigError
from hermes.exec.command_policy.types import STRICTNESS, Rule


class Rules:
    """Among the operator's rules deny beats ask beats allow; they override the builtin ones,
    except what is denied for everybody."""

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        self.own = tuple(rules)
        for rule in self.own:
            check_examples(rule)
        self._index = by_program(self.own)

    @classmethod
    def load(cls, data: Any) -> Rules:
        """From plain data: a list of mappings. `prefix` may be one text, as it would be typed."""
        if data is None:
            return cls()
        if not isinstance(data, list):
            raise ConfigError("The approval rules must be a list.")
        return cls(_rule(number, item) for number, item in enumerate(data, 1))

    def granting(self, prefixes: Iterable[tuple[str, ...]]) -> Rules:
        """The same and these prefixes allowed: what "session" and "always" mean."""
        known = set(self.own)
        return Rules((*self.own, *(r for r in map(grant, prefixes) if r not in known)))

    def decide(self, argv: tuple[str, ...]) -> Rule | None:
        """The strictest of the operator's rules for a simple command."""
        found = [rule for rule in self._index.get(argv[0], ()) if rule.goes_on(argv)]
        return max(found, key=lambda rule: STRICTNESS[rule.decision]) if found else None


def grant(prefix: tuple[str, ...]) -> Rule:
    """The rule that an answer of "session" or "always" stands for."""
    return Rule("allow", prefix, "allowed by an earlier answer")


def as_data(rule: Rule) -> dict[str, Any]:
    """For a file of rules; `Rules.load` reads it back."""
    data = {"decision": rule.decision, "prefix": [_plain(word) for word in rule.prefix]}
    extra = {"reason": rule.reason, "match": list(rule.match), "miss": list(rule.miss)}
    return data | {key: value for key, value in extra.items() if value}


def _plain(word: str | tuple[str, ...]) -> str | list[str]:
    return word if isinstance(word, str) else list(word)


def by_program(rules: Iterable[Rule]) -> dict[str, list[Rule]]:
    index: dict[str, list[Rule]] = {}
    for rule in rules:
        first = rule.prefix[0]
        for name in (first,) if isinstance(first, str) else first:
            index.setdefault(name, []).append(rule)
    return index


def _rule(number: int, item: Any) -> Rule:
    if isinstance(item, dict) and isinstance(item.get("prefix"), str):
        item = item | {"prefix": _words(item["prefix"])}
    try:
        return msgspec.convert(item, Rule)
    except msgspec.ValidationError as error:
        raise ConfigError(f"Approval rule {number} is not valid: {error}.") from None


def check_examples(rule: Rule) -> None:
    name = " ".join(w if isinstance(w, str) else "|".join(w) for w in rule.prefix)
    if not rule.prefix or not all(rule.prefix) or not all(map(all, rule.prefix)):
        raise ConfigError(f"The approval rule {name!r} has an empty prefix.")
    for example in rule.match:
        if not rule.covers(_words(example)):
            raise ConfigError(f"The approval rule {name!r} should match {example!r}, but does not.")
    for example in rule.miss:
        if rule.covers(_words(example)):
            raise ConfigError(f"The approval rule {name!r} should not match {example!r}, but does.")


def _words(text: str) -> tuple[str, ...]:
    if not set(text) & set("'\"\\#"):
        return tuple(text.split())
    import shlex

    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise ConfigError(f"The example {text!r} of an approval rule: {error}.") from None
