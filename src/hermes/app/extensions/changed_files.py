"""Which files a subagent has changed: by its tools, and by the times of the files."""

import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from hermes.core.errors import ToolError
from hermes.core.message import ToolCall
from hermes.core.tool import Tool

_MAX_NAMES = 50
_MAX_VISITED = 20_000
_SKIPPED = frozenset({".git", "node_modules", ".venv", "__pycache__"})
_CLOCK_SLACK = 0.02
"""Seconds by which a file system may be behind the clock."""


class FileWatch:
    """The files of a folder that were changed since it was made."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._began = time.time() - _CLOCK_SLACK
        self._paths: dict[str, None] = {}
        self._ran_command = False

    def note_call(self, call: ToolCall, tools: Mapping[str, Tool[Any]]) -> None:
        """Note what a call has written. What commands write is found by `scan_folder`."""
        with suppress(ToolError, ValueError, KeyError):
            tool = tools[call.name]
            params = tool.parse_params(json.loads(call.args or "{}"))
            if tool.forward and (target := tool.forward(params)):
                tool = tools[target[0]]
                params = tool.parse_params(target[1])
            self._ran_command |= tool.risk == "exec"
            keys = tool.key(params, self._folder) if tool.risk == "write" and tool.key else None
            for path in (keys,) if isinstance(keys, str) else keys or ():
                self._paths[path] = None

    def scan_folder(self) -> None:
        """Add the files whose time is later, if a command ran that may have changed some."""
        if not self._ran_command:
            return
        pending, visited = [str(self._folder)], 0
        while pending and visited < _MAX_VISITED:
            with suppress(OSError), os.scandir(pending.pop()) as entries:
                for entry in entries:
                    visited += 1
                    if entry.is_dir(follow_symlinks=False):
                        if entry.name not in _SKIPPED:
                            pending.append(entry.path)
                    elif entry.stat(follow_symlinks=False).st_mtime >= self._began:
                        self._paths[entry.path] = None

    def list_names(self) -> list[str]:
        """The names, relative to the folder where they are inside it."""
        names = []
        for path in sorted(self._paths)[:_MAX_NAMES]:
            inside = Path(path).is_relative_to(self._folder)
            names.append(str(Path(path).relative_to(self._folder)) if inside else path)
        return names
