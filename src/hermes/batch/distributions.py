"""Distributions: by what chance an item gets each toolset."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping

from hermes.core.errors import ConfigError

_ALL = ("web", "vision", "image_gen", "terminal", "file", "browser")
BUILT_IN: Mapping[str, Mapping[str, float]] = {
    "default": dict.fromkeys(_ALL, 100),
    "image_gen": {"image_gen": 90, "vision": 90, "web": 55, "terminal": 45},
    "research": {"web": 90, "browser": 70, "vision": 50, "terminal": 10},
    "science": {
        **{"web": 94, "terminal": 94, "file": 94},
        **{"vision": 65, "browser": 50, "image_gen": 15},
    },
    "development": {"terminal": 80, "file": 80, "web": 30, "vision": 10},
    "safe": {"web": 80, "browser": 70, "vision": 60, "image_gen": 60},
    "balanced": dict.fromkeys(_ALL, 50),
    "minimal": {"web": 100},
    "terminal_only": {"terminal": 100, "file": 100},
    "terminal_web": {"terminal": 100, "file": 100, "web": 100},
    "creative": {"image_gen": 90, "vision": 90, "web": 30},
    "reasoning": {"web": 90, "file": 60, "terminal": 20},
    "browser_use": {"browser": 100, "web": 80, "vision": 70},
    "browser_only": {"browser": 100},
    "browser_tasks": {"browser": 97, "vision": 12, "terminal": 15},
    "terminal_tasks": {
        **{"terminal": 97, "file": 97, "web": 97},
        **{"browser": 75, "vision": 50, "image_gen": 10},
    },
    "mixed_tasks": {
        **{"browser": 92, "terminal": 92, "file": 92},
        **{"web": 35, "vision": 15, "image_gen": 15},
    },
}


def find_distribution(
    name: str, configured: Mapping[str, Mapping[str, float]]
) -> Mapping[str, float]:
    """The chances in per cent, by toolset."""
    known = {**BUILT_IN, **configured}
    if name in known:
        return known[name]
    from difflib import get_close_matches

    close = get_close_matches(name, known, 1, 0.6)
    hint = f"did you mean {close[0]}?" if close else "see hermes batch distributions"
    raise ConfigError(f"There is no distribution {name}; {hint}")


def choose_toolsets(
    chances: Mapping[str, float], available: Collection[str], seed: int, item: str
) -> tuple[str, ...]:
    """The toolsets of an item, each by its own chance from the seed and the item; the likeliest
    when none came up. Toolsets that are not there are left out."""
    present = {name: chance for name, chance in chances.items() if name in available}
    chosen = tuple(
        name for name, chance in present.items() if _draw_number(seed, item, name) * 100 < chance
    )
    if chosen or not present:
        return chosen
    return (max(present, key=lambda name: present[name]),)


def _draw_number(seed: int, item: str, name: str) -> float:
    """A number in [0, 1) that is the same on every machine and in every version."""
    digest = hashlib.sha256(f"{seed}\0{item}\0{name}".encode()).digest()
    return int.from_bytes(digest[:7]) / 2**56
