"""Trajectories as a parquet file: the openai form, with one schema for every line."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from hermes.batch.trajectories import Trajectory, list_openai_messages, list_openai_tools
from hermes.core.errors import ConfigError

_GROUP = 500
"""Rows that are written at once."""


def require_parquet() -> None:
    """ConfigError when the package that writes parquet is missing."""
    if find_spec("pyarrow") is None:
        raise ConfigError(
            "The format parquet needs the extra datasets: pip install 'hermes-runtime[datasets]'. "
            "Nothing was started."
        )


class ParquetFile:
    """A private file that appears under its name when it is complete. What differs from item to
    item, the tools and the metadata, is JSON text."""

    def __init__(self, file: Path) -> None:
        require_parquet()
        import pyarrow.parquet

        self._file = file
        self._temporary = file.with_name(f".{file.name}.{os.getpid()}.new")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        self._out = os.fdopen(os.open(self._temporary, flags, 0o600), "wb")
        self._schema = _make_schema()
        self._writer = pyarrow.parquet.ParquetWriter(self._out, self._schema)
        self._rows: list[dict[str, Any]] = []

    def write_trajectory(self, found: Trajectory) -> None:
        self._rows.append(
            {
                "id": found.id,
                "messages": list(list_openai_messages(found)),
                "tools": msgspec.json.encode(list_openai_tools(found)).decode(),
                "metadata": msgspec.json.encode(found.metadata).decode(),
            }
        )
        if len(self._rows) >= _GROUP:
            self._write_rows()

    def publish(self) -> None:
        self._write_rows()
        self._writer.close()
        self._out.flush()
        os.fsync(self._out.fileno())
        self._out.close()
        self._temporary.replace(self._file)

    def discard(self) -> None:
        self._writer.close()
        self._out.close()
        self._temporary.unlink(missing_ok=True)

    def _write_rows(self) -> None:
        import pyarrow

        if self._rows:
            self._writer.write_table(pyarrow.Table.from_pylist(self._rows, schema=self._schema))
            self._rows = []


def _make_schema() -> Any:
    import pyarrow as pa

    function = pa.struct([("name", pa.string()), ("arguments", pa.string())])
    call = pa.struct([("id", pa.string()), ("type", pa.string()), ("function", function)])
    message = pa.struct(
        [
            ("role", pa.string()),
            ("content", pa.string()),
            ("tool_calls", pa.list_(call)),
            ("reasoning_content", pa.string()),
            ("tool_call_id", pa.string()),
        ]
    )
    return pa.schema(
        [
            ("id", pa.string()),
            ("messages", pa.list_(message)),
            ("tools", pa.string()),
            ("metadata", pa.string()),
        ]
    )
