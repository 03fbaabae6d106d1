"""What belongs to the agent itself when a workspace is its home, or a folder of it."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct

from hermes.core.errors import ConfigError

_FOLDERS = frozenset(
    "artifacts aside cache checkpoints cron hooks logins logs mcp memories memory models outputs "
    "pairing plugins processes profiles run sessions skills".split()
)
_FILES = tuple(
    ".config .env .trust active_profile approvals. auth. config. hermes. history. state. "
    "trust.".split()
)
_STEERING = (
    ".env active_profile auth.json config.yaml cron hooks mcp memories memory plugins skills "
    "trust.json".split()
)


class Own(Struct, frozen=True):
    hidden: tuple[Path, ...] = ()
    unmade: tuple[Path, ...] = ()


def own(workspace: Path, agent_home: Path, user_home: Path) -> Own:
    """All paths are real ones. Raises ConfigError where no command has any business."""
    homes = {agent_home, user_home / ".hermes"}
    if agent_home.parent.name == "profiles":
        homes.add(agent_home.parent.parent)
    for home in sorted(homes, key=lambda home: len(home.parts), reverse=True):
        if workspace == home:
            names = [name for name in os.listdir(home) if _is_ours(name)]  # noqa: PTH208
            steering = tuple(home / name for name in _STEERING)
            return Own(tuple(home / name for name in sorted(names)), steering)
        if workspace.is_relative_to(home):
            if _is_ours(workspace.relative_to(home).parts[0]):
                raise ConfigError(
                    f"{workspace} belongs to the agent itself, and no command runs in it: choose "
                    "another folder."
                )
            return Own()
    return Own()


def _is_ours(name: str) -> bool:
    return name in _FOLDERS or name.startswith(_FILES) or ".db" in name
