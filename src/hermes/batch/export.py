"""Writes what a run has produced: trajectories, failures, statistics. Always whole files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import msgspec

from hermes.batch.dataset import BatchItem
from hermes.batch.results import ItemRecord, Results
from hermes.batch.run_folder import RunFolder, RunSettings
from hermes.batch.trajectories import Format, format_trajectory
from hermes.config.private_files import replace_file
from hermes.tools.registry import list_toolsets

_EXPORTED = ("done", "partial")


class OutputFile:
    """A private file that appears under its name when it is complete."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._temporary = file.with_name(f".{file.name}.{os.getpid()}.new")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        self._out: BinaryIO = os.fdopen(os.open(self._temporary, flags, 0o600), "wb")

    def write_line(self, line: bytes) -> None:
        self._out.write(line)
        self._out.write(b"\n")

    def publish(self) -> None:
        self._out.flush()
        os.fsync(self._out.fileno())
        self._out.close()
        self._temporary.replace(self._file)

    def discard(self) -> None:
        self._out.close()
        self._temporary.unlink(missing_ok=True)


async def export_run(
    folder: RunFolder, settings: RunSettings, items: Mapping[str, BatchItem], results: Results
) -> None:
    """Write all files of the run anew, from its database."""
    records = await results.read_records()
    for form in settings.formats:
        await write_trajectories(folder.trajectories_file(form), form, items, records, results)
    failed = [
        {"id": record.id, "state": record.state, "error": record.error}
        for record in (records.get(id) for id in items)
        if record is not None and record.state not in _EXPORTED
    ]
    lines = b"".join(msgspec.json.encode(row) + b"\n" for row in failed)
    replace_file(folder.path / "failed.jsonl", lines)
    if any(item.repository for item in items.values()):
        replace_file(folder.path / "predictions.jsonl", _list_predictions(items, records))
    statistics = await results.compute_statistics(settings, items, records)
    body = msgspec.json.format(msgspec.json.encode(statistics), indent=2)
    replace_file(folder.path / "statistics.json", body + b"\n")


def _list_predictions(items: Mapping[str, BatchItem], records: Mapping[str, ItemRecord]) -> bytes:
    """A line per task that was answered, as SWE-bench's evaluation reads it."""
    rows = (
        {"instance_id": id, "model_name_or_path": record.model, "model_patch": record.patch}
        for id, record in ((id, records.get(id)) for id in items)
        if record is not None and record.state in _EXPORTED
    )
    return b"".join(msgspec.json.encode(row) + b"\n" for row in rows)


async def write_trajectories(
    file: Path,
    form: Format,
    items: Mapping[str, BatchItem],
    records: Mapping[str, ItemRecord],
    results: Results,
) -> int:
    """The number of lines written: of every item that was answered, in the order of items."""
    exported = {id: record for id, record in records.items() if record.state in _EXPORTED}
    names = sorted(name for tools in list_toolsets().values() for name in tools)
    out, count = OutputFile(file), 0
    try:
        async for found in results.list_trajectories(items, exported):
            out.write_line(format_trajectory(found, form, names))
            count += 1
        out.publish()
    except BaseException:
        out.discard()
        raise
    return count
