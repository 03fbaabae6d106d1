"""The operator's rules about commands: read from the configuration, grown by "always"."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from hermes.config.env import is_inside_agent
from hermes.core.errors import ConfigError
from hermes.core.escalation import Access

if TYPE_CHECKING:
    from hermes.exec.command_policy import CommandRules

log = logging.getLogger(__name__)

Prefixes: TypeAlias = tuple[tuple[str, ...], ...]


class Rulebook:
    """One per process: what one session saves holds for the others at once. A rule is in the file
    before it counts here."""

    def __init__(self, home: Path, data: Sequence[Any] = ()) -> None:
        self._home = home
        self._data = list(data)
        self._rules: CommandRules | None = None
        if data:
            self._rules = _load(self._data)  # a bad rule stops the start, not the first command

    @property
    def rules(self) -> CommandRules:
        if self._rules is None:
            self._rules = _load(self._data)
        return self._rules

    @property
    def rule_data(self) -> tuple[Any, ...]:
        """The rules as they stand in config.yaml."""
        return tuple(self._data)

    def render_rules(self, prefixes: Prefixes, access: Access | None = None) -> tuple[str, ...]:
        """The rules that would be saved, each as it would stand in config.yaml."""
        from hermes.config.yaml_edit import render_value

        return tuple(render_value(rule) for rule in _as_data(prefixes, access))

    async def save(self, prefixes: Prefixes, access: Access | None = None) -> str:
        """Allow these for good. Empty, or the sentence why it was not saved."""
        from hermes.config.update import append_items

        if is_inside_agent():
            return "A tool of an agent may not change the configuration."
        new = _as_data(prefixes, access)
        try:
            await asyncio.to_thread(append_items, self._home, "approvals.rules", new, _load)
        except ConfigError as error:
            log.warning("rules %s were not saved: %s", new, error)
            return str(error)
        log.info("saved the rules %s", new)
        self._data += [rule for rule in new if rule not in self._data]
        self._rules = _load(self._data)
        return ""

    async def add_rule(self, rule: dict[str, Any]) -> None:
        """Save a rule of any decision; ConfigError: it is not valid or was not saved."""
        from hermes.config.update import append_items

        await asyncio.to_thread(append_items, self._home, "approvals.rules", [rule], _load)
        self._adopt([*self._data, rule])

    async def remove_rule(self, rule: Any) -> None:
        """Remove a rule; ConfigError: it was not removed."""
        from hermes.config.update import apply_changes

        left = [known for known in self._data if known != rule]
        changes = {"approvals.rules": left or None}
        await asyncio.to_thread(apply_changes, self._home, changes)
        self._adopt(left)

    def _adopt(self, data: list[Any]) -> None:
        self._data = [rule for n, rule in enumerate(data) if rule not in data[:n]]
        self._rules = _load(self._data)


def _load(data: list[Any]) -> CommandRules:
    from hermes.exec.command_policy import CommandRules

    return CommandRules.load_rules(data)


def _as_data(prefixes: Prefixes, access: Access | None) -> list[dict[str, Any]]:
    if not prefixes:
        return []
    from hermes.exec.command_policy import build_grant, rule_to_data

    return [rule_to_data(build_grant(prefix, access)) for prefix in prefixes]
