"""Finds tools by their file names and imports the chosen ones.

`tools/NAME.py` defines the Tool NAME of the toolset `core`, `tools/SET/NAME.py` one of the toolset
SET. A name with a leading underscore, and this module, are no tools.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from hermes.core.errors import ConfigError
from hermes.core.tool import Tool

CORE = "core"
ALL = "all"
NONE = "none"
_PACKAGE = "hermes.tools"


@cache
def catalog() -> Mapping[str, Mapping[str, str]]:
    """Toolset -> tool -> module, without importing any."""
    root = Path(__file__).parent
    folders = sorted(p.name for p in root.iterdir() if p.is_dir() and p.name[0] not in "_.")
    found = {CORE: _modules(root, _PACKAGE)}
    found.update({name: _modules(root / name, f"{_PACKAGE}.{name}") for name in folders})
    return found


def _modules(folder: Path, package: str) -> dict[str, str]:
    names = sorted(p.stem for p in folder.iterdir() if p.suffix == ".py" and p.name[0] != "_")
    return {name: f"{package}.{name}" for name in names if f"{package}.{name}" != __name__}


def select(toolsets: Sequence[str] | None) -> dict[str, Tool[Any]]:
    """The tools of these toolsets (or tools, by name): by default `core`, and nothing for `none`.

    The order depends only on what is selected: it is part of the cached prefix of a request.
    """
    sets = catalog()
    modules = {name: module for tools in sets.values() for name, module in tools.items()}
    chosen: set[str] = set()
    for word in (CORE,) if toolsets is None else toolsets:
        if word == ALL:
            chosen.update(modules)
        elif word in sets:
            chosen.update(sets[word])
        elif word in modules:
            chosen.add(word)
        elif word != NONE:
            raise ConfigError(_unknown(word, [*sets, *modules, ALL, NONE]))
    return {name: _load(name, modules[name]) for name in sorted(chosen)}


def _load(name: str, module: str) -> Tool[Any]:
    found = getattr(import_module(module), name)
    if not isinstance(found, Tool) or found.name != name:
        raise TypeError(f"{module} does not define the tool {name}")
    return found


def _unknown(word: str, valid: Sequence[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(word.casefold(), valid, n=1)
    hint = f"Did you mean {near[0]!r}?" if near else f"Valid: {', '.join(valid)}."
    return f"There is no toolset or tool {word!r}. {hint}"
