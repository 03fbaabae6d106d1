"""How the findings of a judgement are put: what is remembered of a command, what is said."""

from __future__ import annotations

import re
from collections.abc import Iterable

from hermes.exec.command_policy.paths import Zone
from hermes.exec.command_policy.programs.builtin_rules import TWO_DEEP, WITH_SUBCOMMAND

_MAX_REASON = 200


def remembered(argv: tuple[str, ...]) -> tuple[str, ...]:
    """What is remembered of a command: the program and what it is told to do."""
    name = argv[0]
    if name not in WITH_SUBCOMMAND:
        return _of_stranger(argv)
    size = 3 if name in TWO_DEEP else 2
    words = argv[:size]
    if len(words) < 2 or any(w.startswith("-") or "…" in w for w in words[1:]):
        return argv[:2] if len(argv) > 1 and not argv[1].startswith("-") and size == 3 else ()
    return words


def _of_stranger(argv: tuple[str, ...]) -> tuple[str, ...]:
    """Of a program nobody knows: all of it if it is given a text, which may be a program, else
    with the word that may say what it does."""
    if any(" " in word or "\n" in word for word in argv[1:]):
        return () if any("…" in word for word in argv) else argv
    return argv[:2] if len(argv) > 1 and re.fullmatch(r"[A-Za-z][\w:-]*", argv[1]) else argv[:1]


def short(reason: str) -> str:
    return reason if len(reason) <= _MAX_REASON else reason[: _MAX_REASON - 1] + "…"


def where(zones: Iterable[Zone]) -> str:
    return " (" + ", ".join(sorted(_ZONES.get(zone, zone) for zone in zones)) + ")"


_ZONES: dict[Zone, str] = {
    "outside": "outside the workspace",
    "vital": "outside the workspace",
    "unknown": "only known when it runs",
    "secret": "holds credentials",
    "network": "a network connection",
    "git": "git acts on it",
    "device": "a device",
    "top": "the whole workspace",
}
