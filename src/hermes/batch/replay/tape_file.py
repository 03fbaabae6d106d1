"""A tape as a file: JSON Lines, with the bytes as text."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from hermes.app.live.session_tape import AgentRecord, TapeTurn
from hermes.core.errors import ConfigError
from hermes.llm.http.tape import TapeChoice, TapeExchange
from hermes.llm.wire import check_wire_name

_FORMAT = 1
_BYTES = ("request", "body")
_BAD_LINE = (ValueError, LookupError, AttributeError, TypeError, RecursionError)


class TapeFile(msgspec.Struct, frozen=True):
    """The recorded turns of a conversation."""

    session: str
    turns: list[TapeTurn]
    agents: dict[str, AgentRecord]


def encode_tape(
    session_id: str, turns: Iterable[TapeTurn], agents: Mapping[str, AgentRecord]
) -> Iterator[str]:
    """The lines of a file: its head, the agents, then each turn followed by its entries."""
    yield _encode_line({"type": "tape", "format": _FORMAT, "session": session_id})
    for digest, record in agents.items():
        yield _encode_line({"type": "agent", "digest": digest, **msgspec.to_builtins(record)})
    for turn in turns:
        row = msgspec.to_builtins(turn)
        row.pop("entries", None)
        yield _encode_line({**row, "type": "turn"})
        for entry in turn.entries:
            yield _encode_line(_encode_entry(entry))


def _encode_entry(entry: TapeExchange | TapeChoice) -> dict[str, Any]:
    row: dict[str, Any] = msgspec.to_builtins(entry, builtin_types=(bytes,))
    for name in _BYTES:
        data = row.get(name)
        if not isinstance(data, bytes):
            continue
        try:
            row[name] = data.decode()
        except UnicodeDecodeError:
            row[name] = {"base64": b64encode(data).decode()}
    return row


def _encode_line(row: Mapping[str, Any]) -> str:
    return msgspec.json.encode(row).decode()


def read_tape(file: Path) -> TapeFile:
    """The tape in a file; ConfigError names the line that cannot be read."""
    turns: list[TapeTurn] = []
    agents: dict[str, AgentRecord] = {}
    session = ""
    number = 0
    try:
        for line in file.read_bytes().split(b"\n"):
            number += 1
            if not line.strip():
                continue
            row = msgspec.json.decode(line)
            match row.get("type"):
                case "tape":
                    session = str(row["session"])
                case "agent":
                    agents[row["digest"]] = _read_agent(row)
                case "turn":
                    turns.append(msgspec.convert(row, TapeTurn))
                    turns[-1].entries = []
                case _:
                    if not turns:
                        raise ValueError("no turn has begun")
                    turns[-1].entries.append(_decode_entry(row))
    except (*_BAD_LINE, ConfigError) as error:
        raise ConfigError(f"{file}, line {number}, is not part of a tape ({error}).") from None
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}.") from None
    if not session:
        raise ConfigError(f"{file} is no tape. hermes sessions export ID --format tape writes one.")
    return TapeFile(session, turns, agents)


def _read_agent(row: dict[str, Any]) -> AgentRecord:
    record = msgspec.convert(row, AgentRecord)
    for endpoint in record.endpoints:
        check_wire_name(endpoint.target.wire)
    return record


def _decode_entry(row: dict[str, Any]) -> TapeExchange | TapeChoice:
    for name in _BYTES:
        value = row.get(name)
        if isinstance(value, str):
            row[name] = value.encode()
        elif isinstance(value, dict):
            row[name] = b64decode(value["base64"], validate=True)
    found: TapeExchange | TapeChoice = msgspec.convert(
        row, TapeExchange | TapeChoice, builtin_types=(bytes,)
    )
    return found
