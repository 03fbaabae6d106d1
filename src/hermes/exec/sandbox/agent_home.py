"""Finds the agent's own files in a workspace that is the agent's home or inside it."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct

from hermes.core.errors import ConfigError
from hermes.exec.sandbox.path_rules import belongs_to_agent

_STEERING_FILES = (
    ".env active_profile auth.json config.yaml cron hooks mcp memories memory plugins skills "
    "trust.json".split()
)


class AgentPaths(Struct, frozen=True):
    """For `SandboxPolicy`."""

    hidden: tuple[Path, ...] = ()
    kept_missing: tuple[Path, ...] = ()


def find_agent_paths(workspace: Path, agent_home: Path, user_home: Path) -> AgentPaths:
    """What to hide and to keep missing in `workspace`; all paths are real ones. Raises ConfigError
    when the workspace is one of the agent's own folders."""
    homes = {agent_home, user_home / ".hermes"}
    if agent_home.parent.name == "profiles":
        homes.add(agent_home.parent.parent)
    for home in sorted(homes, key=lambda home: len(home.parts), reverse=True):
        if workspace == home:
            names = [name for name in os.listdir(home) if belongs_to_agent(name)]  # noqa: PTH208
            steering = tuple(home / name for name in _STEERING_FILES)
            return AgentPaths(tuple(home / name for name in sorted(names)), steering)
        if workspace.is_relative_to(home):
            if belongs_to_agent(workspace.relative_to(home).parts[0]):
                raise ConfigError(
                    f"{workspace} belongs to the agent itself, so no command may run in it: choose "
                    "another folder."
                )
            return AgentPaths()
    return AgentPaths()
