"""The keys of config.yaml as forms show them: type, default, help, category, who sets them."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin

import msgspec
from msgspec import Struct

from hermes.config import schema
from hermes.config.api_server import VARIABLES as API_SERVER_VARIABLES
from hermes.config.schema import Config
from hermes.config.secrets import Secrets
from hermes.config.validate import field_types, is_struct

CATEGORIES: dict[str, tuple[str, ...]] = {
    "Models": ("model", "providers", "fallback_providers", "auxiliary"),
    "Agent": ("agent", "compression", "timezone", "delegation", "trace"),
    "Safety": ("approvals", "sandbox"),
    "Terminal": ("terminal", "display"),
    "Web and tools": ("web", "browser", "tools", "mcp_servers"),
    "Budget": ("budget",),
    "Knowledge": ("memory", "skills"),
    "Extensions": ("plugins", "hooks"),
    "Schedule": ("cron", "batch"),
    "Platforms": ("gateway", "platforms"),
    "Dashboard": ("dashboard",),
    "Cluster": ("cluster",),
}
"""Category -> its sections. Every section of the schema is in exactly one."""
SENSITIVE = (
    *("approvals", "sandbox", "tools", "platforms", "mcp_servers", "plugins", "hooks"),
    *("dashboard", "cluster"),
)
"""Sections whose changes are shown and confirmed before they are written."""


FieldKind: TypeAlias = Literal["bool", "integer", "number", "text", "choice", "list", "other"]


class ConfigField(Struct, frozen=True):
    key: str
    category: str
    kind: FieldKind
    default: Any
    help: str
    choices: tuple[str, ...] = ()
    optional: bool = False


@cache
def list_fields() -> tuple[ConfigField, ...]:
    """Every key that has a fixed name; maps with names of the user's are one field."""
    helps = _read_helps()
    default = msgspec.to_builtins(Config())
    found = []
    for key, owner, name, kind in _walk_keys(Config, ""):
        section = key.partition(".")[0]
        category = next(c for c, sections in CATEGORIES.items() if section in sections)
        help = _find_help(helps, owner, name)
        choices, optional = _list_choices(kind), NoneType in _unwrap(kind)
        value = _find_default(default, key)
        found.append(ConfigField(key, category, _name_kind(kind), value, help, choices, optional))
    return tuple(_order_fields(found))


def list_overridden_keys(written: dict[str, Any], config: Config, secrets: Secrets) -> set[str]:
    """The keys whose values come from environment variables; `written`: what the file says."""
    found = set()
    if any(secrets.get(name) for name in API_SERVER_VARIABLES):
        found.add("platforms")
    sections = (written.get(name) for name in ("model", "cluster"))
    model, cluster = (section if isinstance(section, dict) else {} for section in sections)
    if secrets.get("OPENAI_BASE_URL") and not model.get("base_url") and not model.get("provider"):
        found.add("model.base_url")
    if secrets.get(config.cluster.database_env) and not cluster.get("database"):
        found.add("cluster.database")
    return found


def _order_fields(found: list[ConfigField]) -> list[ConfigField]:
    order = list(CATEGORIES)
    return sorted(found, key=lambda field: order.index(field.category))


def _walk_keys(kind: type[Struct], prefix: str) -> Iterator[tuple[str, type[Struct], str, Any]]:
    for name, inner in field_types(kind).items():
        if is_struct(inner):
            yield from _walk_keys(inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", kind, name, inner


def _find_default(default: Any, key: str) -> Any:
    for part in key.split("."):
        default = default[part]
    return default


def _name_kind(kind: Any) -> FieldKind:
    kinds = [arg for arg in _unwrap(kind) if arg is not NoneType]
    if len(kinds) != 1:
        return "other"
    (only,) = kinds
    if get_origin(only) is Literal:
        return "choice"
    if get_origin(only) is tuple and get_args(only)[1:] == (Ellipsis,):
        inner = _unwrap(get_args(only)[0])
        return "list" if inner == [str] else "other"
    names: dict[Any, FieldKind] = {
        bool: "bool",
        int: "integer",
        float: "number",
        str: "text",
    }
    return names.get(only, "other")


def _unwrap(kind: Any) -> list[Any]:
    """The alternatives of a type, without what only restricts them."""
    if hasattr(kind, "__metadata__"):
        return _unwrap(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return [found for arg in get_args(kind) for found in _unwrap(arg)]
    return [kind]


def _list_choices(kind: Any) -> tuple[str, ...]:
    found = [get_args(arg) for arg in _unwrap(kind) if get_origin(arg) is Literal]
    return tuple(str(choice) for choices in found for choice in choices)


def _find_help(helps: dict[tuple[str, str], str], owner: type[Struct], name: str) -> str:
    """The docstring of a field, which its class may have from another one."""
    found = (helps.get((kind.__name__, name)) for kind in owner.__mro__)
    return next(filter(None, found), "")


@cache
def _read_helps() -> dict[tuple[str, str], str]:
    """The docstrings of the schema's fields, by class and name."""
    tree = ast.parse(Path(schema.__file__).read_text("utf-8"))
    found: dict[tuple[str, str], str] = {}
    for node in tree.body:
        if not isinstance(node, ast.ClassDef):
            continue
        for field, after in zip(node.body, node.body[1:], strict=False):
            match field, after:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    found[node.name, name] = " ".join(text.split())
                case _:
                    pass
    return found
