"""The time zone of this machine, by its name."""

import os
from collections.abc import Mapping
from pathlib import Path

from hermes.core.errors import ConfigError


def find_machine_zone(environ: Mapping[str, str] = os.environ, root: Path = Path("/")) -> str:
    """The name of the machine's time zone; ConfigError when it has a zone without a name."""
    if name := environ.get("TZ", "").removeprefix(":"):
        return _strip_folder(name)
    local = root / "etc" / "localtime"
    if local.is_symlink():
        return _strip_folder(str(local.readlink()))
    try:
        return (root / "etc" / "timezone").read_text("utf-8").split()[0]
    except (OSError, ValueError, IndexError):
        pass
    if not local.exists():
        return "UTC"
    raise ConfigError(
        "The time zone of this machine has no name. Give --tz, or set `timezone` in config.yaml."
    )


def _strip_folder(path: str) -> str:
    return path.rpartition("zoneinfo/")[2]
