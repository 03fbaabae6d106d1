"""The plugins of a home: their states, and which are on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hermes.config.load import Setup
from hermes.config.paths import make_private_folder, plugins_folder
from hermes.core.errors import ConfigError

if TYPE_CHECKING:
    from hermes.skills.installer import SkillInstaller

_ENABLED, _DISABLED = "plugins.enabled", "plugins.disabled"


def open_plugin_installer(setup: Setup) -> SkillInstaller:
    from hermes.app.extensions.plugin_sources import (
        MANIFEST_FILE,
        list_local_plugins,
        list_packaged_plugins,
    )
    from hermes.skills.bundle import BundleKind
    from hermes.skills.installer import SkillInstaller, refuse_download

    folder = plugins_folder(setup.home)
    make_private_folder(folder)

    def is_taken(name: str) -> bool:
        """By a file, or by a package: a folder of that name would be imported instead."""
        return name in list_local_plugins(setup.home) or name in list_packaged_plugins()

    kind = BundleKind("plugin", MANIFEST_FILE, _validate_plugin, _find_name, is_taken)
    return SkillInstaller(folder, refuse_download, kind)


def _find_name(files: Mapping[str, bytes], folder: str, holder: str) -> str:
    """The name in plugin.yaml, else that of the folder, archive or repository; ConfigError if it
    cannot be one."""
    from hermes.app.extensions.plugin_sources import MANIFEST_FILE, is_plugin_name, read_manifest

    fields = read_manifest(files[MANIFEST_FILE].decode("utf-8", "replace"))
    name = str(fields.get("name") or folder or holder)
    if not is_plugin_name(name):
        raise ConfigError(f"{name[:60]!r} cannot be the name of a plugin; nothing was installed.")
    return name


def _validate_plugin(folder: Path) -> Sequence[str]:
    return () if (folder / "__init__.py").is_file() else ("it has no __init__.py",)


async def describe_plugins(setup: Setup) -> list[dict[str, str]]:
    """Every plugin with its state; those that are enabled are loaded to find out."""
    from hermes.app.extensions.plugin_sources import list_local_plugins, list_packaged_plugins
    from hermes.app.extensions.plugins import describe_rows, try_loading

    found = {**list_packaged_plugins(), **list_local_plugins(setup.home)}
    return describe_rows(setup, await try_loading(setup), found)


def remove_plugin(setup: Setup, name: str) -> Path:
    """Move a plugin to the archive; where it is kept."""
    from hermes.app.extensions.plugin_sources import list_local_plugins
    from hermes.config.update import move_names

    found = list_local_plugins(setup.home).get(name)
    file = Path(found.origin).name if found else name
    place = open_plugin_installer(setup).remove_skill(file)
    for key in (_ENABLED, _DISABLED):
        move_names(setup.home, [name], out_of=key)
    return place


def switch_plugins(setup: Setup, names: Sequence[str], *, enabled: bool) -> None:
    """Turn plugins on or off, from the next start on; ConfigError when one is not there."""
    from hermes.app.extensions.plugin_sources import list_local_plugins, list_packaged_plugins
    from hermes.config.update import move_names

    section = setup.config.plugins
    known = {*list_packaged_plugins(), *list_local_plugins(setup.home)}
    if not enabled:
        known |= {*section.enabled}
    if missing := [name for name in names if name not in known]:
        raise ConfigError(f"There is no plugin {missing[0]}; nothing was changed.")
    into, out_of = (_ENABLED, _DISABLED) if enabled else (_DISABLED, _ENABLED)
    move_names(setup.home, names, into=into, out_of=out_of)
