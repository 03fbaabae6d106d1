"""One table of the paths that tools must not read or write, and what it says about a path."""

import os
from collections.abc import Iterator
from functools import lru_cache
from itertools import starmap
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias, cast

from hermes.config.paths import CONTEXT_FILES
from hermes.core.errors import ConfigError
from hermes.core.text import WordLists

Effect: TypeAlias = Literal["hide", "guard", "ask"]
Scope: TypeAlias = Literal["anywhere", "home", "root", "top"]


class PathRule(NamedTuple):
    """What `path_rules.txt` says about some names."""

    effect: Effect
    scope: Scope
    reason: str
    names: tuple[str, ...]


_LISTS = WordLists(Path(__file__).with_suffix(".txt"))
_OWN_FOLDERS = _LISTS.get_words("own folders")
_OWN_FILES = tuple(_LISTS.get_words("own files"))
SYSTEM_PATHS = tuple(map(Path, " ".join(_LISTS.get_lines("readable system")).split()))
_OWN_STEERING = sorted(_LISTS.get_words("own steering"))
_PROCESS_SECRETS = frozenset({"environ", "mem", "kcore", "auxv"})
FREE_IN_GIT = (".git", "info", "exclude")
_Row: TypeAlias = tuple[tuple[str, ...], Effect, str]


@lru_cache(maxsize=1)
def load_rules() -> tuple[PathRule, ...]:
    tables = ((title, rows) for title, rows in _LISTS.list_tables() if "|" in title)
    return tuple(starmap(_parse_rule, tables))


def _parse_rule(title: str, rows: list[str]) -> PathRule:
    effect, scope, reason = title.split(" | ")
    names = " ".join(rows).replace("@context", " ".join(CONTEXT_FILES)).split()
    return PathRule(
        cast(Effect, effect),
        cast(Scope, scope),
        reason,
        tuple(name.replace("%20", " ") for name in names),
    )


def list_names(*effects: Effect, scope: Scope) -> list[str]:
    """The names of the rules with one of these effects and this scope."""
    rules = (rule for rule in load_rules() if rule.effect in effects and rule.scope == scope)
    return [name for rule in rules for name in rule.names]


def belongs_to_agent(name: str) -> bool:
    """Whether a name in the agent's home is one of its own files or folders."""
    name = name.casefold()
    return name in _OWN_FOLDERS or name.startswith(_OWN_FILES) or ".db" in name


def find_agent_paths(
    workspace: Path, agent_home: Path, user_home: Path
) -> tuple[list[Path], list[Path]]:
    """What of the agent's own to hide and to keep missing in `workspace`; all paths are real ones.
    Raises ConfigError when the workspace is one of the agent's own folders."""
    homes = {agent_home, user_home / ".hermes"}
    if agent_home.parent.name == "profiles":
        homes.add(agent_home.parent.parent)
    home = max(
        (h for h in homes if workspace.is_relative_to(h)), key=lambda h: len(h.parts), default=None
    )
    if home is None:
        return [], []
    if workspace == home:
        names = sorted(filter(belongs_to_agent, os.listdir(home)))  # noqa: PTH208
        return [home / name for name in names], [home / name for name in _OWN_STEERING]
    if belongs_to_agent(workspace.relative_to(home).parts[0]):
        raise ConfigError(
            f"{workspace} belongs to the agent itself, so no command may run in it: choose another "
            "folder."
        )
    return [], []


def explain_denial(path: Path, user_home: Path, *, write: bool) -> str:
    """Why no tool may read (or write) this real path, whoever allows it; empty when one may."""
    parts = _fold_parts(path)
    if parts[:1] == ("proc",) and parts[-1] in _PROCESS_SECRETS:
        return "it holds credentials"
    for effect, reason in _match_rules(parts, user_home):
        if effect == "hide":
            return reason
        if write and effect == "guard" and parts[-3:] != FREE_IN_GIT:
            return reason
    return ""


def explain_influence(path: Path, workspace: Path, user_home: Path) -> str:
    """Why a person must see a change to this real path; empty: programs outside do not obey it."""
    parts = _fold_parts(path)
    for effect, reason in _match_rules(parts, user_home):
        if effect == "ask":
            return reason
    depth = len(workspace.parts)
    below = parts[depth - 1 :] if path.parts[:depth] == workspace.parts else ()
    return next((reason for _, reason in _match_at(below, 0, "top")), "")


def resolve_links(path: str) -> str:
    """The path with links resolved, or unchanged where that is not permitted, as in /proc, or where
    it is just being replaced."""
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):
        return path


def _fold_parts(path: Path) -> tuple[str, ...]:
    parts = tuple([part.casefold() for part in path.parts[1:]])
    return parts[1:] if parts[:1] == ("private",) else parts


def _match_rules(parts: tuple[str, ...], user_home: Path) -> Iterator[tuple[Effect, str]]:
    anywhere = _index_rules()["anywhere"]
    for at, part in enumerate(parts):
        if part in anywhere or _find_ending(part) in anywhere:
            yield from _match_at(parts, at, "anywhere")
    yield from _match_at(parts, 0, "root")
    for depth in _find_homes(parts, _fold_home(user_home)):
        yield from _match_at(parts, depth, "home")


def _find_homes(parts: tuple[str, ...], user_home: tuple[str, ...]) -> Iterator[int]:
    """How deep the home folders are that hold this path."""
    if user_home and parts[: len(user_home)] == user_home:
        yield len(user_home)
    if parts[:1] == ("root",) != user_home:
        yield 1
    elif parts[:1] in (("home",), ("users",)) and parts[:2] != user_home:
        yield 2


def _match_at(parts: tuple[str, ...], at: int, scope: Scope) -> Iterator[tuple[Effect, str]]:
    if at < len(parts):
        rows = _index_rules()[scope]
        for first in (parts[at], _find_ending(parts[at])):
            for names, effect, reason in rows.get(first, ()):
                if parts[at + 1 : at + len(names)] == names[1:]:
                    yield effect, reason


def _find_ending(name: str) -> str:
    """How a rule writes the names that end like this one."""
    return "*" + "".join(name.rpartition(".")[1:])


@lru_cache(maxsize=8)
def _fold_home(user_home: Path) -> tuple[str, ...]:
    return _fold_parts(Path(os.path.realpath(user_home)))


@lru_cache(maxsize=1)
def _index_rules() -> dict[Scope, dict[str, list[_Row]]]:
    """The rules by their scope and their first name."""
    index: dict[Scope, dict[str, list[_Row]]] = {rule.scope: {} for rule in load_rules()}
    for effect, scope, reason, names in load_rules():
        for name in names:
            parts = tuple(name.casefold().rstrip("/").split("/"))
            index[scope].setdefault(parts[0], []).append((parts, effect, reason))
    return index
