"""Finds plugins: folders and files of the home, and packages that declare an entry point."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from hermes.config.paths import plugins_folder
from hermes.core.errors import ConfigError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

API_VERSION = 1
MANIFEST_FILE = "plugin.yaml"
_GROUPS = ("hermes.plugins", "hermes_agent.plugins")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z")
_MODULE_PREFIX = "hermes_plugin_"


class PluginSource(Struct, frozen=True):
    """A plugin that could be imported, and what it says about itself."""

    name: str
    origin: str
    """Its file or folder, or the package that brings it."""
    import_module: Callable[[], Any]
    """The module or function with `register`."""
    version: str = ""
    description: str = ""
    requires_env: tuple[str, ...] = ()
    problem: str = ""
    """Why it cannot be loaded."""


def is_plugin_name(name: str) -> bool:
    return _NAME.match(name) is not None


def list_local_plugins(home: Path) -> dict[str, PluginSource]:
    """The plugins in the home; none of them is imported."""
    folder = plugins_folder(home)
    found: dict[str, PluginSource] = {}
    if not folder.is_dir():
        return found
    for path in sorted(folder.iterdir()):
        name = path.stem if path.is_file() else path.name
        if path.is_dir() and (path / "__init__.py").is_file() and is_plugin_name(name):
            found[name] = _read_folder(path)
        elif path.suffix == ".py" and path.is_file() and is_plugin_name(name):
            found.setdefault(name, PluginSource(name, str(path), partial(_import_file, path)))
    return found


def list_packaged_plugins() -> dict[str, PluginSource]:
    """The plugins of installed packages. Slow: it reads what every package says about itself."""
    from importlib.metadata import entry_points

    found: dict[str, PluginSource] = {}
    for group in _GROUPS:
        for point in entry_points(group=group):
            found.setdefault(point.name, _describe_entry_point(point))
    return found


def _describe_entry_point(point: EntryPoint) -> PluginSource:
    package = point.dist
    return PluginSource(
        point.name,
        f"{package.name} {package.version}" if package else point.value,
        point.load,
        package.version if package else "",
        str(package.metadata["Summary"] or "") if package else "",
    )


def _read_folder(path: Path) -> PluginSource:
    source = PluginSource(path.name, str(path), partial(_import_file, path / "__init__.py"))
    try:
        fields = read_manifest((path / MANIFEST_FILE).read_text("utf-8", "replace"))
    except FileNotFoundError:
        return source
    except (OSError, ConfigError) as error:
        return PluginSource(*_basics(source), problem=str(error))
    version = fields.get("api", API_VERSION)
    problem = "" if version == API_VERSION else f"it needs api {version}; this is {API_VERSION}"
    return PluginSource(
        *_basics(source),
        version=str(fields.get("version") or ""),
        description=str(fields.get("description") or ""),
        requires_env=tuple(_list_variables(fields.get("requires_env"))),
        problem=problem,
    )


def _basics(source: PluginSource) -> tuple[str, str, Callable[[], Any]]:
    return source.name, source.origin, source.import_module


def read_manifest(text: str) -> dict[str, Any]:
    """The fields of a plugin.yaml; ConfigError when it has none."""
    import yaml

    try:
        fields = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        raise ConfigError(f"{MANIFEST_FILE} is not valid YAML") from None
    if not isinstance(fields, dict):
        raise ConfigError(f"{MANIFEST_FILE} has no fields")
    return fields


def _list_variables(value: Any) -> list[str]:
    """Names of variables: as text, or as objects with a name, as in the original."""
    rows = value if isinstance(value, list) else []
    return [str(row.get("name", "")) if isinstance(row, dict) else str(row) for row in rows]


def _import_file(file: Path) -> ModuleType:
    """Import a file of the home as a module of its own, with the modules beside it."""
    from importlib.util import module_from_spec, spec_from_file_location

    is_package = file.name == "__init__.py"
    name = _MODULE_PREFIX + (file.parent.name if is_package else file.stem).replace("-", "_")
    places = [str(file.parent)] if is_package else None
    spec = spec_from_file_location(name, file, submodule_search_locations=places)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit):
        with suppress(KeyError):
            del sys.modules[name]
        raise
    return module
