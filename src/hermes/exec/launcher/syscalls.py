"""The numbers of system calls, by what is done about them."""

# ruff: noqa: PTH120, PTH123 - pathlib takes 3 ms
import os
from typing import TypeAlias

CallNumbers: TypeAlias = dict[str, tuple[int, int]]
"""Name -> number on x86_64 and on aarch64; -1: it does not exist there."""


def _load_groups() -> dict[str, CallNumbers]:
    groups: dict[str, CallNumbers] = {}
    with open(f"{os.path.dirname(__file__)}/syscalls.txt", encoding="ascii") as file:
        parts = file.read().split("\n[")[1:]
    for title, _, words in (part.partition("]\n") for part in parts):
        rows = (word.split(":") for word in words.split())
        groups[title] = {name: (int(x86), int(arm)) for name, x86, arm in rows}
    return groups


CALL_GROUPS = _load_groups()
CALL_NUMBERS = {name: both for group in CALL_GROUPS.values() for name, both in group.items()}
