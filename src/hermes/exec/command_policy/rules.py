"""The user's rules about commands, checked when they are loaded."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import Any

import msgspec

from hermes.core.errors import ConfigError
from hermes.core.escalation import Access
from hermes.exec.command_policy.types import STRICTNESS, Argv, CommandRule


class CommandRules:
    """Deny beats ask beats allow; hard denials beat all of them."""

    def __init__(self, rules: Iterable[CommandRule] = ()) -> None:
        self.rules = tuple(rules)
        for rule in self.rules:
            _check_examples(rule)

    @classmethod
    def load_rules(cls, data: Any) -> CommandRules:
        """Load a list of mappings; `prefix` may be a string, as it would be typed."""
        if data is None:
            return cls()
        if not isinstance(data, list):
            raise ConfigError("The approval rules must be a list.")
        return cls(_parse_rule(number, item) for number, item in enumerate(data, 1))

    def with_grants(self, prefixes: Iterable[tuple[str, ...]]) -> CommandRules:
        """These rules and permission for the prefixes of "session" and "always" answers."""
        return self.with_rules(map(build_grant, prefixes))

    def with_rules(self, rules: Iterable[CommandRule]) -> CommandRules:
        return CommandRules(dict.fromkeys((*self.rules, *rules)))

    def grants_access(self, commands: Iterable[Argv], access: Access) -> bool:
        """Whether rules give all of these commands what is asked for."""
        rules = [r for r in self.rules if r.escalate and r.escalate.covers(access)]
        return all(any(rule.matches_command(argv) for rule in rules) for argv in commands)

    def find_rule(self, argv: tuple[str, ...]) -> CommandRule | None:
        """The strictest rule that matches a simple command."""
        found = [r for r in self.rules if r.escalate is None and r.matches_command(argv)]
        return max(found, key=lambda rule: STRICTNESS[rule.decision]) if found else None


def build_grant(prefix: tuple[str, ...], access: Access | None = None) -> CommandRule:
    """The rule for an answer of "session" or "always"."""
    from hermes.exec.command_policy.words import REMEMBERED_PREFIXES

    exact = REMEMBERED_PREFIXES.isdisjoint((prefix[:1], prefix[:2]))
    return CommandRule("allow", prefix, escalate=access, exact=exact)


def rule_to_data(rule: CommandRule) -> dict[str, Any]:
    """A rule as plain data, which `CommandRules.load_rules` reads back."""
    return msgspec.json.decode(msgspec.json.encode(rule), type=dict[str, Any])


def _parse_rule(number: int, item: Any) -> CommandRule:
    if isinstance(item, dict) and isinstance(item.get("prefix"), str):
        item = item | {"prefix": _split_words(item["prefix"])}
    try:
        return msgspec.convert(item, CommandRule)
    except msgspec.ValidationError as error:
        raise ConfigError(f"Approval rule {number} is not valid: {error}.") from None


def _check_examples(rule: CommandRule) -> None:
    name = " ".join(w if isinstance(w, str) else "|".join(w) for w in rule.prefix)
    if not rule.prefix or not all(rule.prefix) or not all(map(all, rule.prefix)):
        raise ConfigError(f"The approval rule {name!r} has an empty prefix.")
    if rule.escalate and rule.decision != "allow":
        raise ConfigError(f"The approval rule {name!r} escalates, so its decision must be allow.")
    for example in (*rule.match, *rule.miss):
        if (does := rule.matches_command(_split_words(example))) != (example in rule.match):
            wrong = (
                f"not match {example!r}, but does" if does else f"match {example!r}, but does not"
            )
            raise ConfigError(f"The approval rule {name!r} should {wrong}.")


def _split_words(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise ConfigError(f"The example {text!r} of an approval rule: {error}.") from None
