"""Writes what a run has produced: trajectories, failures, statistics. Always whole files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, Protocol

import msgspec

import hermes.app  # noqa: F401 - names the tools of other packages
from hermes.batch.dataset import BatchItem
from hermes.batch.results import ConversationCounts, ItemError, ItemRecord, Results
from hermes.batch.run_folder import RunFolder, RunSettings
from hermes.batch.trajectories import Format, Trajectory, encode_line, format_trajectory
from hermes.config.private_files import replace_file
from hermes.tools.registry import list_toolsets

_EXPORTED = ("done", "partial")
_WITHOUT_REASONING = ItemError("filtered", "No answer has reasoning (--require-reasoning).")


class TrajectoryWriter(Protocol):
    """A file of trajectories that is being written."""

    def write_trajectory(self, found: Trajectory) -> None: ...

    def publish(self) -> None:
        """Let the file appear under its name."""

    def discard(self) -> None: ...


class LinesFile:
    """A private file of JSON Lines that appears under its name when it is complete."""

    def __init__(self, file: Path, form: Format) -> None:
        self._file = file
        self._form = form
        self._names = list_all_tools()
        self._temporary = file.with_name(f".{file.name}.{os.getpid()}.new")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        self._out: BinaryIO = os.fdopen(os.open(self._temporary, flags, 0o600), "wb")

    def write_trajectory(self, found: Trajectory) -> None:
        self._out.write(format_trajectory(found, self._form, self._names))
        self._out.write(b"\n")

    def publish(self) -> None:
        self._out.flush()
        os.fsync(self._out.fileno())
        self._out.close()
        self._temporary.replace(self._file)

    def discard(self) -> None:
        self._out.close()
        self._temporary.unlink(missing_ok=True)


def list_all_tools() -> list[str]:
    """The names of all tools: every line of a file has the same columns."""
    return sorted(name for tools in list_toolsets().values() for name in tools)


def open_writer(file: Path, form: Format) -> TrajectoryWriter:
    if form != "parquet":
        return LinesFile(file, form)
    from hermes.batch.parquet_file import ParquetFile

    return ParquetFile(file)


async def export_run(
    folder: RunFolder, settings: RunSettings, items: Mapping[str, BatchItem], results: Results
) -> None:
    """Write all files of the run anew, from its database; each conversation is loaded once."""
    records = await results.read_records()
    counts = ConversationCounts()
    files = {form: folder.trajectories_file(form) for form in settings.formats}
    await write_trajectories(files, items, records, results, counts)
    failed = [
        {"id": record.id, "state": record.state, "error": record.error or _WITHOUT_REASONING}
        for record in (records.get(id) for id in items)
        if record is not None and record.state not in _EXPORTED
    ]
    lines = b"".join(encode_line(row) + b"\n" for row in failed)
    replace_file(folder.path / "failed.jsonl", lines)
    if any(item.commit for item in items.values()):
        replace_file(folder.path / "predictions.jsonl", _list_predictions(items, records))
    statistics = await results.compute_statistics(settings, records, counts)
    body = msgspec.json.format(msgspec.json.encode(statistics), indent=2)
    replace_file(folder.path / "statistics.json", body + b"\n")


def _list_predictions(items: Mapping[str, BatchItem], records: Mapping[str, ItemRecord]) -> bytes:
    """A line per task that was answered, as SWE-bench's evaluation reads it."""
    rows = (
        {"instance_id": id, "model_name_or_path": record.model, "model_patch": record.patch}
        for id, record in ((id, records.get(id)) for id in items)
        if record is not None and record.state in _EXPORTED
    )
    return b"".join(encode_line(row) + b"\n" for row in rows)


async def write_trajectories(
    files: Mapping[Format, Path],
    items: Mapping[str, BatchItem],
    records: Mapping[str, ItemRecord],
    results: Results,
    counts: ConversationCounts | None = None,
) -> int:
    """Write a file per format; the number of trajectories: one of every item that was answered, in
    the order of items. `counts` takes in all conversations, also those that are not exported."""
    wanted = records if counts is not None else list_exported(records)
    count = 0
    with ExitStack() as stack:
        writers = [open_writer(file, form) for form, file in files.items()]
        for writer in writers:
            stack.callback(writer.discard)
        async for found in results.list_trajectories(items, wanted):
            if counts is not None:
                counts.add_conversation(found)
            if found.state not in _EXPORTED:
                continue
            count += 1
            for writer in writers:
                writer.write_trajectory(found)
        stack.pop_all()
    for writer in writers:
        writer.publish()
    return count


def list_exported(records: Mapping[str, ItemRecord]) -> dict[str, ItemRecord]:
    """The items whose conversations are exported."""
    return {id: record for id, record in records.items() if record.state in _EXPORTED}
