"""What is shown and exported of a run."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hermes.batch.export import list_all_tools, list_exported, write_trajectories
from hermes.batch.nodes.run_store import open_run_store
from hermes.batch.results import ConversationCounts, Results
from hermes.batch.run_folder import RunFolder
from hermes.batch.trajectories import Format, format_trajectory
from hermes.config.load import Setup
from hermes.core.errors import ConfigError


async def read_statistics(
    setup: Setup, folder: RunFolder, *, count_messages: bool = True
) -> dict[str, Any]:
    """The statistics as of now, also while the run goes on. Without `count_messages` those of
    tools and reasoning are missing, for which every conversation has to be read."""
    settings = folder.read_settings()
    items = {item.id: item for item in folder.read_items().items}
    async with open_run_store(setup, folder, settings) as store:
        results = Results(store, settings.name)
        records = await results.read_records()
        counts = ConversationCounts()
        if count_messages:
            counts = await results.count_conversations(items, records)
        return await results.compute_statistics(settings, records, counts, folder.running_since)


def describe_status(status: Mapping[str, Any], statistics: Mapping[str, Any]) -> list[str]:
    states = ", ".join(f"{count} {state}" for state, count in statistics["states"].items())
    running = f"running (pid {status['running']})" if status["running"] else "not running"
    tokens = statistics["tokens"]
    return [
        f"run        {status['name']}, {running}",
        f"items      {statistics['items']}: {states}",
        f"tokens     {tokens['input']:,} in, {tokens['output']:,} out",
        f"cost       ${statistics['cost_usd']:.4f}",
        f"abandoned  {statistics['abandoned']} attempts",
        f"folder     {status['folder']}",
    ]


def check_target(file: Path) -> None:
    """ConfigError, before anything is done for it, when a file cannot be written."""
    folder = file.parent
    is_other = file.exists() and not file.is_file()  # a device would be replaced by a file
    if is_other or not os.access(folder, os.W_OK | os.X_OK):
        reason = "it is no regular file" if is_other else f"no file can be made in {folder}"
        raise ConfigError(f"{file} cannot be written: {reason}. Nothing was done.")


async def export_trajectories(setup: Setup, folder: RunFolder, form: Format, out: str) -> int:
    """Write the conversations in one format, to a file or to stdout."""
    settings = folder.read_settings()
    items = {item.id: item for item in folder.read_items().items}
    async with open_run_store(setup, folder, settings) as store:
        results = Results(store, settings.name)
        records = await results.read_records()
        if out != "-":
            check_target(Path(out))
            count = await write_trajectories({form: Path(out)}, items, records, results)
            print(f"{out}: {count} lines", file=sys.stderr)
            return 0
        names = list_all_tools()
        async for found in results.list_trajectories(items, list_exported(records)):
            print(format_trajectory(found, form, names).decode())
        return 0
