"""Judging a command with the facts that most tests share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hermes.exec.command_policy import CommandRules, Judgement, judge_command

HOME = Path("/home/somebody/.hermes")
WORKSPACE = Path("/srv/projects/app")
RULES = CommandRules()


def verdict(command: str, **more: Any) -> Judgement:
    facts = {"workspace": WORKSPACE, "home": HOME, "rules": RULES, "sandboxed": True} | more
    return judge_command(command, **facts)


def decision(command: str, **more: Any) -> str:
    return verdict(command, **more).decision
